// Package store keeps receipts and sealed sets in a folder, each under its
// SHA-256, written once.
//
// Limits first. The folder belongs to one user, and its name must lead to it
// without a symbolic link: who can write into it can remove what is there, but
// can put nothing under a name that is not its digest, since every read checks
// it. A store is no log: it does not show what was removed.
//
// On disk: a folder of mode 0700 with files of mode 0600, named by the SHA-256 of
// their content in hex. A file is complete or absent, also after a power loss.
package store

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// MaxFile is the largest file that is kept, in bytes: that of a bundle.
const MaxFile = 3 << 30

// A Digest names a file.
type Digest [sha256.Size]byte

// Prefix of a digest in text.
const Prefix = "sha256:"

func (d Digest) String() string { return Prefix + hex.EncodeToString(d[:]) }

// ParseDigest reads what String writes and nothing else.
func ParseDigest(s string) (d Digest, err error) {
	b, err := hex.DecodeString(strings.TrimPrefix(s, Prefix))
	if err != nil || len(b) != len(d) || Digest(b).String() != s {
		return d, fmt.Errorf("got %q, want sha256: and 64 hex digits in lower case", s)
	}
	return Digest(b), nil
}

// An Error says that something in or around a store is not as it must be.
type Error struct {
	Path      string
	Got, Want string
	Next      string // what to do
}

func (e *Error) Error() string { return fmt.Sprintf("%s: got %s, want %s", e.Path, e.Got, e.Want) }

// Hint says what to do next.
func (e *Error) Hint() string { return e.Next }

// A Store is an open folder.
type Store struct {
	root *os.Root
	path string
}

// Create makes a store, or opens one that is there. The folder above it must
// exist.
func Create(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	parent, err := openDir(filepath.Dir(abs))
	if err != nil {
		return nil, err
	}
	defer parent.Close()
	err = parent.Mkdir(filepath.Base(abs), 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	if err == nil {
		if err := syncRoot(parent); err != nil {
			return nil, err
		}
	}
	return Open(dir)
}

// Open opens a store. Each component of its absolute path must be a folder, and no
// symbolic link.
func Open(dir string) (*Store, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	root, err := openDir(abs)
	if err != nil {
		return nil, err
	}
	st, err := root.Stat(".")
	if err == nil {
		err = private(abs, st, 0o700)
	}
	if err != nil {
		root.Close()
		return nil, err
	}
	return &Store{root, abs}, nil
}

// Close closes the folder.
func (s *Store) Close() error { return s.root.Close() }

// Path is where a file is, or would be.
func (s *Store) Path(d Digest) string { return filepath.Join(s.path, name(d)) }

func name(d Digest) string { return hex.EncodeToString(d[:]) }

// private holds a file or folder to its owner and mode.
func private(path string, st fs.FileInfo, most fs.FileMode) error {
	if runtime.GOOS != "windows" && st.Mode().Perm()&^most != 0 {
		return &Error{path, fmt.Sprintf("mode %04o", st.Mode().Perm()), fmt.Sprintf("%04o", most), fmt.Sprintf("others could reach it: look at what is there, then chmod %04o %s", most, path)}
	}
	if uid, ok := owner(st); ok && uid != os.Getuid() {
		return &Error{path, fmt.Sprintf("owner %d", uid), fmt.Sprintf("%d, the user who runs this", os.Getuid()), "use a store of your own"}
	}
	return nil
}

// Add puts content into the store. fresh is false if it was there already, with
// the same bytes. Anything else under its name is refused.
func (s *Store) Add(content []byte) (d Digest, fresh bool, err error) {
	if len(content) > MaxFile {
		return d, false, fmt.Errorf("got a file of %d bytes, want at most %d", len(content), int64(MaxFile))
	}
	d = sha256.Sum256(content)
	_, err = s.root.Lstat(name(d))
	if err == nil {
		return d, false, s.same(d, content)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return d, false, err
	}
	temp := ".new-" + rand.Text()
	if err := s.write(temp, content); err != nil {
		return d, false, errors.Join(err, ignoreAbsent(s.root.Remove(temp)))
	}
	// A link is never made over something, and never follows it.
	err = s.root.Link(temp, name(d))
	if e := s.root.Remove(temp); err == nil {
		err = e
	}
	if errors.Is(err, fs.ErrExist) { // somebody was faster
		return d, false, s.same(d, content)
	}
	if err != nil {
		return d, false, err
	}
	return d, true, syncRoot(s.root)
}

func (s *Store) same(d Digest, content []byte) error {
	b, err := s.Get(d)
	if err == nil && !bytes.Equal(b, content) {
		err = s.planted(d, "other bytes")
	}
	return err
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (s *Store) write(name string, content []byte) error {
	f, err := s.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Chmod(0o600)
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// syncRoot makes new names in a folder survive a power loss.
func syncRoot(root *os.Root) error {
	if runtime.GOOS == "windows" {
		return nil // it cannot; NTFS journals names by itself
	}
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// planted is the error for what cannot have come from a store.
func (s *Store) planted(d Digest, got string) error {
	return &Error{s.Path(d), got, "the regular file with this SHA-256, as it was written once",
		"it was planted or changed: move it away, find out who did it, and add the file again"}
}

// Get reads a file and checks it against its name.
func (s *Store) Get(d Digest) ([]byte, error) {
	before, err := s.root.Lstat(name(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &Error{s.path, "no " + d.String(), "a file that was added", "cleanrun store ls lists what is there"}
	}
	if err != nil {
		return nil, err
	}
	if !before.Mode().IsRegular() { // before it is opened: a FIFO would block
		return nil, s.planted(d, "a "+kind(before.Mode()))
	}
	f, err := s.root.Open(name(d))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(before, st) { // swapped, perhaps for a link
		return nil, s.planted(d, "another file while it was opened")
	}
	if err := private(s.Path(d), st, 0o600); err != nil {
		return nil, err
	}
	if st.Size() > MaxFile {
		return nil, s.planted(d, fmt.Sprintf("a file of %d bytes", st.Size()))
	}
	b, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, err
	}
	if got := Digest(sha256.Sum256(b)); got != d {
		return nil, s.planted(d, "bytes with "+got.String())
	}
	return b, nil
}

func kind(m fs.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&fs.ModeSymlink != 0:
		return "symbolic link"
	}
	return "special file"
}

// All lists the digests in order. A file that is no store's is an *Error, after
// which the list goes on; the rest of a write that was cut off is left out.
func (s *Store) All() iter.Seq2[Digest, error] {
	return func(yield func(Digest, error) bool) {
		entries, err := fs.ReadDir(s.root.FS(), ".")
		if err != nil {
			yield(Digest{}, err)
			return
		}
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), ".new-") {
				continue
			}
			d, err := ParseDigest(Prefix + e.Name())
			if err != nil {
				err = &Error{filepath.Join(s.path, e.Name()), "a name that is no digest", "64 hex digits", "a store holds nothing else: move it away"}
			} else if !e.Type().IsRegular() {
				err = s.planted(d, "a "+kind(e.Type()))
			}
			if !yield(d, err) {
				return
			}
		}
	}
}
