package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/cleanrun-dev/cleanrun/surface"
)

// The oracle is the library that flattens images for registries' clients.
func TestLayersAgainstOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	files, folders := []string{"f", "g", "a/x", "a/y", "b/x", "a/z/u", "c/d/e"}, []string{"a", "b", "c", "c/d", "a/z"}
	seen := 0
	for round := range 60 {
		var layers [][]byte
		for i := range 1 + r.IntN(4) {
			var list []entry
			used := map[string]bool{}
			for range 1 + r.IntN(6) {
				n, kind := files[r.IntN(len(files))], r.IntN(4)
				if kind == 0 {
					n = folders[r.IntN(len(folders))]
				}
				clash := false
				for u := range used { // the library lets a whiteout hide what its own layer adds
					clash = clash || n == u || strings.HasPrefix(u, n+"/") && kind == 0 || strings.HasPrefix(n, u+"/")
				}
				if clash {
					continue
				}
				used[n] = true
				if dir, base := filepath.Split(n); kind < 2 {
					list = append(list, entry{dir + ".wh." + base, ""})
				} else {
					list = append(list, entry{n, fmt.Sprintf("layer %d of round %d in %s", i, round, n)})
				}
			}
			layers = append(layers, pack(t, list...))
		}
		s, image, _ := img(t, nil, layers...)
		flat := mutate.Extract(image)
		expect := map[string]string{}
		for tr := tar.NewReader(flat); ; {
			h, err := tr.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if b, err := io.ReadAll(tr); err != nil {
				t.Fatal(err)
			} else if h.Typeflag == tar.TypeReg {
				expect[h.Name] = string(b)
			}
		}
		flat.Close()
		_, o := ask(t, s, glob("**"), surface.Matcher{}, surface.Scope{}, surface.DefaultLimits)
		got := map[string]string{}
		for _, e := range o.Entries {
			got[e.Location] = e.Text
		}
		for p, text := range expect {
			if got[p] != text {
				t.Fatalf("round %d: %s holds %q, want %q; layers %v", round, p, got[p], text, len(layers))
			}
			seen++
		}
		if len(got) != len(expect) || len(o.Gaps) > 0 {
			t.Fatalf("round %d: got %v, want %v; %v", round, got, expect, o.Gaps)
		}
	}
	if seen < 60 {
		t.Errorf("got %d files in all, want a test that sees some", seen)
	}
}

// Any bytes give an observation that holds together, and a no only from a whole archive.
func FuzzTar(f *testing.F) {
	f.Add(pack(f, entry{"a/", ""}, entry{"a/b", "x"}, entry{"l", "->a/b"}, entry{"h", "=>a/b"}, entry{"a/.wh.b", ""}), true)
	f.Add(gz(f, pack(f, entry{"a", "x"})), false)
	f.Fuzz(func(t *testing.T, b []byte, layered bool) {
		s := &Source{kind: "tar", layers: []layer{{open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}}}
		if layered {
			s.kind = "oci"
		}
		limits := surface.Limits{Entries: 100, Files: 10, Read: 1 << 16, Total: 1 << 20, Text: 1 << 10}
		o, err := surface.Observe(context.Background(), s, glob("**"), surface.Scope{}, limits)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := surface.Format(o); err != nil {
			t.Fatal(err)
		}
	})
}
