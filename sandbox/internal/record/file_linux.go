package record

import (
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// fileID names an inode. On the overlay a file keeps it when it is copied up.
type fileID struct{ dev, ino uint64 }

var empty = sha256.Sum256(nil)

// A File is an inode that the run met, under one object number. Lock it around
// looking at a version and writing the row that tells of it.
type File struct {
	sync.Mutex
	Number uint32

	last    objects.Sum // digest of the last version that a row told of, before anything was removed
	known   bool        // last is set
	ours    bool        // an earlier row says that the run wrote it
	pending bool        // a descriptor for writing was handed over since last
	writer  uint32      // process that got it
	path    string
	handle  int      // O_PATH while pending, else -1
	readers []uint32 // processes that hold it open for reading while somebody may write
	seen    stamp    // of the last version that was exposed
	changed bool     // not by the run, since a version was exposed

	handled atomic.Bool // the run may have changed times or the count of names
	early   atomic.Bool // what the run wrote before grading started is still in it
	emptied atomic.Bool // made or cut to nothing by the run; in the grade phase, since it started

	// Guarded by the Recorder:
	unnamed bool // it has no name any more, or none yet
	made    bool // by the run
	held    bool // pending: its inode number is not used again
}

// File returns the file of an inode. The number of an inode is used again after
// its file is gone, also for a file that the overlay copies up under a new number,
// one with several names or from another file system: it must not pass for the
// run's own.
func (r *Recorder) File(st *unix.Stat_t) *File {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.known(st); f != nil {
		return f
	}
	return r.newFile(st)
}

// Create returns the file of an inode that an open seems to have made. Of several
// opens that find no file and make it together each seems to be the one: made
// is true for the first alone. The others must not get a new File: what was
// written through the first would never be dated. A file without a name is new.
func (r *Recorder) Create(st *unix.Stat_t) (f *File, made bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if f := r.known(st); f != nil && (f.held || f.made && st.Nlink > 0) {
		return f, false
	}
	f = r.newFile(st)
	f.made = true
	f.Emptied()
	return f, true
}

func (r *Recorder) newFile(st *unix.Stat_t) *File {
	r.objects++
	f := &File{Number: r.objects, handle: -1, unnamed: st.Nlink == 0}
	r.files[fileID{uint64(st.Dev), st.Ino}] = f
	return f
}

// Known is File, or nil for an inode that the run did not meet.
func (r *Recorder) Known(st *unix.Stat_t) *File {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known(st)
}

// known leaves out a file without a name if the inode has one.
func (r *Recorder) known(st *unix.Stat_t) *File {
	f := r.files[fileID{uint64(st.Dev), st.Ino}]
	if f != nil && f.unnamed && st.Nlink > 0 {
		return nil
	}
	return f
}

// Unnamed notes whether a file is without a name. The caller holds a descriptor
// of it, so that its inode number is not used again before this is noted.
func (r *Recorder) Unnamed(f *File, unnamed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f.unnamed = unnamed
}

// Alias notes a second inode number of a file. One that is in use stays.
func (r *Recorder) Alias(f *File, st *unix.Stat_t) {
	id := fileID{uint64(st.Dev), st.Ino}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files[id] == nil {
		r.files[id] = f
	}
}

// Pending tells whether the run may have written since the last row.
func (f *File) Pending() bool { return f.pending }

// Ours tells whether a row says that the run wrote the file.
func (f *File) Ours() bool { return f.ours }

// Emptied notes that a row says that the run made the file, or cut it to nothing.
func (f *File) Emptied() {
	f.last, f.known, f.ours = empty, true, true
	f.early.Store(false)
	f.emptied.Store(true)
}

// A Version is what a file held when its row was written.
type Version struct {
	SHA256 objects.Sum
	Size   uint64
	Origin journal.Origin
	Flags  journal.Flags // unstable, live, unreadable, removed
}

// Version stores the present content, read from fd, and dates it with a wrote
// row if the run produced it since the last row. The file is locked.
func (r *Recorder) Version(f *File, fd int) (Version, error) {
	live := f.pending && writerOpen(fd)
	put := r.store.Put
	if r.tool(f.path) {
		put = r.store.PutTool
	}
	s, err := put(fd, live)
	if errors.Is(err, objects.ErrFull) {
		return Version{Flags: journal.FlagUnreadable}, r.full(err)
	}
	if err != nil {
		return r.unreadable(f, fd, err)
	}
	v := Version{SHA256: s.SHA256, Size: s.Size}
	if live {
		v.Flags |= journal.FlagLive
	}
	if s.Unstable {
		v.Flags |= journal.FlagUnstable
	}
	if s.Removed > 0 {
		v.Flags |= journal.FlagRemoved
	}
	if s.Over {
		if err := r.over(f.ours || f.pending); err != nil {
			return v, err
		}
	}
	f.stamp(&s)
	if f.pending && (!f.known || s.Raw != f.last) {
		if err := r.wrote(f, v); err != nil {
			return v, err
		}
	}
	if f.pending && !live {
		r.settle(f)
	}
	f.last, f.known = s.Raw, true
	v.Origin = journal.OriginInput
	if f.ours {
		v.Origin = journal.OriginRun
	}
	return v, nil
}

func (r *Recorder) wrote(f *File, v Version) error {
	f.ours = true
	_, err := r.Add(&Event{
		Proc: f.writer, Op: journal.OpWrote, Dir: journal.DirOut, Origin: journal.OriginRun, Flags: v.Flags,
		Size: v.Size, Object: f.Number, Path: f.path,
		Detail: journal.Detail{SHA256: v.SHA256[:], ReadBy: f.readers},
	})
	return err
}

// unreadable makes the failure part of the record: such a run is never clean. A
// full disk is the store's failure and ends the run instead.
func (r *Recorder) unreadable(f *File, fd int, cause error) (Version, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Version{}, cause
	}
	var b [1]byte
	if _, err := unix.Pread(fd, b[:], 0); err == nil && !errors.Is(cause, objects.ErrTooLarge) {
		r.mu.Lock()
		defer r.mu.Unlock()
		return Version{}, r.fail(cause)
	}
	return Version{Flags: journal.FlagUnreadable}, nil
}

// settle forgets the handle of a file that nobody writes any more.
func (r *Recorder) settle(f *File) {
	r.mu.Lock()
	f.held = false
	r.mu.Unlock()
	f.pending = false
	f.readers = nil
	if f.handle >= 0 {
		unix.Close(f.handle)
		f.handle = -1
	}
}

// Reading notes that a process reads while somebody may write.
func (f *File) Reading(proc uint32) {
	if !slices.Contains(f.readers, proc) {
		f.readers = append(f.readers, proc)
	}
}

// Writable notes, before the descriptor is handed over, that the file may change
// from now on. fd is any descriptor of it.
func (r *Recorder) Writable(f *File, proc uint32, path string, fd int) error {
	r.Touched(path)
	f.writer, f.path, f.pending = proc, path, true
	if f.handle >= 0 {
		return nil
	}
	r.mu.Lock()
	f.held = true
	r.handles = append(r.handles, f)
	r.mu.Unlock()
	h, err := unix.Openat(r.proc, "self/fd/"+strconv.Itoa(fd), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	f.handle = h
	return nil
}

// Full tells that many handles of written files are open, see MakeRoom.
func (r *Recorder) Full() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.handles) >= r.most
}

// MakeRoom dates the files that wait longest and that nobody writes any more, so
// that their handles can be closed. A version dated early is the same version:
// the next open for writing makes the file pending again. The caller holds no
// file and must be able to read all of them.
func (r *Recorder) MakeRoom() error {
	r.mu.Lock()
	old := r.handles
	r.handles = nil
	r.mu.Unlock()
	var keep []*File
	for i, f := range old {
		if i >= r.most/2 || !f.TryLock() {
			keep = append(keep, f)
			continue
		}
		err := r.Date(f)
		if f.handle >= 0 {
			keep = append(keep, f)
		}
		f.Unlock()
		if err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.handles = append(keep, r.handles...)
	return nil
}

// Nameless notes a file that only the run can have made and that was never
// opened by name (memfd): what it holds is the run's.
func (f *File) Nameless(proc uint32) {
	if f.known {
		proc = f.writer
	}
	f.writer, f.pending = proc, true
}

// Renamed tells the file's new path.
func (f *File) Renamed(path string) { f.path = path }

// Date writes the version that is pending, if any, reading through the handle.
// The file is locked; the caller's thread must be able to read it.
func (r *Recorder) Date(f *File) error {
	if !f.pending || f.handle < 0 {
		return nil
	}
	fd, err := unix.Openat(r.proc, "self/fd/"+strconv.Itoa(f.handle), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return r.Lost(0, "written file cannot be read back: "+err.Error())
	}
	defer unix.Close(fd)
	v, err := r.Version(f, fd)
	if err == nil && v.Flags&journal.FlagUnreadable != 0 && !r.isFull.Load() {
		return r.Lost(0, "written file cannot be read back")
	}
	return err
}

// DateAll dates every pending file, by number. No process of the run is left.
func (r *Recorder) DateAll() error {
	for _, f := range r.byNumber() {
		if f == nil {
			continue
		}
		f.Lock()
		err := r.Date(f)
		f.Unlock()
		if err != nil {
			return err
		}
	}
	return nil
}

// byNumber lists the files; numbers of streams and of replaced files are nil.
func (r *Recorder) byNumber() []*File {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]*File, r.objects+1)
	for _, f := range r.files {
		list[f.Number] = f
	}
	return list
}

// writerOpen tells whether anybody may have the file open for writing or mapped
// so. A read lease is granted only if nobody has. Where leases do not work the
// answer is yes.
func writerOpen(fd int) bool {
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		return true
	}
	_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETLEASE, unix.F_UNLCK)
	return false
}
