package durable

import (
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The limit cannot be taken back, so the test runs again in a process of its own.
func TestFullDiskLeavesNothing(t *testing.T) {
	const env = "CLEANRUN_DURABLE_TEST_DIR"
	if dir := os.Getenv(env); dir != "" {
		fullDisk(t, dir)
		return
	}
	dir := t.TempDir()
	if err := WriteFile(filepath.Join(dir, "old"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	attr := &os.ProcAttr{Env: append(os.Environ(), env+"="+dir), Files: []*os.File{nil, os.Stdout, os.Stderr}}
	p, err := os.StartProcess(os.Args[0], []string{os.Args[0], "-test.run=^TestFullDiskLeavesNothing$"}, attr)
	if err != nil {
		t.Fatal(err)
	}
	if state, err := p.Wait(); err != nil || !state.Success() {
		t.Errorf("got %v, %v, want success", state, err)
	}
	want(t, dir, map[string]string{"old": "old"})
}

func fullDisk(t *testing.T, dir string) {
	signal.Ignore(unix.SIGXFSZ)
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1000, Max: 1000}); err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func(string, []byte, fs.FileMode) error{"old": WriteFile, "new": CreateNew} {
		if err := write(filepath.Join(dir, name), make([]byte, 5000), 0o600); !errors.Is(err, unix.EFBIG) {
			t.Errorf("%s: got %v, want EFBIG", name, err)
		}
	}
}
