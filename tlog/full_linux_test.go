package tlog_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cleanrun-dev/cleanrun/tlog"
)

// A disk that is full refuses entries under that name, keeps what it took, and
// takes entries again once there is room. The disk is a small file system in
// memory, mounted in a process of its own.
func TestFullDisk(t *testing.T) {
	const env = "TLOG_TEST_FULL"
	if dir := os.Getenv(env); dir != "" {
		fullDisk(t, dir)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
	cmd.Env = append(os.Environ(), env+"="+t.TempDir())
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	out, err := cmd.CombinedOutput()
	var ended *exec.ExitError
	switch {
	case err != nil && !errors.As(err, &ended):
		t.Skipf("no user namespace here, so no disk to fill: %v", err)
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case strings.Contains(string(out), "--- SKIP"):
		t.Skipf("%s", out)
	case !strings.Contains(string(out), "--- PASS"):
		t.Errorf("the test did not run:\n%s", out)
	}
	if strings.Contains(string(out), "] ") {
		t.Errorf("something was printed past our errors:\n%s", out)
	}
}

func fullDisk(t *testing.T, dir string) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, s := newLog(t) // for its key
	dir = filepath.Join(dir, "log")
	if err := tlog.Init(t.Context(), dir, s); err != nil {
		t.Fatal(err)
	}
	l := openLog(t, dir, s)
	entry := func(i int) []byte { return fmt.Appendf(nil, "%d %0*d", i, 9000, 0) }
	acknowledged := map[uint64]int{}
	var err error
	i := 0
	for ; err == nil && i < 1000; i++ {
		var n uint64
		if n, err = l.Add(t.Context(), entry(i)); err == nil {
			acknowledged[n] = i
		}
	}
	if !errors.Is(err, tlog.ErrFull) {
		t.Fatalf("after %d entries: got %v, want ErrFull", i, err)
	}
	if len(acknowledged) == 0 {
		t.Fatal("no entry went in before the disk was full")
	}
	if _, err := l.Add(t.Context(), entry(i)); !errors.Is(err, tlog.ErrFull) {
		t.Errorf("still full: got %v, want ErrFull", err)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	n, err := l.Add(t.Context(), entry(i+1))
	if err != nil {
		t.Fatalf("with room again: %v", err)
	}
	acknowledged[n] = i + 1
	for n, i := range acknowledged {
		if e, _, err := tlog.Prove(t.Context(), l, n); err != nil || string(e) != string(entry(i)) {
			t.Errorf("entry %d: got %d bytes, %v, want those that were added", n, len(e), err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if size, err := tlog.Check(t.Context(), dir, s.Public()); size <= n || err != nil {
		t.Errorf("Check: got %d, %v, want more than %d", size, err, n)
	}
	tesseraCheck(t, dir, s)
}
