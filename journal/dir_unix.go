//go:build unix

package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// Lock takes the exclusive lock of a journal's rows file. It lasts until the
// last descriptor of the same open file is closed.
func Lock(rows *os.File) error {
	err := unix.Flock(int(rows.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == unix.EWOULDBLOCK {
		return ErrLocked
	}
	if err != nil {
		return fmt.Errorf("lock %s: %w", rows.Name(), err)
	}
	return nil
}

// A DirWriter is a Writer over the files of a run folder.
type DirWriter struct {
	*Writer
	rows, details *os.File
}

// Create makes the journal's files in dir, with mode 0600, and writes the start
// row and the secret. A folder that already holds one of them is refused. On
// failure the files that it made are gone again.
func Create(dir string, secret Secret, start Start) (*DirWriter, error) {
	w := new(DirWriter)
	made, err := w.create(dir, secret, start)
	if err != nil {
		errs := []error{err, w.closeFiles()}
		for _, name := range made {
			errs = append(errs, os.Remove(name))
		}
		return nil, errors.Join(errs...)
	}
	return w, nil
}

func (w *DirWriter) create(dir string, secret Secret, start Start) (made []string, err error) {
	for _, f := range [...]struct {
		name string
		to   **os.File
	}{{RowsFile, &w.rows}, {DetailsFile, &w.details}} {
		name := filepath.Join(dir, f.name)
		if *f.to, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o600); err != nil {
			*f.to = nil
			return made, err
		}
		made = append(made, name)
	}
	if err := Lock(w.rows); err != nil {
		return made, err
	}
	name := filepath.Join(dir, SecretFile)
	if err := durable.CreateNew(name, secret[:], 0o600); err != nil {
		return made, err
	}
	made = append(made, name)
	begin := time.Now() // read for its monotonic part only
	w.Writer, err = NewWriter(Config{
		Rows: w.rows, Details: w.details, Secret: secret, Start: start,
		SaveHead: func(text []byte) error { return durable.WriteFile(filepath.Join(dir, HeadFile), text, 0o600) },
		Clock:    func() uint64 { return uint64(time.Since(begin)) },
	})
	return made, err
}

// Close ends the Writer, closes the files and so gives up the lock.
func (w *DirWriter) Close() error { return errors.Join(w.Writer.Close(), w.closeFiles()) }

func (w *DirWriter) closeFiles() error {
	var errs []error
	for _, f := range []*os.File{w.rows, w.details} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	w.rows, w.details = nil, nil
	return errors.Join(errs...)
}

// Recover takes the lock of a run folder's journal, cuts a torn tail off its two
// files and says how much. It never adds a row: what a crash left open stays
// open. A broken record before the tail is an error and cuts nothing.
func Recover(dir string) (tail Tail, err error) {
	rows, err := regular.At(filepath.Join(dir, RowsFile), os.O_RDWR)
	if err != nil {
		return Tail{}, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if err := Lock(rows); err != nil {
		return Tail{}, err
	}
	details, err := regular.At(filepath.Join(dir, DetailsFile), os.O_RDWR)
	if err != nil {
		return Tail{}, err
	}
	defer func() { err = errors.Join(err, details.Close()) }()

	n, keepRows, err := whole(rows, MaxRow, -1)
	if err != nil {
		return Tail{}, fmt.Errorf("%s: %w", RowsFile, err)
	}
	m, keepDetails, err := whole(details, MaxDetail, n)
	if err != nil {
		return Tail{}, fmt.Errorf("%s: %w", DetailsFile, err)
	}
	if m < n {
		return Tail{}, fmt.Errorf("got %d details for %d rows, want one for each: the private half is damaged", m, n)
	}
	if tail.Rows, err = cut(rows, keepRows); err == nil {
		tail.Details, err = cut(details, keepDetails)
	}
	return tail, err
}

// whole counts the whole records, at most limit of them if limit is not
// negative, and the bytes they take.
func whole(f *os.File, size uint32, limit int64) (n, length int64, err error) {
	for raw, err := range records(f, size) {
		var rule *RuleError
		if errors.As(err, &rule) && rule.torn {
			break
		}
		if err != nil {
			return 0, 0, at(err, uint64(n))
		}
		if n == limit {
			break
		}
		n++
		length += prefixSize + int64(len(raw))
	}
	return n, length, nil
}

func cut(f *os.File, keep int64) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if info.Size() == keep {
		return 0, nil
	}
	if err := f.Truncate(keep); err != nil {
		return 0, err
	}
	return info.Size() - keep, f.Sync()
}
