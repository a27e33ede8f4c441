// Package objects is the private content store of a run: each distinct content
// once, under objects/<first 2 hex digits>/<SHA-256 in hex>.
//
// Limits: names are plain SHA-256, so the store must stay private (directories
// 0700, files 0600). It is not durable until [Store.Sync]. An object shows the
// bytes that were read when it was put; that a writer changed the file while it
// was read is reported, not prevented.
//
// Objects are complete or absent: content goes to a temporary name and is renamed.
// Readers check the digest again, so a store that was changed later is an error.
package objects

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash"
	"io"
	"os"
)

// A Sum is the SHA-256 of an object's content.
type Sum = [sha256.Size]byte

// MaxSize is the largest object. A sparse file can claim any size; the recorder
// marks a larger one as unreadable.
const MaxSize = 64 << 30

// MaxSparse is the largest object more than half of which is holes. To hash zeros
// takes as long as to hash content, and anyone can claim them for nothing.
const MaxSparse = 4 << 30

// Name is an object's path inside the store, with slashes.
func Name(sum Sum) string {
	h := hex.EncodeToString(sum[:])
	return h[:2] + "/" + h
}

// ErrCorrupt says that an object's bytes do not have the digest of its name.
type ErrCorrupt struct{ Want, Got Sum }

func (e *ErrCorrupt) Error() string {
	return fmt.Sprintf("object %x: its bytes have SHA-256 %x: the store was changed; record the run again", e.Want, e.Got)
}

// A Reader reads one object. It returns *ErrCorrupt in place of io.EOF if the
// content was not the one asked for: use nothing before EOF as authentic.
type Reader struct {
	f    *os.File
	h    hash.Hash
	want Sum
	size int64
}

// Open opens an object for reading. Symbolic links do not lead out of root (see
// os.Root); what is no regular file is refused.
func Open(root *os.Root, sum Sum) (*Reader, error) {
	fi, err := root.Lstat(Name(sum))
	if err != nil {
		return nil, err
	}
	if !fi.Mode().IsRegular() { // before opening: a FIFO would block
		return nil, fmt.Errorf("object %x is a %s, want a regular file", sum, fi.Mode().Type())
	}
	f, err := root.Open(Name(sum))
	if err != nil {
		return nil, err
	}
	return &Reader{f: f, h: sha256.New(), want: sum, size: fi.Size()}, nil
}

// Size of the object in bytes, as the file system says.
func (r *Reader) Size() int64 { return r.size }

func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.f.Read(p)
	r.h.Write(p[:n])
	if err == io.EOF {
		if got := Sum(r.h.Sum(nil)); got != r.want {
			return n, &ErrCorrupt{r.want, got}
		}
	}
	return n, err
}

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// ReadAll is a whole object of at most max bytes, checked.
func ReadAll(root *os.Root, sum Sum, max int64) ([]byte, error) {
	r, err := Open(root, sum)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	b, err := io.ReadAll(io.LimitReader(r, max+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > max {
		return nil, fmt.Errorf("object %x is larger than %d bytes", sum, max)
	}
	return b, nil
}
