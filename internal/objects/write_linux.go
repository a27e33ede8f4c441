package objects

import (
	"fmt"
	"io"
	"syscall"

	"golang.org/x/sys/unix"
)

// A writer fills one object's file.
type writer struct {
	fd    int
	clone bool  // the file holds the content already
	off   int64 // of what comes next
	enc   io.WriteCloser
}

func (s *Store) writer(fd int, clone bool) (*writer, error) {
	w := &writer{fd: fd, clone: clone}
	if s.Keys == nil {
		return w, nil
	}
	var err error
	if w.enc, err = s.Keys.Encrypt((*plain)(w)); err != nil {
		return nil, fmt.Errorf("encrypt object: %w", err)
	}
	return w, nil
}

// write puts the next bytes. changed says that they are not what the file had.
func (w *writer) write(b []byte, changed bool) error {
	if w.enc != nil {
		if _, err := w.enc.Write(b); err != nil {
			return fmt.Errorf("write object: %w", err)
		}
		return nil
	}
	if changed || !w.clone && !(len(b) >= hole && allZero(b)) { // zeros stay a hole
		if err := writeAt(w.fd, b, w.off); err != nil {
			return err
		}
	}
	w.off += int64(len(b))
	return nil
}

// hole is the least number of zeros that are not written.
const hole = 4096

// close ends a content of size bytes.
func (w *writer) close(size int64) error {
	if w.enc != nil {
		if err := w.enc.Close(); err != nil {
			return fmt.Errorf("write object: %w", err)
		}
		return nil
	}
	if err := unix.Ftruncate(w.fd, size); err != nil {
		return fmt.Errorf("write object: %w", err)
	}
	return nil
}

// plain writes what was encrypted.
type plain writer

func (w *plain) Write(b []byte) (int, error) {
	if err := writeAt(w.fd, b, w.off); err != nil {
		return 0, err
	}
	w.off += int64(len(b))
	return len(b), nil
}

// readAt reads until b is full or the file ends.
func readAt(fd int, b []byte, off int64) (int, error) {
	done := 0
	for done < len(b) {
		n, err := unix.Pread(fd, b[done:], off+int64(done))
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("read for object: %w", err)
		}
		if n == 0 {
			break
		}
		done += n
	}
	return done, nil
}

func writeAt(fd int, b []byte, off int64) error {
	for len(b) > 0 {
		n, err := unix.Pwrite(fd, b, off)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return fmt.Errorf("write object: %w", err)
		}
		if n == 0 {
			return fmt.Errorf("write object: wrote 0 of %d bytes", len(b))
		}
		b, off = b[n:], off+int64(n)
	}
	return nil
}

func allZero(b []byte) bool {
	for len(b) >= 8 {
		if b[0]|b[1]|b[2]|b[3]|b[4]|b[5]|b[6]|b[7] != 0 {
			return false
		}
		b = b[8:]
	}
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
