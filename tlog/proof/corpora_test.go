package proof_test

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/merkle"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// A vector is a file of transparency-dev/merkle's testdata, of any of its folders.
type vector struct {
	LeafIdx, TreeSize, Size1, Size2, Start, End, Size uint64
	Root, LeafHash, Root1, Root2                      []byte
	Proof                                             [][]byte
	WantErr                                           bool
}

// hash turns bytes of another length into a hash that is nothing else's, so that
// it is the check which refuses them and not the type.
func hash(b []byte, what string) [32]byte {
	if len(b) == 32 {
		return [32]byte(b)
	}
	return sha256.Sum256(append([]byte(what), b...))
}

func (v vector) path() (path [][32]byte) {
	for _, p := range v.Proof {
		path = append(path, hash(p, "path"))
	}
	return path
}

// All vectors of the four folders get what they want.
func TestMerkleCorpus(t *testing.T) {
	root := os.Getenv("CLEANRUN_CORPORA")
	if root == "" {
		root = filepath.Join("..", "..", "..", "shared", "corpora")
	}
	root = filepath.Join(root, "merkle")
	if _, err := os.Stat(root); err != nil {
		t.Skipf("public corpus merkle is not there (%v); set CLEANRUN_CORPORA", err)
	}
	differ := errors.New("another root")
	total := 0
	for folder, c := range map[string]struct {
		cases, accepted int
		check           func(v vector) error
	}{
		"inclusion": {98, 6, func(v vector) error {
			return proof.Inclusion(v.LeafIdx, v.TreeSize, hash(v.LeafHash, "leaf"), v.path(), hash(v.Root, "root"))
		}},
		"consistency": {98, 6, func(v vector) error {
			return proof.Consistency(v.Size1, v.Size2, v.path(), hash(v.Root1, "root"), hash(v.Root2, "root"))
		}},
		"subtreeinclusion": {204, 12, func(v vector) error {
			got, err := merkle.SubtreeInclusionRoot(v.LeafIdx, v.Start, v.End, hash(v.LeafHash, "leaf"), v.path())
			if err == nil && got != hash(v.Root, "root") {
				return differ
			}
			return err
		}},
		"subtreeconsistency": {118, 12, func(v vector) error {
			subtree, tree, err := merkle.SubtreeConsistencyRoots(v.Start, v.End, v.Size, v.path(), hash(v.Root1, "root"))
			if err == nil && (subtree != hash(v.Root1, "root") || v.Start != v.End && tree != hash(v.Root2, "root")) {
				return differ
			}
			return err
		}},
	} {
		cases, accepted := 0, 0
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".json" {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			var v vector
			if err := json.Unmarshal(data, &v); err != nil {
				return err
			}
			got := c.check(v)
			if (got != nil) != v.WantErr {
				t.Errorf("%s: got %v, want an error: %v", path, got, v.WantErr)
			}
			cases++
			if got == nil {
				accepted++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if cases != c.cases || accepted != c.accepted {
			t.Errorf("%s: got %d vectors, %d of them accepted, want %d and %d", folder, cases, accepted, c.cases, c.accepted)
		}
		total += cases
	}
	if total != 518 {
		t.Errorf("got %d vectors, want 518", total)
	}
	// What the empty subtree proves about a tree: nothing.
	if _, tree, err := merkle.SubtreeConsistencyRoots(3, 3, 8, nil, sha256.Sum256(nil)); err != nil || tree != ([32]byte{}) {
		t.Errorf("the empty subtree: got tree %x, %v", tree, err)
	}
}
