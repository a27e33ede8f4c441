package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"

	"github.com/cleanrun-dev/cleanrun/surface"
)

// An entry of an archive: a name that ends in / is a folder, "->" a link, "=>" a hard
// link, "|" a pipe.
type entry struct{ name, content string }

func pack(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: 0o644, ModTime: time.Unix(1000, 0), Typeflag: tar.TypeReg, Size: int64(len(e.content))}
		body := e.content
		for prefix, kind := range map[string]byte{"->": tar.TypeSymlink, "=>": tar.TypeLink, "|": tar.TypeFifo} {
			if rest, ok := strings.CutPrefix(e.content, prefix); ok {
				h.Typeflag, h.Linkname, h.Size, body = kind, rest, 0, ""
			}
		}
		if strings.HasSuffix(e.name, "/") {
			h.Typeflag, h.Size, body = tar.TypeDir, 0, ""
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func file(t testing.TB, b []byte) *Source {
	t.Helper()
	p := filepath.Join(t.TempDir(), "a.tar")
	if err := os.WriteFile(p, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return Tar(p)
}

// img writes an image of these layers into a layout and opens it.
func img(t testing.TB, labels map[string]string, layers ...[]byte) (*Source, v1.Image, string) {
	t.Helper()
	var image v1.Image = empty.Image
	for _, l := range layers {
		var err error
		if image, err = mutate.AppendLayers(image, static.NewLayer(l, types.OCIUncompressedLayer)); err != nil {
			t.Fatal(err)
		}
	}
	cf, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	cf = cf.DeepCopy()
	cf.Config.Labels = labels
	if image, err = mutate.ConfigFile(image, cf); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err == nil {
		err = p.AppendImage(image)
	}
	if err != nil {
		t.Fatal(err)
	}
	s, err := Layout(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, image, dir
}

func ask(t testing.TB, s surface.Source, l surface.Location, m surface.Matcher, scope surface.Scope, limits surface.Limits) (surface.Result, *surface.Observation) {
	t.Helper()
	c, err := surface.NewCondition(l, m)
	if err != nil {
		t.Fatal(err)
	}
	o, err := surface.Observe(context.Background(), s, l, scope, limits)
	if err != nil {
		t.Fatal(err)
	}
	r, err := surface.Judge(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, o
}

func exact(p string) surface.Location { return surface.Location{Path: p} }
func glob(p string) surface.Location  { return surface.Location{Path: p, Glob: true} }

func contains(s string) surface.Matcher { return surface.Matcher{Kind: surface.Contains, Text: s} }

func want(t *testing.T, name string, r surface.Result, outcome surface.Outcome, reasons ...string) {
	t.Helper()
	var got []string
	for _, g := range r.Reasons {
		got = append(got, strings.TrimSpace(fmt.Sprint(g.Reason, " ", g.Location)))
	}
	if r.Outcome != outcome || !slices.Equal(got, reasons) {
		t.Errorf("%s: got %v %q, want %v %q", name, r.Outcome, got, outcome, reasons)
	}
}

func TestTar(t *testing.T) {
	b := pack(t, entry{"./out/", ""}, entry{"./out/a.txt", "old secret"}, entry{"/abs.txt", "secret"}, entry{"out/a.txt", "new"}, entry{"out/pipe", "|"},
		entry{"in", "->out/a.txt"}, entry{"away", "->/etc/passwd"}, entry{"up", "->../x"}, entry{"gone", "->nothing"}, entry{"dir", "->out"}, entry{"hard", "=>out/a.txt"},
		entry{"n\nl\xff", "secret"}, entry{"loop", "->loop"}, entry{".wh.out", "just a name"})
	for name, packed := range map[string][]byte{"plain": b, "gzip": gz(t, b), "zstd": zst(t, b)} {
		s := file(t, packed)
		for _, c := range []struct {
			at      surface.Location
			text    string
			outcome surface.Outcome
			reasons []string
		}{
			{exact("out/a.txt"), "new", surface.True, nil}, {exact("out/a.txt"), "secret", surface.False, nil}, {exact("abs.txt"), "secret", surface.True, nil},
			{exact("in"), "new", surface.True, nil}, {exact("dir/a.txt"), "new", surface.True, nil}, {exact("hard"), "new", surface.True, nil}, {exact("n\nl\xff"), "secret", surface.True, nil},
			{exact("nothing"), "x", surface.False, nil}, {exact("out/a.txt/below"), "x", surface.False, nil}, {exact(".wh.out"), "just", surface.True, nil},
			{exact("away"), "root", surface.Undetermined, []string{"link-outside away"}}, {exact("up"), "x", surface.Undetermined, []string{"link-outside up"}},
			{exact("gone"), "x", surface.Undetermined, []string{"link-dangling gone"}}, {exact("loop"), "x", surface.Undetermined, []string{"link-dangling loop"}},
			{exact("out/pipe"), "x", surface.Undetermined, []string{"not-a-file out/pipe"}}, {exact("out"), "x", surface.Undetermined, []string{"not-a-file out"}},
			{glob("out/*.txt"), "new", surface.True, nil}, {glob("out/*.txt"), "old", surface.False, nil}, {glob("d*/*"), "old", surface.Undetermined, []string{"link-not-followed dir"}},
		} {
			r, o := ask(t, s, c.at, contains(c.text), surface.Scope{}, surface.DefaultLimits)
			want(t, fmt.Sprintf("%s %v %s", name, c.at, c.text), r, c.outcome, c.reasons...)
			if sum := sha256.Sum256(packed); o.Source.Version != fmt.Sprintf("sha256:%x", sum) {
				t.Errorf("%s: got version %s", name, o.Source.Version)
			}
		}
	}
}

func gz(t testing.TB, b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	w.Close()
	return out.Bytes()
}

func zst(t testing.TB, b []byte) []byte {
	w, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return w.EncodeAll(b, nil)
}

// What is wrong with an archive is never a no.
func TestTarThatIsNotWhole(t *testing.T) {
	b := pack(t, entry{"a", "x"}, entry{"b", strings.Repeat("y", 2000)})
	limits := surface.DefaultLimits
	limits.Total = 2048
	few := surface.DefaultLimits
	few.Entries = 1
	for name, c := range map[string]struct {
		b       []byte
		limits  surface.Limits
		reasons []string
	}{
		"cut":                     {b[:1600], surface.DefaultLimits, []string{"source-failed"}},
		"cut gzip":                {gz(t, b)[:60], surface.DefaultLimits, []string{"source-failed"}},
		"no tar":                  {bytes.Repeat([]byte("no tar "), 200), surface.DefaultLimits, []string{"source-failed"}},
		"a second archive behind": {append(bytes.Clone(b), pack(t, entry{"a", "secret"})...), surface.DefaultLimits, []string{"listing-failed"}},
		"a name that climbs":      {pack(t, entry{"a", "x"}, entry{"../a", "secret"}), surface.DefaultLimits, []string{"unsafe-name"}},
		"a member behind a link":  {pack(t, entry{"d", "->e"}, entry{"d/f", "secret"}), surface.DefaultLimits, []string{"link-dangling d", "link-not-followed d/f"}},
		"a member below a file":   {pack(t, entry{"d", "x"}, entry{"d/f", "secret"}), surface.DefaultLimits, []string{"unsafe-name d/f"}},
		"budget of bytes":         {b, limits, []string{"total-limit"}},
		"budget of bytes, packed": {gz(t, b), limits, []string{"total-limit"}},
		"budget of entries":       {b, few, []string{"entry-limit"}},
		"a bomb":                  {gz(t, pack(t, entry{"z", strings.Repeat("\x00", 1<<22)})), limits, []string{"total-limit"}},
		"a hard link to nothing":  {pack(t, entry{"b", "=>gone"}), surface.DefaultLimits, []string{"link-dangling b", "not-a-file b"}},
	} {
		r, _ := ask(t, file(t, c.b), glob("?"), contains("secret"), surface.Scope{}, c.limits)
		want(t, name, r, surface.Undetermined, c.reasons...)
	}
	r, _ := ask(t, Tar(filepath.Join(t.TempDir(), "gone.tar")), exact("a"), contains("x"), surface.Scope{}, surface.DefaultLimits)
	want(t, "no file", r, surface.Undetermined, "source-unavailable")
	r, _ = ask(t, file(t, pack(t, entry{"a", "x"})), exact("b"), contains("x"), surface.Scope{}, surface.DefaultLimits)
	want(t, "whole", r, surface.False)
}

func TestLayers(t *testing.T) {
	s, _, dir := img(t, map[string]string{"team": "red"},
		pack(t, entry{"keep", "secret"}, entry{"gone", "secret"}, entry{"dir/a", "secret"}, entry{"dir/b", "secret"}, entry{"full/x", "secret"}, entry{"lib", "->usr/lib"}, entry{"usr/lib/l", "deep"}),
		pack(t, entry{".wh.gone", ""}, entry{"dir/.wh.a", ""}, entry{"full/.wh..wh..opq", ""}, entry{"full/y", "new"}),
		pack(t, entry{"gone", "back"}, entry{"top", "->/usr/lib/l"}))
	for _, c := range []struct {
		at      surface.Location
		text    string
		outcome surface.Outcome
	}{
		{exact("keep"), "secret", surface.True}, {exact("gone"), "secret", surface.False}, {exact("gone"), "back", surface.True}, {exact("dir/a"), "secret", surface.False},
		{exact("dir/b"), "secret", surface.True}, {glob("full/*"), "secret", surface.False}, {exact("full/y"), "new", surface.True}, {exact("lib/l"), "deep", surface.True},
		{exact("top"), "deep", surface.True}, // an image's root is its /
	} {
		r, o := ask(t, s, c.at, contains(c.text), surface.Scope{}, surface.DefaultLimits)
		want(t, fmt.Sprint(c.at, c.text), r, c.outcome)
		if !strings.HasPrefix(o.Source.Version, "sha256:") || o.Source.Kind != "oci" {
			t.Errorf("got source %+v", o.Source)
		}
	}
	for value, outcome := range map[string]surface.Outcome{"red": surface.True, "blue": surface.False} {
		r, o := ask(t, s, exact("keep"), contains("secret"), surface.Scope{Labels: []surface.Label{{Name: "team", Value: value}}}, surface.DefaultLimits)
		want(t, "label "+value, r, outcome)
		if len(o.NotApplied) > 0 || (outcome == surface.False) != (len(o.Outside) == 1) {
			t.Errorf("label %s: got %+v", value, o)
		}
	}
	// A whiteout hides lower layers, never its own.
	own, _, _ := img(t, nil, pack(t, entry{"d/f", "below"}), pack(t, entry{".wh.d", ""}, entry{"d/g", "own"}))
	r, o := ask(t, own, glob("d/*"), contains("below"), surface.Scope{}, surface.DefaultLimits)
	want(t, "whiteout of its own layer", r, surface.False)
	if len(o.Entries) != 1 || o.Entries[0].Text != "own" {
		t.Errorf("got %+v, want d/g alone", o.Entries)
	}
	// A layer whose bytes are others than its digest says is no layer of the image.
	blobs, err := filepath.Glob(filepath.Join(dir, "blobs", "sha256", "*"))
	if err != nil || len(blobs) < 5 {
		t.Fatalf("got %d blobs, %v", len(blobs), err)
	}
	changed := 0
	for _, p := range blobs {
		b, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(b, []byte("secret")); i >= 0 {
			changed++
			b[i] ^= 1
			if err := os.WriteFile(p, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	r, _ = ask(t, s, exact("keep"), contains("tecret"), surface.Scope{}, surface.DefaultLimits)
	want(t, "changed layer", r, surface.Undetermined, "source-failed")
	if changed != 1 {
		t.Errorf("changed %d blobs", changed)
	}
}

func TestLayoutRefuses(t *testing.T) {
	_, image, dir := img(t, nil, pack(t, entry{"a", "x"}))
	p, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	other, err := mutate.AppendLayers(image, static.NewLayer(pack(t, entry{"b", "y"}), types.OCIUncompressedLayer))
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(other, layout.WithAnnotations(map[string]string{refName: "two"})); err != nil {
		t.Fatal(err)
	}
	if _, err := Layout(dir, ""); err == nil || !strings.Contains(err.Error(), "got 2 images") || !strings.Contains(err.Error(), "two") {
		t.Errorf("two images, none named: %v", err)
	}
	if _, err := Layout(dir, "three"); err == nil || !strings.Contains(err.Error(), "got 0 images") {
		t.Errorf("no such image: %v", err)
	}
	d, err := other.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"two", d.String()} {
		s, err := Layout(dir, ref)
		if err != nil {
			t.Fatal(err)
		}
		r, _ := ask(t, s, exact("b"), contains("y"), surface.Scope{}, surface.DefaultLimits)
		want(t, ref, r, surface.True)
		s.Close()
	}
	manifest := filepath.Join(dir, "blobs", "sha256", d.Hex)
	b, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(manifest, append(b, ' '), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Layout(dir, "two"); err == nil || !strings.Contains(err.Error(), "the layout was changed") {
		t.Errorf("changed manifest: %v", err)
	}
	if _, err := Layout(t.TempDir(), ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no layout: %v", err)
	}
}

// A time in an archive is its packer's: one outside the window proves nothing.
func TestTarTimes(t *testing.T) {
	s := file(t, pack(t, entry{"a", "x"})) // at second 1000
	for name, c := range map[string]struct {
		w       surface.Window
		text    string
		outcome surface.Outcome
		reasons []string
	}{
		"in it": {surface.Window{From: 0, To: 2e12}, "x", surface.True, nil}, "before it": {surface.Window{From: 2e12, To: 3e12}, "x", surface.Undetermined, []string{"time-unproven a"}},
		"another content": {surface.Window{From: 2e12, To: 3e12}, "y", surface.False, nil},
	} {
		r, _ := ask(t, s, exact("a"), contains(c.text), surface.Scope{Window: &c.w}, surface.DefaultLimits)
		want(t, name, r, c.outcome, c.reasons...)
	}
}
