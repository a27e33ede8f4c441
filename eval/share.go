package eval

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sync"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// A sharer remembers which attempt has a content first.
type sharer struct {
	mu    sync.Mutex
	first map[string]string // name of an object: its path in the eval's folder
}

// leastShared is the size of the smallest content that is shared. Smaller ones are
// many and take little.
const leastShared = 16 << 10

// Share lets an attempt that has ended keep its large contents together with those
// recorded before it: of equal files one stays, under a hard link in each run
// folder, read-only. Most of them are the system's own programs and libraries. It
// returns how many bytes were there already.
//
// Each run folder stays whole by itself. Files are compared byte by byte first, so
// one that was changed takes no other's place, and what reads them checks digests.
// Encrypted contents have names of their own and are never equal. Where the file
// system makes no hard link, nothing is shared.
func (d *Dir) Share(c Cell) (saved int64, err error) {
	root, err := os.OpenRoot(d.Dir)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	objects := path.Join(filepath.ToSlash(c.RunDir()), "objects")
	err = fs.WalkDir(root.FS(), objects, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() || !isDigest(e.Name()) {
			return err
		}
		st, err := e.Info()
		if err != nil || st.Size() < leastShared {
			return err
		}
		shared, err := d.contents.share(root, name)
		if shared {
			saved += st.Size()
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) { // nothing was stored, or somebody pruned it
		err = nil
	}
	return saved, err
}

func isDigest(name string) bool {
	b, err := hex.DecodeString(name)
	return err == nil && len(b) == 32
}

// share puts a link to the first equal file in the place of name, or makes name the
// first.
func (s *sharer) share(root *os.Root, name string) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.first == nil {
		s.first = map[string]string{}
	}
	object := path.Base(name)
	if first, ok := s.first[object]; ok {
		if one(root, first, name) {
			return false, nil
		}
		same, err := equal(root, first, name)
		if err == nil && !same {
			return false, nil // one was changed: each keeps its own, and attest says so
		}
		if err == nil && replace(root, first, name) {
			return true, nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	// The first, or the one before was pruned or has too many links.
	s.first[object] = name
	return false, root.Chmod(name, 0o400)
}

// one tells that both are the same file: a rename of one over the other does nothing.
func one(root *os.Root, a, b string) bool {
	x, errX := root.Lstat(a)
	y, errY := root.Lstat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

// replace puts a hard link to first in the place of name, at once: the content is
// never missing.
func replace(root *os.Root, first, name string) bool {
	link := path.Join(path.Dir(name), "link.tmp")
	_ = root.Remove(link) // left by a kill
	if root.Link(first, link) != nil {
		return false
	}
	if root.Rename(link, name) != nil {
		_ = root.Remove(link)
		return false
	}
	return true
}

// equal compares two files of the folder, byte by byte.
func equal(root *os.Root, a, b string) (bool, error) {
	f, err := regular.In(root, a)
	if err != nil {
		return false, err
	}
	defer f.Close()
	g, err := regular.In(root, b)
	if err != nil {
		return false, err
	}
	defer g.Close()
	var x, y [256 << 10]byte
	for {
		n, errX := io.ReadFull(f, x[:])
		m, errY := io.ReadFull(g, y[:])
		if !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		if endX, endY := ended(errX), ended(errY); endX || endY {
			return endX && endY, nil
		}
		if err := errors.Join(errX, errY); err != nil {
			return false, err
		}
	}
}

func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
