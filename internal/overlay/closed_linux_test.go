package overlay

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// inside runs the calling test again in user and mount namespaces of its own,
// where overlays may be mounted, and says whether this is that second run.
func inside(t *testing.T) bool {
	const v = "CLEANRUN_OVERLAY_TEST"
	if os.Getenv(v) == t.Name() {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v", fmt.Sprintf("-test.short=%v", testing.Short()))
	cmd.Env = append(os.Environ(), v+"="+t.Name())
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER},
	}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSPC) {
		t.Skipf("no user namespaces: %v", err)
	}
	if bytes.Contains(out, []byte("--- SKIP")) {
		t.Skipf("%s", out)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	return false
}

// ordinary runs the calling test again as an ordinary user if this is root, who may read
// everything, and says whether to go on here.
func ordinary(t *testing.T) bool {
	t.Helper()
	const v = "CLEANRUN_OVERLAY_ORDINARY"
	if os.Getuid() != 0 || os.Getenv(v) == t.Name() {
		return true
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$", "-test.v")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), v+"="+t.Name(), "TMPDIR=/tmp")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 54321, Gid: 54321}}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EACCES) {
		t.Skipf("root here cannot start a program as another user: %v", err)
	}
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+t.Name())) {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// What the run made unreadable to its own user is compared and applied, and is as
// unreadable afterwards, in both places.
func TestClosedFiles(t *testing.T) {
	if !ordinary(t) {
		return
	}
	tmp := t.TempDir()
	lower, upper := tmp+"/lower", tmp+"/upper"
	write := func(p, text string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range []string{"same", "other", "d/x"} {
		write(lower+"/"+p, "text")
	}
	write(upper+"/same", "text")
	write(upper+"/other", "tExt")
	write(upper+"/d/x", "texts")
	write(upper+"/new/deep/y", "text")
	closed := []string{"same", "other", "d/x", "d", "new/deep", "new"}
	modes := func(dir string) (out string) {
		for i := len(closed) - 1; i >= 0; i-- { // each is opened after it was looked at
			p := dir + "/" + closed[i]
			st, err := os.Lstat(p)
			if err != nil {
				t.Fatal(err)
			}
			out += fmt.Sprintf("%s %v ", closed[i], st.Mode())
			if err := os.Chmod(p, st.Mode()|0o700); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range closed {
			if err := os.Chmod(dir+"/"+p, 0); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	for _, p := range closed {
		if err := os.Chmod(upper+"/"+p, 0); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		for _, dir := range []string{lower, upper} {
			for _, p := range []string{"d", "new", "new/deep"} {
				os.Chmod(dir+"/"+p, 0o755)
			}
		}
	}()
	want := modes(upper)
	got, err := Changes(open(t, upper), open(t, lower))
	if err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, c := range got {
		said += fmt.Sprintf("%s %s %v; ", c.Kind, c.Path, c.Mode)
	}
	if want := "metadata d d---------; modified d/x ----------; added new d---------; added new/deep d---------; added new/deep/y -rw-r--r--; modified other ----------; metadata same ----------; "; said != want {
		t.Errorf("got  %s\nwant %s", said, want)
	}
	if now := modes(upper); now != want {
		t.Errorf("got modes %s after the comparison, want %s", now, want)
	}
	if _, _, err := Apply(open(t, upper), open(t, lower)); err != nil {
		t.Fatal(err)
	}
	if now := modes(upper); now != want {
		t.Errorf("got modes %s after applying, want %s", now, want)
	}
	if now := modes(lower); now != want {
		t.Errorf("got modes %s where it was applied, want %s", now, want)
	}
	for _, p := range []string{"new", "new/deep", "other"} {
		if err := os.Chmod(lower+"/"+p, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for p, text := range map[string]string{"new/deep/y": "text", "other": "tExt"} {
		if b, err := os.ReadFile(lower + "/" + p); string(b) != text {
			t.Errorf("%s: got %q (%v), want %q", p, b, err, text)
		}
	}
}

// What somebody else owns stays closed, and is an error.
func TestClosedBySomebodyElse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("giving a file to somebody else takes root")
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", nil, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir+"/f", 54321, 54321); err != nil {
		t.Skipf("root here cannot give a file away: %v", err)
	}
	if _, err := disclose(open(t, dir), "f"); err != unix.EACCES {
		t.Errorf("got %v, want EACCES", err)
	}
	if err := os.Symlink("f", dir+"/l"); err != nil {
		t.Fatal(err)
	}
	if _, err := disclose(open(t, dir), "l"); err != unix.EACCES {
		t.Errorf("a link: got %v, want EACCES", err)
	}
}
