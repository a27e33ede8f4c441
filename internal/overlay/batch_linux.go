package overlay

import (
	"errors"
	"fmt"
	"os"
	"path"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// maxBatch bounds the files that are written before the first of them is renamed.
	// All are open meanwhile.
	maxBatch = 128
	// maxBatchBytes bounds the space that they take beside the old ones. A larger file
	// is alone.
	maxBatchBytes = 64 << 20
	// maxSyncs is how many are synced at a time. A sync mostly waits: the file system
	// writes what has come together in one go. Each file has a sync of its own still:
	// syncfs tells no file by name if it fails, asks for the data of all other programs
	// too, and on file systems over a network promises less.
	maxSyncs = 32
)

// A batch is what waits to be made, in the order of the changes.
type batch struct {
	list    []int // indices of changes
	size    int64
	deletes bool
}

// contents makes names, types and contents right and says of each change whether it is
// made. After an error these are the changes up to the one in the error, and folders.
func (a *applier) contents(changes []Change) (made []bool, err error) {
	made = make([]bool, len(changes))
	var b batch
	one := func(i int, staged *os.File) error {
		if err := a.content(changes[i], staged); err != nil {
			return err
		}
		made[i] = true
		return nil
	}
	flush := func() error {
		files := a.stage(changes, b.list)
		defer closeAll(files)
		for n, i := range b.list {
			err := errNotStaged
			if files[n] != nil || !hasContent(changes[i]) {
				err = one(i, files[n])
			}
			if err != nil {
				// From here on one at a time: the disk may be full of what was written
				// ahead, or the file system has no files without names.
				closeAll(files[n:])
				err = one(i, nil)
			}
			closeAll(files[n : n+1])
			if err != nil {
				return failed(changes[i], err)
			}
		}
		b = batch{list: b.list[:0]}
		return nil
	}
	for i, c := range changes { // parents come before what is in them
		switch {
		case c.Kind == Metadata || c.Kind == Replaced:
			made[i] = true
		case c.Kind != Deleted && c.Mode.IsDir():
			// What is below needs it at once. It overtakes what waits, unless it takes
			// somebody's place or that may make room for it.
			if b.deletes || c.Kind != Added || one(i, nil) != nil {
				if err := flush(); err != nil {
					return made, err
				}
				if err := one(i, nil); err != nil {
					return made, failed(c, err)
				}
			}
		default:
			if len(b.list) == maxBatch || c.Size > maxBatchBytes-b.size {
				if err := flush(); err != nil {
					return made, err
				}
			}
			b.list = append(b.list, i)
			b.size += c.Size
			b.deletes = b.deletes || c.Kind == Deleted
		}
	}
	return made, flush()
}

var errNotStaged = errors.New("not written ahead")

func hasContent(c Change) bool { return c.Kind != Deleted && c.Mode.IsRegular() }

func failed(c Change, err error) error {
	return fmt.Errorf("apply %s (%s): %w", c.Path, c.Kind, err)
}

// stage writes the regular files among the listed changes, without names, and syncs
// them. The result has one for each; it is nil for other changes, and from the first
// failure on for any.
func (a *applier) stage(changes []Change, list []int) []*os.File {
	files := make([]*os.File, len(list))
	var next atomic.Int64
	var stop atomic.Bool
	var wg sync.WaitGroup
	for range min(maxSyncs, len(list)) {
		wg.Go(func() {
			for !stop.Load() {
				n := int(next.Add(1)) - 1
				if n >= len(list) {
					return
				}
				c := changes[list[n]]
				if !hasContent(c) {
					continue
				}
				f, err := a.unnamed(c.Path)
				if err != nil { // content tries again, and tells
					stop.Store(true)
				}
				files[n] = f
			}
		})
	}
	wg.Wait()
	return files
}

// unnamed copies the file p of the run to the folder where it belongs. Without a name
// nothing is left of it if the process ends.
func (a *applier) unnamed(p string) (*os.File, error) {
	dir, err := openParent(a.dst, p)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	fd, err := unix.Openat(dir, ".", unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), path.Base(p))
	if err := a.fill(f, p); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// closeAll closes files, which removes those that were not placed.
func closeAll(files []*os.File) {
	for i, f := range files {
		if f != nil {
			_ = f.Close() // it is synced, or nothing is kept of it
			files[i] = nil
		}
	}
}
