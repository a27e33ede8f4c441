package scope

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"hash"
	"path"
	"strings"
	"unicode/utf8"
)

const (
	keyLabel    = "cleanrun/path-key/v1\x00"
	digestLabel = "cleanrun/path/v1\x00"
)

// MaxPath is the length limit of a path, in bytes (PATH_MAX of Linux).
const MaxPath = 4096

// A PathKey is K_path, drawn for one run. Who holds it can test guesses against
// every path digest of the run.
type PathKey [32]byte

// Key returns the key of one path, HMAC-SHA256(k, label || path). Publishing it
// opens the digest of this path and of no other.
func Key(k PathKey, path string) (key [32]byte) {
	newKeyer(k).key(path, &key)
	return key
}

// Digest returns the digest of a path under the path's key,
// SHA-256(label || key || path).
func Digest(key [32]byte, path string) [32]byte {
	var room [512]byte
	b := append(room[:0], digestLabel...)
	b = append(b, key[:]...)
	b = append(b, path...)
	return sha256.Sum256(b)
}

type keyer struct {
	mac hash.Hash
	buf []byte
}

func newKeyer(k PathKey) *keyer { return &keyer{mac: hmac.New(sha256.New, k[:])} }

func (k *keyer) key(path string, out *[32]byte) {
	k.mac.Reset()
	k.buf = append(append(k.buf[:0], keyLabel...), path...)
	k.mac.Write(k.buf)
	k.mac.Sum(out[:0])
}

// CheckPath refuses a path that is not absolute, not clean in the sense of
// path.Clean, longer than MaxPath, not UTF-8, or that holds a NUL. Lexical
// decisions are only sound on clean paths: "/work/../etc" is not under "/work".
func CheckPath(p string) error {
	switch {
	case len(p) > MaxPath:
		return fmt.Errorf("got a path of %d bytes, want at most %d", len(p), MaxPath)
	case !strings.HasPrefix(p, "/"):
		return fmt.Errorf("got path %q, want an absolute path", p)
	case path.Clean(p) != p:
		return fmt.Errorf("got path %q, want the clean path %q", p, path.Clean(p))
	case strings.IndexByte(p, 0) >= 0 || !utf8.ValidString(p):
		return fmt.Errorf("got path %q, want UTF-8 without NUL", p)
	}
	return nil
}

// A Ref names a path by the number of its parent directory and its own digest.
type Ref struct {
	Dir    uint32
	Digest [32]byte
}

// A NewDir is a directory that got its number just now: it is to be declared
// before a row may use it.
type NewDir struct {
	Number uint32
	Ref    Ref
	Path   string
}

// A Hasher is the recorder's side: it numbers directories and computes digests.
// It is not safe for concurrent use, since the order of the declarations is the
// order of the numbers. Its memory grows by one entry for each directory.
type Hasher struct {
	keyer *keyer
	dirs  map[string]uint32
}

// NewHasher returns a Hasher that knows only "/", as number 0.
func NewHasher(k PathKey) *Hasher {
	return &Hasher{keyer: newKeyer(k), dirs: map[string]uint32{"/": 0}}
}

// Path returns the reference of p, which must pass CheckPath, and the
// directories above p that had no number yet, parents first.
func (h *Hasher) Path(p string) (Ref, []NewDir, error) {
	if err := CheckPath(p); err != nil {
		return Ref{}, nil, err
	}
	var fresh []NewDir
	dir, known := h.dirs[path.Dir(p)]
	if !known {
		dir = 0
		for i := 1; i < len(p); i++ {
			if p[i] != '/' {
				continue
			}
			n, ok := h.dirs[p[:i]]
			if !ok {
				above := strings.Clone(p[:i])
				n = uint32(len(h.dirs))
				h.dirs[above] = n
				fresh = append(fresh, NewDir{Number: n, Ref: Ref{dir, h.digest(above)}, Path: above})
			}
			dir = n
		}
	}
	return Ref{dir, h.digest(p)}, fresh, nil
}

func (h *Hasher) digest(p string) [32]byte {
	var key [32]byte
	h.keyer.key(p, &key)
	return Digest(key, p)
}
