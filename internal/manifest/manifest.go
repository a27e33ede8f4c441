// Package manifest lists what a run is given before it starts: the files of the
// workspace and the prompt. Its Merkle root is bound in the sealed set and in
// the start row (spec/sealed-set.md, "Baseline").
//
// Limits: of a file's mode only the executable bit is listed; owner, times and
// extended attributes are not. The root says nothing of files that another
// process changes while Build reads them.
package manifest

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// Version of the manifest format.
const Version = "cleanrun/baseline/v1"

// MaxSize of an encoded manifest, in bytes.
const MaxSize = 256 << 20

// Type of an entry.
type Type uint8

// The types. Anything else in a workspace (devices, sockets, pipes) is refused.
const (
	Prompt Type = iota + 1 // the prompt; its path is empty, it is always there, and first
	Dir                    // a folder below the root
	File                   // a regular file
	Link                   // a symbolic link that stays inside the workspace
)

// An Entry is one path of the baseline.
type Entry struct {
	_      struct{} `cbor:",toarray"`
	Path   string   // relative to the root, slashes, clean
	Type   Type
	Exec   bool     // a file that its owner may execute
	Size   uint64   // bytes of a file or of the prompt
	SHA256 [32]byte // of a file or of the prompt, else zero
	Target string   // of a link
}

// A Manifest is sorted by path. One that Parse or Build returned is well formed.
type Manifest struct {
	entries []Entry
	files   map[[32]byte]bool
}

type encoded struct {
	Version string  `cbor:"1,keyasint"`
	Entries []Entry `cbor:"2,keyasint"`
}

// Entries in order of path. The caller must not change them.
func (m *Manifest) Entries() []Entry { return m.entries }

// Contains tells whether a file of the workspace, or the prompt, has this
// SHA-256.
func (m *Manifest) Contains(sha256 [32]byte) bool { return m.files[sha256] }

// Root is the RFC 9162 (section 2.1.1) Merkle root; a leaf is the deterministic
// CBOR of one entry.
func (m *Manifest) Root() [32]byte {
	r := (&compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}).NewEmptyRange(0)
	for _, e := range m.entries {
		leaf, err := dcbor.Marshal(e)
		if err == nil {
			err = r.Append(rfc6962.DefaultHasher.HashLeaf(leaf), nil)
		}
		if err != nil {
			panic(err) // entries are checked, and a range accepts any leaf
		}
	}
	root, err := r.GetRootHash(nil)
	if err != nil {
		panic(err)
	}
	return [32]byte(root)
}

// Marshal returns the encoding that Parse reads.
func (m *Manifest) Marshal() ([]byte, error) {
	return dcbor.Marshal(encoded{Version, m.entries})
}

// Parse reads a manifest strictly. It does not compare it with any file.
func Parse(data []byte) (*Manifest, error) {
	if len(data) > MaxSize {
		return nil, fmt.Errorf("baseline manifest: got %d bytes, want at most %d", len(data), MaxSize)
	}
	var e encoded
	if err := dcbor.Unmarshal(data, &e); err != nil {
		return nil, fmt.Errorf("baseline manifest: %w", err)
	}
	if e.Version != Version {
		return nil, fmt.Errorf("baseline manifest: got version %.80q, want %q", e.Version, Version)
	}
	return newManifest(e.Entries)
}

// newManifest checks entries: their order, and what each type may carry.
func newManifest(entries []Entry) (*Manifest, error) {
	m := &Manifest{entries: entries, files: map[[32]byte]bool{}}
	dirs := map[string]bool{".": true}
	for i, e := range entries {
		if err := e.check(i == 0); err != nil {
			return nil, fmt.Errorf("baseline manifest: entry %d, %.200q: %w", i, e.Path, err)
		}
		if i > 0 && entries[i-1].Path >= e.Path {
			return nil, fmt.Errorf("baseline manifest: entry %d, %.200q: got it after %.200q, want paths sorted, each once", i, e.Path, entries[i-1].Path)
		}
		if i > 0 && !dirs[parent(e.Path)] {
			return nil, fmt.Errorf("baseline manifest: entry %d, %.200q: got no entry of its folder before it", i, e.Path)
		}
		switch e.Type {
		case Dir:
			dirs[e.Path] = true
		case File, Prompt:
			m.files[e.SHA256] = true
		}
	}
	if len(entries) == 0 {
		return nil, fmt.Errorf("baseline manifest: got no entry, want the prompt first")
	}
	return m, nil
}

func (e Entry) check(first bool) error {
	if first != (e.Type == Prompt) || first != (e.Path == "") {
		return fmt.Errorf("got type %d, want the prompt first, with an empty path, and only there", e.Type)
	}
	if !first && !validPath(e.Path) {
		return fmt.Errorf("want a clean relative path in UTF-8")
	}
	content := e.Type == File || e.Type == Prompt
	switch {
	case e.Type < Prompt || e.Type > Link:
		return fmt.Errorf("got unknown type %d", e.Type)
	case e.Exec && e.Type != File:
		return fmt.Errorf("got an executable bit on type %d, want it on files only", e.Type)
	case !content && (e.Size != 0 || e.SHA256 != [32]byte{}):
		return fmt.Errorf("got content on type %d, want none", e.Type)
	case content && e.SHA256 == [32]byte{}:
		return fmt.Errorf("got no SHA-256")
	case (e.Type == Link) != (e.Target != ""):
		return fmt.Errorf("got type %d with target %.200q, want a target on links only", e.Type, e.Target)
	}
	return nil
}

// validPath is fs.ValidPath without ".", without NUL.
func validPath(p string) bool {
	return p != "" && utf8.ValidString(p) && !strings.ContainsRune(p, 0) &&
		!slices.ContainsFunc(strings.Split(p, "/"), func(name string) bool {
			return name == "" || name == "." || name == ".."
		})
}

func parent(p string) string {
	if i := strings.LastIndexByte(p, '/'); i >= 0 {
		return p[:i]
	}
	return "."
}
