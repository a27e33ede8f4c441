package registry_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// TestFullDisk fills the disk of a log that is served, in a namespace of its own. A
// full disk gives 503 and no wrong answer, and what was acknowledged stays proved.
func TestFullDisk(t *testing.T) {
	const env = "REGISTRY_TEST_FULL"
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
}

func fullDisk(t *testing.T, mount string) {
	if err := syscall.Mount("tmpfs", mount, "tmpfs", 0, "size=2m"); err != nil {
		t.Skipf("no file system can be mounted here: %v", err)
	}
	ballast := filepath.Join(mount, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 1500<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	c := newCast(t)
	dir := filepath.Join(mount, "log")
	if err := tlog.Init(t.Context(), dir, c.log); err != nil {
		t.Fatal(err)
	}
	s := c.open(t, c.openLog(t, dir))
	url, _ := serve(t, s, registry.HandlerOptions{Dir: dir})
	r := dial(t, url, c)
	acknowledged := map[uint64][]byte{}
	keep := func(l registry.Logged, e []byte) {
		if acknowledged[l.Index] != nil {
			t.Errorf("index %d was given twice", l.Index)
		}
		acknowledged[l.Index] = e
	}
	keep(add(t, r, c.seal("head")), c.seal("head"))
	var failed []byte
	n := 1
	for ; failed == nil && n < 200; n++ {
		// In process, so that a full disk is not tried four times.
		if l, err := s.Add(t.Context(), c.register(n)); err == nil {
			keep(l, c.register(n))
		} else if errors.Is(err, registry.ErrUnavailable) && errors.Is(err, tlog.ErrFull) {
			failed = c.register(n)
		} else {
			t.Fatalf("entry %d: got %v, want ErrUnavailable for ErrFull", n, err)
		}
	}
	if failed == nil {
		t.Fatal("the disk did not fill up")
	}
	for path, body := range map[string][]byte{"/entries": c.register(n), "/healthz": nil} {
		method, contentType := "GET", ""
		if body != nil {
			method, contentType = "POST", "application/cose"
		}
		if a, b := ask(t, method, url+path, contentType, strings.NewReader(string(body))); a.StatusCode != 503 {
			t.Errorf("%s with a full disk: got %d %q, want 503", path, a.StatusCode, b)
		}
	}
	checkProofs(t, c, r, acknowledged)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Minute); ; { // each asks the log to go on, for some seconds
		a, b := ask(t, "GET", url+"/healthz", "", nil)
		if a.StatusCode == 200 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("healthz with room again: got %d %q, want 200", a.StatusCode, b)
		}
	}
	keep(add(t, r, failed), failed)
	keep(add(t, r, c.register(n)), c.register(n))
	checkProofs(t, c, r, acknowledged)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := tlogCheck(t, dir, c); got != uint64(len(acknowledged)) {
		t.Errorf("got %d entries, want %d", got, len(acknowledged))
	}
}
