package regular

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What package os makes of the same mode.
func TestMode(t *testing.T) {
	dir := t.TempDir()
	file, fifo := filepath.Join(dir, "f"), filepath.Join(dir, "p")
	if err := os.WriteFile(file, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o751|os.ModeSetuid|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("f", filepath.Join(dir, "l")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(dir, "d"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{file, fifo, filepath.Join(dir, "l"), filepath.Join(dir, "d"), "/dev/null"} {
		st, err := os.Lstat(p)
		if err != nil {
			t.Fatal(err)
		}
		if got := Mode(st.Sys().(*syscall.Stat_t).Mode); got != st.Mode() {
			t.Errorf("%s: got %v, want %v", p, got, st.Mode())
		}
	}
}
