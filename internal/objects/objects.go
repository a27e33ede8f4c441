// Package objects is the private content store of a run: each distinct content
// once, under objects/<first 2 hex digits>/<SHA-256 in hex>.
//
// Limits: names are plain SHA-256 unless the store is encrypted, so it must stay
// private (directories 0700, files 0600). It is not durable until [Store.Sync]. An object shows the
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

	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
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

// A Source is a store to read from.
type Source struct {
	Root *os.Root
	Keys *vault.Keys // of an encrypted store; nil if it is in clear
}

// id is what an object is named after.
func (s Source) id(sum Sum) Sum {
	if s.Keys != nil {
		return s.Keys.Name(sum)
	}
	return sum
}

// A Reader reads one object. It returns *ErrCorrupt in place of io.EOF if the
// content was not the one asked for: use nothing before EOF as authentic.
type Reader struct {
	f    *os.File
	in   io.Reader
	h    hash.Hash
	want Sum
}

// Open opens an object for reading. Symbolic links do not lead out of the store
// (see os.Root); what is no regular file is refused.
func (s Source) Open(sum Sum) (*Reader, error) {
	f, err := s.open(sum)
	if err != nil {
		return nil, err
	}
	r := &Reader{f: f, in: f, h: sha256.New(), want: sum}
	if s.Keys != nil {
		if r.in, err = s.Keys.Decrypt(f); err != nil {
			f.Close()
			return nil, fmt.Errorf("object %x: %w", sum, err)
		}
	}
	return r, nil
}

func (s Source) open(sum Sum) (*os.File, error) {
	return regular.In(s.Root, Name(s.id(sum)))
}

// A ReaderAt reads one object at any offset. It checks no digest.
type ReaderAt struct {
	io.ReaderAt
	f *os.File
}

// Close closes the file.
func (r *ReaderAt) Close() error { return r.f.Close() }

// OpenAt opens an object that was read to its end before, and so checked: nobody
// may change the store meanwhile.
func (s Source) OpenAt(sum Sum) (*ReaderAt, error) {
	f, err := s.open(sum)
	if err != nil {
		return nil, err
	}
	r := &ReaderAt{f, f}
	if s.Keys != nil {
		var st os.FileInfo
		if st, err = f.Stat(); err == nil {
			r.ReaderAt, _, err = s.Keys.DecryptAt(f, st.Size())
		}
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("object %x: %w", sum, err)
		}
	}
	return r, nil
}

func (r *Reader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
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
func (s Source) ReadAll(sum Sum, max int64) ([]byte, error) {
	r, err := s.Open(sum)
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
