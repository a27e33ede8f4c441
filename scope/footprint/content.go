package footprint

import (
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// folderAttributes opens a folder for them, if they are wanted.
func (w *worker) folderAttributes(open func() (*handle, error), e *Entry) error {
	if !w.read {
		return nil
	}
	h, err := open()
	if err != nil {
		return err
	}
	defer h.release()
	if e.Attrs, err = h.attributes(); err != nil {
		return err
	}
	e.Read = true
	return nil
}

// content completes an entry that is no folder.
func (w *worker) content(h *handle, name string, st *status, e *Entry) (err error) {
	switch {
	case e.Mode.Type() == fs.ModeSymlink:
		e.Target, err = h.readlink(name)
		e.Read = err == nil && w.read
		return err
	case !w.read:
		return nil
	case e.Mode.IsDir():
		return w.folderAttributes(func() (*handle, error) { return h.enter(name, st) }, e)
	case !e.Mode.IsRegular():
		e.Read = true // a pipe, a socket or a device has no content of its own
		return nil
	}
	if e.Size > w.limits.Bytes { // also of a sparse file, which takes no room
		return errBytes
	}
	if w.bytes.Add(-e.Size) < 0 {
		w.bytes.Add(e.Size)
		w.cut.Store(true)
		return errBytes
	}
	f, err := h.open(name, st)
	if err != nil {
		return err
	}
	defer f.close()
	if e.Attrs, err = f.attributes(); err != nil {
		return err
	}
	if e.Digest, err = w.digest(f, e.Size); err != nil {
		return err
	}
	e.Read = true
	return nil
}

// piece is what a digest covers at once, in bytes.
const piece = 1 << 20

// digest reads a whole file of size bytes. A file that has become longer or shorter was
// replaced.
func (w *worker) digest(f *file, size int64) ([32]byte, error) {
	if w.buf == nil {
		w.buf = make([]byte, piece+1)
	}
	if size <= piece {
		n, err := f.fill(w.buf, 0)
		if err != nil {
			return [32]byte{}, err
		}
		if int64(n) != size {
			return [32]byte{}, fmt.Errorf("got %d bytes, want %d: %w", n, size, regular.ErrReplaced)
		}
		return sha256.Sum256(w.buf[:n]), nil
	}
	h := sha256.New()
	data := int64(0) // no content lies from off up to here
	var zeros [32]byte
	var zerosOf int64
	for off := int64(0); off < size; off += piece {
		if err := w.ctx.Err(); err != nil {
			return [32]byte{}, err
		}
		length := min(piece, size-off)
		if data < off+length {
			data = max(data, f.data(max(off, data), size))
		}
		if data >= off+length {
			if zerosOf != length {
				clear(w.buf[:length])
				zeros, zerosOf = sha256.Sum256(w.buf[:length]), length
			}
			h.Write(zeros[:])
			continue
		}
		n, err := f.fill(w.buf[:length], off)
		if err != nil {
			return [32]byte{}, err
		}
		if int64(n) != length {
			return [32]byte{}, fmt.Errorf("got an end at %d, want %d bytes: %w", off+int64(n), size, regular.ErrReplaced)
		}
		sum := sha256.Sum256(w.buf[:length])
		h.Write(sum[:])
	}
	if now, err := f.size(); err != nil || now != size { // beyond its end there seem to be holes
		if err == nil {
			err = fmt.Errorf("got %d bytes, want %d: %w", now, size, regular.ErrReplaced)
		}
		return [32]byte{}, err
	}
	return [32]byte(h.Sum(nil)), nil
}

// fill reads from off until buf is full or the file ends.
func (f *file) fill(buf []byte, off int64) (n int, err error) {
	for n < len(buf) {
		k, err := f.read(buf[n:], off+int64(n))
		if n += k; err == io.EOF {
			break
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// entry is a status as an entry that was not read.
func (s *status) entry() Entry {
	e := Entry{Mode: s.mode, UID: s.uid, GID: s.gid, Links: s.links, Stamp: s.stamp}
	if s.mode.IsRegular() {
		e.Size = s.size
	}
	if s.mode.IsDir() {
		e.Links = 0
	}
	return e
}
