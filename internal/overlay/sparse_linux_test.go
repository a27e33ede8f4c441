package overlay

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A file can claim any size. Comparing and copying take time and space for what it
// holds, not for what it claims.
func TestSparseFilesTakeNoTime(t *testing.T) {
	tmp := t.TempDir()
	upper, lower, dst := filepath.Join(tmp, "upper"), filepath.Join(tmp, "lower"), filepath.Join(tmp, "dst")
	const size = 1 << 40
	sparse := func(p string, at int64, content string) {
		t.Helper()
		f, err := os.Create(p)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := f.Truncate(size); err != nil {
			t.Skipf("no sparse file of %d bytes: %v", int64(size), err)
		}
		_, err = f.WriteAt([]byte(content), at)
		must(t, err)
	}
	must(t, os.Mkdir(upper, 0o755), os.Mkdir(lower, 0o755), os.Mkdir(dst, 0o755))
	const middle = size/2 + 12345
	sparse(upper+"/added", middle, "needle")
	sparse(upper+"/same", middle, "needle")
	sparse(lower+"/same", middle, "needle")
	sparse(upper+"/other", middle, "needle")
	sparse(lower+"/other", middle, "Needle")
	sparse(upper+"/moved", middle, "needle")
	sparse(lower+"/moved", 3*size/4, "needle")
	sparse(upper+"/cut", 0, "x")
	put(t, lower+"/cut", "x")
	now := time.Now()
	for _, p := range []string{upper, lower} {
		must(t, os.Chtimes(p+"/same", now, now))
	}
	done := make(chan error, 1)
	go func() {
		changes, err := Changes(open(t, upper), open(t, lower))
		got := ""
		for _, c := range changes {
			got += fmt.Sprintf("%s %s %d\n", c.Kind, c.Path, c.Size)
		}
		want := fmt.Sprintf("added added %[1]d\nmodified cut %[1]d\nmodified moved %[1]d\nmodified other %[1]d\n", int64(size))
		if err == nil && got != want {
			err = fmt.Errorf("got\n%swant\n%s", got, want)
		}
		if err == nil {
			_, _, err = Apply(open(t, upper), open(t, dst))
		}
		done <- err
	}()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(2 * time.Minute):
		t.Fatal("comparing and copying sparse files takes as long as their size says")
	}
	f, err := os.Open(dst + "/added")
	must(t, err)
	defer f.Close()
	b := make([]byte, 8)
	_, err = f.ReadAt(b, middle-1)
	must(t, err)
	var st unix.Stat_t
	must(t, unix.Fstat(int(f.Fd()), &st))
	if string(b) != "\x00needle\x00" || st.Size != size || st.Blocks*512 > 1<<20 {
		t.Errorf("copy: %q, size %d, %d blocks", b, st.Size, st.Blocks)
	}
}
