package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
)

func isRule(err error, rule Rule) bool {
	var broken *RuleError
	return errors.As(err, &broken) && broken.Rule == rule
}

func testRows(n int) [][]byte {
	rows := make([][]byte, n)
	for i := range rows {
		rows[i] = fmt.Appendf(nil, "row %d", i)
	}
	return rows
}

func treeOf(rows [][]byte) *Tree {
	t := new(Tree)
	for _, r := range rows {
		t.Append(r)
	}
	return t
}

func headOf(t testing.TB, tree *Tree, size uint64) Head {
	t.Helper()
	root, err := tree.Root(size)
	if err != nil {
		t.Fatal(err)
	}
	return Head{Run: [16]byte{1}, Size: size, Root: root}
}

// Tree, accumulator and proofs agree for all small sizes.
func TestTreeAllSizes(t *testing.T) {
	const most = 40
	rows := testRows(most)
	tree := treeOf(rows)
	acc := newAccumulator()
	for size := uint64(1); size <= most; size++ {
		acc.add(rows[size-1])
		head := headOf(t, tree, size)
		if acc.root() != head.Root {
			t.Fatalf("size %d: accumulator and tree differ", size)
		}
		for i := range size {
			p, err := tree.Inclusion(i, size)
			if err != nil {
				t.Fatal(err)
			}
			if err := VerifyInclusion(head, i, rows[i], p); err != nil {
				t.Fatalf("row %d of %d: %v", i, size, err)
			}
			if i > 0 && VerifyInclusion(head, i-1, rows[i], p) == nil {
				t.Fatalf("row %d of %d passes as row %d", i, size, i-1)
			}
		}
		for older := uint64(1); older <= size; older++ {
			p, err := tree.Consistency(older, size)
			if err != nil {
				t.Fatal(err)
			}
			if err := VerifyConsistency(headOf(t, tree, older), head, p); err != nil {
				t.Fatalf("%d to %d: %v", older, size, err)
			}
		}
	}
}

// TestRT3_CutBackAndSignedAgain: a head of fewer rows, or of other rows, does
// not extend the one that was logged before.
func TestRT3_CutBackAndSignedAgain(t *testing.T) {
	rows := testRows(20)
	tree := treeOf(rows)
	logged := headOf(t, tree, 12)
	p, err := tree.Consistency(12, 20)
	if err != nil {
		t.Fatal(err)
	}
	if err := VerifyConsistency(logged, headOf(t, tree, 20), p); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	if err := VerifyConsistency(logged, headOf(t, tree, 9), nil); !isRule(err, RuleProof) {
		t.Errorf("smaller head: got %v, want rule proof", err)
	}
	other := slices.Clone(rows)
	other[5] = []byte("another row 5")
	forged := treeOf(other)
	q, err := forged.Consistency(12, 20)
	if err != nil {
		t.Fatal(err)
	}
	for name, path := range map[string][][32]byte{"true proof": p, "its own proof": q, "no proof": nil} {
		if err := VerifyConsistency(logged, headOf(t, forged, 20), path); !isRule(err, RuleProof) {
			t.Errorf("rewritten row, %s: got %v, want rule proof", name, err)
		}
	}
	if err := VerifyConsistency(logged, headOf(t, forged, 12), nil); !isRule(err, RuleProof) {
		t.Errorf("same size, other root: got %v, want rule proof", err)
	}
	foreign := headOf(t, tree, 20)
	foreign.Run = [16]byte{2}
	if err := VerifyConsistency(logged, foreign, p); !isRule(err, RuleProof) {
		t.Errorf("another run: got %v, want rule proof", err)
	}
}

// TestRT10_RowIsNoNode: 64 bytes that are two hashes of the tree are a leaf of
// their own, not the node above them.
func TestRT10_RowIsNoNode(t *testing.T) {
	rows := testRows(2)
	tree := treeOf(rows)
	head := headOf(t, tree, 2)
	a, b := LeafHash(rows[0]), LeafHash(rows[1])
	if got := rfc6962.DefaultHasher.HashChildren(a[:], b[:]); [32]byte(got) != head.Root {
		t.Fatal("positive control: the node over both leaves is not the root")
	}
	joined := slices.Concat(a[:], b[:])
	if LeafHash(joined) == head.Root {
		t.Error("a row of two hashes has the root's hash")
	}
	if err := VerifyInclusion(Head{Size: 1, Root: head.Root}, 0, joined, nil); !isRule(err, RuleProof) {
		t.Errorf("got %v, want rule proof", err)
	}
}

func TestRT11_ProofShape(t *testing.T) {
	rows := testRows(11)
	tree := treeOf(rows)
	head := headOf(t, tree, 11)
	p, err := tree.Inclusion(6, 11)
	if err != nil {
		t.Fatal(err)
	}
	if err := VerifyInclusion(head, 6, rows[6], p); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	for name, c := range map[string]struct {
		index uint64
		path  [][32]byte
	}{
		"too short":       {6, p[:len(p)-1]},
		"too long":        {6, append(slices.Clone(p), [32]byte{})},
		"none":            {6, nil},
		"index = size":    {11, p},
		"index = 2^64-1":  {1<<64 - 1, p},
		"neighbour":       {7, p},
		"hashes reversed": {6, reversed(p)},
	} {
		if err := VerifyInclusion(head, c.index, rows[6], c.path); !isRule(err, RuleProof) {
			t.Errorf("%s: got %v, want rule proof", name, err)
		}
	}
	for _, c := range [][2]uint64{{11, 11}, {3, 12}, {0, 0}} {
		if _, err := tree.Inclusion(c[0], c[1]); !isRule(err, RuleProof) {
			t.Errorf("Inclusion%v: got %v, want rule proof", c, err)
		}
	}
	for _, c := range [][2]uint64{{0, 5}, {6, 5}, {5, 12}} {
		if _, err := tree.Consistency(c[0], c[1]); !isRule(err, RuleProof) {
			t.Errorf("Consistency%v: got %v, want rule proof", c, err)
		}
	}
	if err := VerifyConsistency(Head{}, Head{}, nil); !isRule(err, RuleProof) {
		t.Errorf("sizes 0: got %v, want rule proof", err)
	}
}

func reversed(p [][32]byte) [][32]byte {
	p = slices.Clone(p)
	slices.Reverse(p)
	return p
}

// corpus returns the files of a folder of the public corpora.
func corpus(t *testing.T, folder string, least int) []string {
	t.Helper()
	top := os.Getenv("CLEANRUN_CORPORA")
	if top == "" {
		top = filepath.Join("..", "..", "shared", "corpora")
	}
	if _, err := os.Stat(top); err != nil {
		t.Skipf("no public corpora: %v; set CLEANRUN_CORPORA to their folder", err)
	}
	var files []string
	err := filepath.WalkDir(filepath.Join(top, folder), func(p string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(p) == ".json" {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < least {
		t.Fatalf("%s: got %d files, want at least %d", folder, len(files), least)
	}
	return files
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// fixed returns hashes as the API takes them; ok is false if one has another
// length, which the API cannot express.
func fixed(hashes [][]byte) (out [][32]byte, ok bool) {
	for _, h := range hashes {
		if len(h) != 32 {
			return nil, false
		}
		out = append(out, [32]byte(h))
	}
	return out, true
}

// The vectors give leaf hashes, not leaves, so both the library's call and the
// wrapper's rules are run: VerifyInclusion hashes the row itself.
func TestCorpusInclusion(t *testing.T) {
	accepted, refused := 0, 0
	for _, path := range corpus(t, "merkle/inclusion", 98) {
		var v struct {
			LeafIdx, TreeSize uint64
			Root, LeafHash    []byte
			Proof             [][]byte
			WantErr           bool
		}
		readJSON(t, path, &v)
		err := proof.VerifyInclusion(rfc6962.DefaultHasher, v.LeafIdx, v.TreeSize, v.LeafHash, v.Proof, v.Root)
		if (err != nil) != v.WantErr {
			t.Errorf("%s: got %v, want an error: %v", path, err, v.WantErr)
		}
		if err == nil {
			accepted++
		} else {
			refused++
		}
	}
	if accepted < 5 || refused < 80 {
		t.Errorf("got %d accepted and %d refused, want at least 5 and 80", accepted, refused)
	}
}

// One accepted vector has roots of 12 bytes, which a Head cannot hold: the
// library alone is asked. Size 0 is refused whatever the roots are; the library
// accepts it where the vectors do not.
func TestCorpusConsistency(t *testing.T) {
	accepted, refused, foreign := 0, 0, 0
	for _, path := range corpus(t, "merkle/consistency", 98) {
		var v struct {
			Size1, Size2 uint64
			Root1, Root2 []byte
			Proof        [][]byte
			WantErr      bool
		}
		readJSON(t, path, &v)
		roots, ok := fixed([][]byte{v.Root1, v.Root2})
		hashes, okProof := fixed(v.Proof)
		var err error
		if v.Size1 == 0 && !ok {
			roots = make([][32]byte, 2)
		}
		if v.Size1 == 0 || ok && okProof {
			err = VerifyConsistency(Head{Size: v.Size1, Root: roots[0]}, Head{Size: v.Size2, Root: roots[1]}, hashes)
		} else {
			err = proof.VerifyConsistency(rfc6962.DefaultHasher, v.Size1, v.Size2, v.Proof, v.Root1, v.Root2)
			foreign++
		}
		if (err != nil) != v.WantErr {
			t.Errorf("%s: got %v, want an error: %v", path, err, v.WantErr)
		}
		if err == nil {
			accepted++
		} else {
			refused++
		}
	}
	if accepted < 4 || refused < 80 || foreign > 40 {
		t.Errorf("got %d accepted, %d refused, %d with other hash lengths, want at least 4, at least 80, at most 40", accepted, refused, foreign)
	}
}

// VerifyInclusion against the library's own on the shapes of the corpus: the
// row is the preimage here.
func TestCorpusInclusionShapes(t *testing.T) {
	rows := testRows(64)
	tree := treeOf(rows)
	n := 0
	for _, path := range corpus(t, "merkle/inclusion", 98) {
		var v struct {
			LeafIdx, TreeSize uint64
			Proof             [][]byte
		}
		readJSON(t, path, &v)
		if v.TreeSize == 0 || v.TreeSize > 64 || v.LeafIdx >= v.TreeSize {
			continue
		}
		p, err := tree.Inclusion(v.LeafIdx, v.TreeSize)
		if err != nil {
			t.Fatal(err)
		}
		head := headOf(t, tree, v.TreeSize)
		if err := VerifyInclusion(head, v.LeafIdx, rows[v.LeafIdx], p); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		if len(v.Proof) != len(p) && VerifyInclusion(head, v.LeafIdx, rows[v.LeafIdx], make([][32]byte, len(v.Proof))) == nil {
			t.Errorf("%s: a proof of another length passes", path)
		}
		n++
	}
	if n < 40 {
		t.Errorf("got %d shapes, want at least 40", n)
	}
}

func TestHeadText(t *testing.T) {
	h := Head{Run: [16]byte{0xab, 1}, Size: 20107, Root: LeafHash([]byte("x"))}
	text := string(FormatHead(h))
	want := "cleanrun.dev/journal/ab010000000000000000000000000000\n20107\nPH6byTDck/AfppmF7yQtn56GHzxTVaokzl70tLinDMs=\n"
	if back, err := ParseHead([]byte(text)); err != nil || back != h {
		t.Fatalf("got %+v, %v, want %+v", back, err, h)
	}
	if text != want {
		t.Errorf("got %q, want %q", text, want)
	}
	origin, rest := text[:54], text[54:]
	for name, bad := range map[string]string{
		"RT12 size 0":         origin + "0" + rest[5:],
		"empty":               "",
		"no last newline":     text[:len(text)-1],
		"extension line":      text + "more\n",
		"blank line":          text + "\n",
		"CR":                  origin[:53] + "\r\n" + rest,
		"leading zero":        origin + "0" + rest,
		"plus":                origin + "+" + rest,
		"size above 64 bits":  origin + "18446744073709551616" + rest[5:],
		"upper-case run":      "cleanrun.dev/journal/AB" + text[23:],
		"short run":           "cleanrun.dev/journal/" + text[23:],
		"other origin":        "cleanrun.dev/Journal/" + text[21:],
		"RT65 stray bits":     text[:len(text)-3] + "N=\n",
		"RT65 no padding":     text[:len(text)-2] + "\n",
		"RT65 URL alphabet":   origin + rest[:6] + "-_" + rest[8:],
		"RT65 space":          origin + rest[:6] + " " + rest[6:],
		"RT65 newline inside": origin + rest[:9] + "\n" + rest[9:],
		"31 bytes":            origin + rest[:6] + rest[10:],
		"long":                text + string(make([]byte, 300)),
	} {
		if bad == text {
			t.Fatalf("%s: the fault is not there", name)
		}
		if got, err := ParseHead([]byte(bad)); !isRule(err, RuleHead) || got != (Head{}) {
			t.Errorf("%s: got %+v, %v, want rule head and no value", name, got, err)
		}
	}
}

func FuzzParseHead(f *testing.F) {
	f.Add(FormatHead(Head{Size: 1}))
	f.Fuzz(func(t *testing.T, text []byte) {
		h, err := ParseHead(text)
		if err == nil && string(FormatHead(h)) != string(text) {
			t.Fatalf("%q reads as %q", text, FormatHead(h))
		}
	})
}
