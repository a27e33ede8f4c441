package record

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// Status returns fields of /proc/tid/status, looked up by name in the outer
// procfs.
func Status(proc, tid int) (func(name string) string, error) {
	fd, err := unix.Openat(proc, strconv.Itoa(tid)+"/status", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var b [4096]byte
	n, err := unix.Read(fd, b[:])
	if err != nil {
		return nil, err
	}
	text := append([]byte{'\n'}, b[:n]...)
	return func(name string) string {
		_, after, ok := bytes.Cut(text, []byte("\n"+name+":\t"))
		if !ok {
			return ""
		}
		line, _, _ := bytes.Cut(after, []byte{'\n'})
		return string(line)
	}, nil
}

// Inner is the id of the innermost namespace, the last of a tab-separated list
// (fields NSpid, NStgid).
func Inner(field string) int {
	i := bytes.LastIndexByte([]byte(field), '\t')
	n, _ := strconv.Atoi(field[i+1:])
	return n
}

// Birth numbers task tid, made by parent (0: by the recorder, or not known). A new thread
// takes the number of its process. It writes the fork row of a new process.
func (r *Recorder) Birth(parent, tid int) error {
	leader, inner := tid, 0
	if field, err := Status(r.proc, tid); err == nil {
		leader, _ = strconv.Atoi(field("Tgid"))
		inner = Inner(field("NSpid"))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if leader != tid {
		n, ok := r.leaders[leader]
		if !ok {
			return r.fail(fmt.Errorf("thread %d of process %d, which was never born", tid, leader))
		}
		r.tasks[tid], r.inner[inner] = n, n
		return nil
	}
	r.born++
	n := r.born
	by := r.tasks[parent]
	r.parents[n], r.inner[inner] = by, n
	if !r.alive[by] { // killed before it could report the birth
		by = 0
	}
	r.alive[n] = true
	r.tasks[tid], r.leaders[tid] = n, n
	_, err := r.add(&Event{Proc: by, Op: journal.OpFork, Child: n, Detail: journal.Detail{PID: int32(inner)}})
	return err
}

// Death forgets task tid and writes the exit row of a process. It tells whether
// tid was one.
func (r *Recorder) Death(tid, exit int) (process bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	// tasks keeps the id: a notification of a thread that was just killed may
	// still be under way. A new thread with this id overwrites it.
	n, process := r.leaders[tid]
	if !process {
		return false, nil
	}
	delete(r.leaders, tid)
	delete(r.alive, n)
	_, err = r.add(&Event{Proc: n, Op: journal.OpExit, Detail: journal.Detail{Exit: int32(exit)}})
	return true, err
}

// Alive is the number of processes without an exit row.
func (r *Recorder) Alive() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.alive)
}

// Process returns the number of a thread's process, 0 if it is not of the run.
func (r *Recorder) Process(tid int) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tasks[tid]
}

// Named is the number of a living process by a thread or process id of its own
// process namespace, 0 if there is none.
func (r *Recorder) Named(inner int) uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.inner[inner]; r.alive[n] {
		return n
	}
	return 0
}

// Descends tells whether process n was born below process of.
func (r *Recorder) Descends(n, of uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for n = r.parents[n]; n != 0; n = r.parents[n] {
		if n == of {
			return true
		}
	}
	return false
}

// Related tells whether two processes have an ancestor in common: of one whose maker
// was killed before it could tell, nothing is known.
func (r *Recorder) Related(a, b uint32) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.root(a) == r.root(b)
}

func (r *Recorder) root(n uint32) uint32 {
	for r.parents[n] != 0 {
		n = r.parents[n]
	}
	return n
}

// Lives tells whether a thread or process, by its outer id, is of the run and has
// not ended.
func (r *Recorder) Lives(tid int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.alive[r.tasks[tid]]
}

// Living lists the processes of the run, by outer id.
func (r *Recorder) Living() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]int, 0, len(r.leaders))
	for pid := range r.leaders {
		out = append(out, pid)
	}
	return out
}

// Chunk records bytes that pass through stream 0, 1 or 2 (stdin, stdout, stderr),
// before they are passed on.
func (r *Recorder) Chunk(stream int, b []byte, origin journal.Origin) error {
	if len(b) == 0 {
		return nil
	}
	b, removed := r.clean[stream].chunk(b)
	if removed.Over {
		if err := r.over(stream != 0); err != nil {
			return err
		}
	}
	sum, err := r.store.PutBytes(b)
	lost := errors.Is(err, objects.ErrFull)
	if lost {
		if err := r.full(err); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && !lost {
		return r.fail(err)
	}
	if r.streams[stream] == 0 {
		r.objects++
		r.streams[stream] = r.objects
	}
	e := Event{
		Op: journal.OpStdin + journal.Op(stream), Dir: journal.DirOut, Origin: journal.OriginRun,
		Size: uint64(len(b)), Object: r.streams[stream], Detail: journal.Detail{SHA256: sum[:]},
	}
	if stream == 0 {
		e.Dir, e.Origin = journal.DirIn, origin
	}
	if removed.Bytes > 0 {
		e.Flags |= journal.FlagRemoved
	}
	if lost {
		e.Dir, e.Origin, e.Size, e.Flags, e.Detail.SHA256 = 0, 0, 0, journal.FlagUnreadable, nil
	}
	_, err = r.add(&e)
	return err
}
