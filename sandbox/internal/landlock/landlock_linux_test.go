package landlock

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const roleVar = "CLEANRUN_LANDLOCK_TEST"

// A domain cannot be left, so what is under it is this test binary again.
func TestMain(m *testing.M) {
	if dir := os.Getenv(roleVar); dir != "" {
		runtime.LockOSThread()
		restricted(dir)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func try(name string, err error) {
	var e unix.Errno
	errors.As(err, &e)
	fmt.Printf("%s=%s\n", name, unix.ErrnoName(e))
}

func restricted(dir string) {
	read, write, other := filepath.Join(dir, "read"), filepath.Join(dir, "write"), filepath.Join(dir, "other")
	err := Restrict(Domain{Alone: true, NoTCP: true, Rules: []Rule{{read, Read}, {write, Write}, {dir, List}, {dir + "/absent", Read}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	open := func(p string, flags int) error {
		fd, err := unix.Open(p, flags|unix.O_CLOEXEC, 0o600)
		if err == nil {
			unix.Close(fd)
		}
		return err
	}
	try("read", open(read+"/f", unix.O_RDONLY))
	try("read-write", open(read+"/f", unix.O_WRONLY))
	try("read-create", open(read+"/new", unix.O_WRONLY|unix.O_CREAT))
	try("write-create", open(write+"/new", unix.O_WRONLY|unix.O_CREAT))
	try("write-truncate", open(write+"/new", unix.O_WRONLY|unix.O_TRUNC))
	try("other", open(other+"/f", unix.O_RDONLY))
	try("other-list", open(other, unix.O_RDONLY|unix.O_DIRECTORY))
	_ = unix.Mkdir(write+"/a", 0o700)
	_ = unix.Mkdir(write+"/b", 0o700)
	try("rename", unix.Rename(write+"/new", write+"/a/x"))
	try("rename-across", unix.Rename(write+"/a/x", write+"/b/x"))
	try("link", unix.Link(write+"/b/x", write+"/a/y"))
	try("link-out", unix.Link(write+"/b/x", other+"/y"))
	try("symlink-out", unix.Symlink("x", other+"/l"))
	try("kill-parent", unix.Kill(os.Getppid(), 0))
	try("kill-self", unix.Kill(os.Getpid(), 0))
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		try("tcp", unix.Bind(s, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	}
}

func TestRestrict(t *testing.T) {
	abi := ABI()
	t.Logf("Landlock version %d", abi)
	if abi < 3 {
		t.Skipf("Landlock version %d here, want at least 3", abi)
	}
	dir := t.TempDir()
	for _, d := range []string{"read", "write", "other"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, d, "f"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVar+"="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := "read=\nread-write=EACCES\nread-create=EACCES\nwrite-create=\nwrite-truncate=\nother=EACCES\nother-list=\n" +
		"rename=\nrename-across=\nlink=\nlink-out=EACCES\nsymlink-out=EACCES\n"
	if abi >= 6 {
		want += "kill-parent=EPERM\n"
	} else {
		want += "kill-parent=\n"
	}
	want += "kill-self=\n"
	if abi >= 4 && strings.Contains(string(out), "tcp=") {
		want += "tcp=EACCES\n"
	}
	got := strings.ReplaceAll(string(out), "link-out=EXDEV", "link-out=EACCES")
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
