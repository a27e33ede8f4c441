package scope

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

var testKey = PathKey{1, 2, 3}

func testRoots() []Root {
	roots := slices.Concat(SystemRoots(), KernelRoots(), []Root{
		{Path: "/work", Mode: WriteTree, Class: Workspace},
		{Path: "/work/vendor", Mode: ReadTree, Class: Grant},
		{Path: "/work/vendor/lock", Mode: WriteOne, Class: Grant},
		{Path: "/work/answer", Mode: ReadOne, Class: Grant},
		{Path: "/srv/data.csv", Mode: ReadOne, Class: Grant},
		{Path: "/home/u", Mode: WriteTree, Class: Private},
		{Path: "/home/u/go", Mode: ReadTree, Class: Toolchain},
		{Path: "/home/u/bench", Mode: NoTree, Class: Closed},
		{Path: "/home/u/bench/public", Mode: ReadTree, Class: Grant},
	})
	SortRoots(testKey, roots)
	return roots
}

// The digests by their definition, with the standard library only.
func TestDigestDefinition(t *testing.T) {
	mac := hmac.New(sha256.New, testKey[:])
	mac.Write([]byte("cleanrun/path-key/v1\x00/work/a"))
	key := [32]byte(mac.Sum(nil))
	if got := Key(testKey, "/work/a"); got != key {
		t.Errorf("Key: got %x, want %x", got, key)
	}
	want := sha256.Sum256(slices.Concat([]byte("cleanrun/path/v1\x00"), key[:], []byte("/work/a")))
	if got := Digest(key, "/work/a"); got != want {
		t.Errorf("Digest: got %x, want %x", got, want)
	}
	long := "/" + strings.Repeat("a", 2000)
	want = sha256.Sum256(slices.Concat([]byte("cleanrun/path/v1\x00"), key[:], []byte(long)))
	if got := Digest(key, long); got != want {
		t.Errorf("Digest of a long path: got %x, want %x", got, want)
	}
}

// decide runs a path through hasher and table as recorder and verifier do.
type decider struct {
	t     *testing.T
	h     *Hasher
	table *Table
}

func newDecider(t *testing.T, roots []Root) *decider {
	t.Helper()
	table, err := NewTable(roots)
	if err != nil {
		t.Fatal(err)
	}
	return &decider{t, NewHasher(testKey), table}
}

func (d *decider) access(p string) (Access, Class) {
	d.t.Helper()
	ref, fresh, err := d.h.Path(p)
	if err != nil {
		d.t.Fatal(err)
	}
	for _, n := range fresh {
		if err := d.table.AddDir(n.Number, n.Ref.Dir, n.Ref.Digest); err != nil {
			d.t.Fatal(err)
		}
	}
	a, c, err := d.table.Access(ref.Dir, ref.Digest)
	if err != nil {
		d.t.Fatal(err)
	}
	return a, c
}

// naive decides on plaintext: the longest root that is the path, or a tree
// above it.
func naive(roots []Root, p string) (Access, Class) {
	best := -1
	for i, r := range roots {
		tree := r.Mode == ReadTree || r.Mode == WriteTree || r.Mode == NoTree
		above := strings.HasPrefix(p, strings.TrimSuffix(r.Path, "/")+"/")
		if (p == r.Path || tree && above) && (best < 0 || len(r.Path) > len(roots[best].Path)) {
			best = i
		}
	}
	if best < 0 {
		return None, 0
	}
	a := map[Mode]Access{ReadTree: Read, WriteTree: Write, ReadOne: Read, WriteOne: Write, NoTree: None}[roots[best].Mode]
	return a, roots[best].Class
}

func TestAccess(t *testing.T) {
	d := newDecider(t, testRoots())
	for _, c := range []struct {
		path  string
		want  Access
		class Class
	}{
		{"/", Read, System},
		{"/srv", None, 0},
		{"/srv/data.csv", Read, Grant},
		{"/srv/data.csv2", None, 0},
		{"/srv/data.csv/x", None, 0},
		{"/usr", Read, System},
		{"/usr/lib/x", Read, System},
		{"/usrlocal", None, 0},
		{"/work", Write, Workspace},
		{"/work/a/b/c", Write, Workspace},
		{"/work/vendor/a/b", Read, Grant},
		{"/work/vendor/lock", Write, Grant},
		{"/work/vendor/lock/x", Read, Grant},
		{"/work/answer", Read, Grant},
		{"/work/answers", Write, Workspace},
		{"/home/u/go/x", Read, Toolchain},
		{"/home/u/.cache", Write, Private},
		{"/home", None, 0},
		{"/home/u/bench", None, 0},
		{"/home/u/bench/tests/x", None, 0},
		{"/home/u/bench/public/x", Read, Grant},
		{"/home/u/bench2", Write, Private},
		{"/dev/null", Write, Kernel},
		{"/sys/x", Read, Kernel},
	} {
		a, class := d.access(c.path)
		if a != c.want || a != None && class != c.class {
			t.Errorf("%s: got %v, class %d, want %v, %d", c.path, a, class, c.want, c.class)
		}
		if n, nc := naive(testRoots(), c.path); n != c.want || n != None && nc != c.class {
			t.Errorf("%s: the oracle says %v, class %d", c.path, n, nc)
		}
	}
}

// TestRT55_NameIsNoPrefix: /work gives nothing to /workspace2, nor the reverse.
func TestRT55_NameIsNoPrefix(t *testing.T) {
	roots := []Root{{Path: "/", Mode: ReadOne, Class: System}, {Path: "/work", Mode: WriteTree, Class: Workspace}}
	SortRoots(testKey, roots)
	d := newDecider(t, roots)
	if a, _ := d.access("/work/hidden"); Judge(Write, a, Succeeded, false) {
		t.Fatal("positive control: a write in /work is out of scope")
	}
	for _, p := range []string{"/workspace2", "/workspace2/hidden", "/wor", "/work2", "/work.bak/x", "/work\x01/x", "/w/work/x"} {
		if a, _ := d.access(p); a != None || !Judge(Read, a, Succeeded, false) {
			t.Errorf("%q: got access %v, want none and out of scope", p, a)
		}
	}
}

// Many random paths over few names: digests decide as plaintext does.
func TestAccessEqualsNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	names := []string{"a", "b", "ab"}
	randomPath := func() string {
		p := ""
		for range 1 + rng.IntN(4) {
			p += "/" + names[rng.IntN(len(names))]
		}
		return p
	}
	for range 200 {
		roots := []Root{{Path: "/", Mode: ReadOne, Class: System}}
		for range rng.IntN(6) {
			p := randomPath()
			if !slices.ContainsFunc(roots, func(r Root) bool { return r.Path == p }) {
				r := Root{Path: p, Mode: Mode(rng.IntN(5)), Class: []Class{Workspace, Grant, Private}[rng.IntN(3)]}
				if r.Mode == NoTree {
					r.Class = Closed
				}
				roots = append(roots, r)
			}
		}
		SortRoots(testKey, roots)
		d := newDecider(t, roots)
		for range 50 {
			p := randomPath()
			a, c := d.access(p)
			if na, nc := naive(roots, p); a != na || a != None && c != nc {
				t.Fatalf("%s under %v: got %v, class %d, want %v, %d", p, roots, a, c, na, nc)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	type in struct {
		need, have Access
		result     Result
		hidden     bool
	}
	out := map[in]bool{}
	// The three cases of spec/journal.md, "Scope", spelled out.
	for _, hidden := range []bool{false, true} {
		out[in{Read, None, Succeeded, hidden}] = true
		out[in{Write, None, Succeeded, hidden}] = true
		out[in{Write, Read, Succeeded, hidden}] = true
		out[in{Read, None, Denied, hidden}] = true
		out[in{Write, None, Denied, hidden}] = true
	}
	out[in{Read, None, Absent, true}] = true
	out[in{Write, None, Absent, true}] = true
	n := 0
	for need := None; need <= Write; need++ {
		for have := None; have <= Write; have++ {
			for result := Succeeded; result <= Failed; result++ {
				for _, hidden := range []bool{false, true} {
					n++
					i := in{need, have, result, hidden}
					if got := Judge(need, have, result, hidden); got != out[i] {
						t.Errorf("%+v: got %v, want %v", i, got, out[i])
					}
				}
			}
		}
	}
	if n != 72 {
		t.Fatalf("got %d cases, want 72", n)
	}
}

func TestResultOf(t *testing.T) {
	want := map[int32]Result{0: Succeeded, 1: Denied, 13: Denied, 18: Denied, 30: Denied, 2: Absent, 20: Absent, 36: Absent, 40: Absent}
	for errno := int32(-2); errno < 200; errno++ {
		w, ok := want[errno]
		if !ok {
			w = Failed
		}
		if got := ResultOf(errno); got != w {
			t.Errorf("errno %d: got %v, want %v", errno, got, w)
		}
	}
}

func TestCheckRoots(t *testing.T) {
	if err := CheckRoots(testRoots()); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	for name, change := range map[string]func([]Root) []Root{
		"none":               func([]Root) []Root { return nil },
		"no root directory":  func(r []Root) []Root { return r[1:] },
		"unsorted":           func(r []Root) []Root { r[2], r[3] = r[3], r[2]; return r },
		"repeated":           func(r []Root) []Root { return slices.Insert(r, 3, r[3]) },
		"relative":           func(r []Root) []Root { r[len(r)-1].Path = "work"; return r },
		"not clean":          func(r []Root) []Root { r[len(r)-1].Path = "/work/../x"; return r },
		"trailing slash":     func(r []Root) []Root { r[len(r)-1].Path += "/"; return r },
		"NUL":                func(r []Root) []Root { r[len(r)-1].Path += "\x00"; return r },
		"not UTF-8":          func(r []Root) []Root { r[len(r)-1].Path += "\xff"; return r },
		"too long":           func(r []Root) []Root { r[len(r)-1].Path += strings.Repeat("x", MaxPath); return r },
		"unknown mode":       func(r []Root) []Root { r[len(r)-1].Mode = NoTree + 1; return r },
		"unknown class":      func(r []Root) []Root { r[len(r)-1].Class = Closed + 1; return r },
		"foreign system":     func(r []Root) []Root { r[len(r)-1].Class = System; return r },
		"system tree at /":   func(r []Root) []Root { r[0].Mode = ReadTree; return r },
		"foreign kernel":     func(r []Root) []Root { r[len(r)-1].Class = Kernel; return r },
		"closed read tree":   func(r []Root) []Root { r[len(r)-1].Class = Closed; return r },
		"private no tree":    func(r []Root) []Root { r[len(r)-1].Mode = NoTree; return r },
		"writable toolchain": func(r []Root) []Root { r[len(r)-1].Class, r[len(r)-1].Mode = Toolchain, WriteTree; return r },
		"too many": func(r []Root) []Root {
			for i := range MaxRoots {
				r = append(r, Root{Path: fmt.Sprintf("/x/%05d", i), Class: Grant})
			}
			return r
		},
	} {
		if err := CheckRoots(change(testRoots())); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
}

func TestAddDir(t *testing.T) {
	table, err := NewTable(testRoots())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name           string
		number, parent uint32
		digest         [32]byte
		ok             bool
	}{
		{"first", 1, 0, [32]byte{1}, true},
		{"skips a number", 3, 0, [32]byte{2}, false},
		{"number again", 1, 0, [32]byte{2}, false},
		{"parent unknown", 2, 5, [32]byte{2}, false},
		{"parent itself", 2, 2, [32]byte{2}, false},
		{"directory again", 2, 1, [32]byte{1}, false},
		{"/ again", 2, 1, Digest(Key(testKey, "/"), "/"), false},
		{"second", 2, 1, [32]byte{2}, true},
	} {
		before := table.Dirs()
		err := table.AddDir(c.number, c.parent, c.digest)
		if (err == nil) != c.ok {
			t.Errorf("%s: got %v, want ok %v", c.name, err, c.ok)
		}
		if err != nil && table.Dirs() != before {
			t.Errorf("%s: a refused directory changed the table", c.name)
		}
	}
	if _, _, err := table.Access(3, [32]byte{}); err == nil {
		t.Error("undeclared directory: got no error")
	}
}

func TestHasherDeclaresOnceParentsFirst(t *testing.T) {
	h := NewHasher(testKey)
	var declared []string
	for _, p := range []string{"/a/b/c", "/a/b/d", "/a/x/y/z", "/a", "/", "/a/b/c", "/q"} {
		_, fresh, err := h.Path(p)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range fresh {
			declared = append(declared, n.Path)
			if int(n.Number) != len(declared) {
				t.Errorf("%s: got number %d, want %d", n.Path, n.Number, len(declared))
			}
			if n.Ref.Digest != Digest(Key(testKey, n.Path), n.Path) {
				t.Errorf("%s: got another digest than Digest", n.Path)
			}
		}
	}
	if want := []string{"/a", "/a/b", "/a/x", "/a/x/y"}; !slices.Equal(declared, want) {
		t.Errorf("got %q, want %q", declared, want)
	}
	for _, p := range []string{"", "a", "/a/", "/a//b", "/a/../b", "/a/./b", "/\x00", "/\xff"} {
		if _, _, err := h.Path(p); err == nil {
			t.Errorf("%q: got no error", p)
		}
	}
}

func BenchmarkHasherPath(b *testing.B) {
	h := NewHasher(testKey)
	paths := make([]string, 1000)
	for i := range paths {
		paths[i] = fmt.Sprintf("/usr/lib/python3/dist-packages/module%d/file%d.py", i%10, i)
	}
	i := 0
	for b.Loop() {
		if _, _, err := h.Path(paths[i%len(paths)]); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
