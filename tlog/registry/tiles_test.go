package registry_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// Only files that have a name of tlog-tiles are served, and only regular ones.
func TestTilesAreFilesOfTheLog(t *testing.T) {
	c := newCast(t)
	dir := c.folder(t)
	s := c.open(t, c.openLog(t, dir))
	add(t, s, c.seal("head"))
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, filepath.Join(dir, "tile", "0", "777")); err != nil {
		t.Fatal(err)
	}
	url, _ := serve(t, s, registry.HandlerOptions{Dir: dir})
	a, b := ask(t, "GET", url+"/tile/0/777", "", nil)
	if a.StatusCode == 200 || bytes.Contains(b, []byte("secret")) {
		t.Errorf("a link was followed: %d %q", a.StatusCode, b)
	}
	good := map[string]bool{"0/000": true, "63/x001/x234/067": true, "0/x001/000.p/255": true, "entries/000": true, "entries/999.p/1": true}
	for _, p := range []string{"0/../000", "0/%2e%2e/000", "00/000", "64/000", "0/000.p/0", "0/000.p/256", "0/000.p/01", "0/0", "0/0000", "0/x000/001", "0/001/002", "entries/", "data/000", "-1/000",
		"0/000.p", "0/.p/1", "entries/.p", "entries/000/", "0//000", "entries/x001", "0/" + strings.Repeat("x001/", 20) + "001"} {
		good[p] = false
	}
	for p, want := range good {
		path, ok := registry.ParseTile(p)
		if ok != want || ok && path != "tile/"+p {
			t.Errorf("%s: got %q, %v, want %v", p, path, ok, want)
		}
	}
}

// A log without a folder makes its entry bundles itself: the same bytes.
func TestBundlesFromTheLog(t *testing.T) {
	c := newCast(t)
	dir := c.folder(t)
	s := c.open(t, c.openLog(t, dir))
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() { add(t, s, c.seal(fmt.Sprint("head ", i))) })
	}
	wg.Wait()
	static, _ := serve(t, s, registry.HandlerOptions{Dir: dir})
	made, _ := serve(t, s, registry.HandlerOptions{})
	for path, status := range map[string]int{"/tile/entries/000": 200, "/tile/entries/001.p/44": 200, "/tile/entries/000.p/7": 200, "/tile/entries/001": 404, "/tile/entries/001.p/45": 404,
		"/tile/entries/x999/x999/x999/999": 404, "/tile/0/000": 404} {
		a, got := ask(t, "GET", made+path, "", nil)
		if a.StatusCode != status {
			t.Errorf("%s: got %d, want %d", path, a.StatusCode, status)
		}
		if status != 200 {
			continue
		}
		if a, want := ask(t, "GET", static+path, "", nil); a.StatusCode == 200 && !bytes.Equal(got, want) {
			t.Errorf("%s: the bundle differs from the file", path)
		}
	}
}

func FuzzParseTile(f *testing.F) {
	for _, s := range []string{"0/000", "entries/x001/x234/067.p/8", "63/x001/000", ".p/1", "0/000.p"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if path, ok := registry.ParseTile(s); ok && (path != "tile/"+s || strings.Contains(path, "..")) {
			t.Errorf("%q was read as %q", s, path)
		}
	})
}
