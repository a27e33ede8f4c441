//go:build linux || darwin

package surface

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestWithoutHandlePathNothingIsConfined(t *testing.T) {
	s := &Folder{Path: tree(t, map[string]string{"f": "x"}), lies: func(*os.File) (string, error) { return "", errors.New("not told here") }}
	want(t, judge(t, condition(t, exact("f"), None, ""), observe(t, s, exact("f"), DefaultLimits)), Undetermined, "unconfined f 1")
}

func TestStrictlyBelow(t *testing.T) {
	for _, c := range []struct {
		p, folder string
		want      bool
	}{{"/a/b", "/a", true}, {"/a", "/a", false}, {"/ab", "/a", false}, {"/a/", "/a", false}, {"/x", "/", true}, {"/", "/", false}, {"", "/a", false}, {"/a/b", "", false}, {"/b/a", "/a", false}} {
		p, folder := filepath.FromSlash(c.p), filepath.FromSlash(c.folder)
		if got := strictlyBelow(p, folder); got != c.want {
			t.Errorf("%q below %q: got %v", p, folder, got)
		}
	}
}

// Each system has a way to ask a handle where it lies, and it tells the truth here.
func TestHandlePath(t *testing.T) {
	root := tree(t, map[string]string{"a/f": "x"})
	f, err := os.Open(filepath.Join(root, "a", "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Rename(filepath.Join(root, "a"), filepath.Join(root, "b")); err != nil {
		t.Fatal(err)
	}
	real, err := filepath.EvalSymlinks(root)
	if err != nil {
		t.Fatal(err)
	}
	if p, err := handlePath(f); err != nil || !strings.HasSuffix(filepath.ToSlash(p), filepath.ToSlash(filepath.Join(filepath.Base(real), "b", "f"))) {
		t.Errorf("got %q %v on %s", p, err, runtime.GOOS)
	}
}
