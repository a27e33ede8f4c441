package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/overlay"
	"github.com/cleanrun-dev/cleanrun/internal/seccomp"
	"github.com/cleanrun-dev/cleanrun/journal"
	brokerpkg "github.com/cleanrun-dev/cleanrun/sandbox/internal/broker"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/stdio"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/tracer"
)

// terminalFD is the terminal that the program's session takes, or a second
// stdin that is none.
const terminalFD = 5

// a recording is the broker's state.
type recording struct {
	*stage
	proc    int // outer procfs
	dir     int // run folder
	tree    *mounts.Tree
	journal *journal.Writer
	store   *objects.Store
	rec     *record.Recorder
	link    int // to pid 1 and shim
	init    int // process id of pid 1
	shim    int // process id of the shim, then of the program
	relay   *stdio.Relay
	broker  *brokerpkg.Broker

	kill     sync.Once
	cancel   atomic.Bool // the user stopped the run
	mu       sync.Mutex
	reason   error // why the recorder gave up
	status   unix.WaitStatus
	exited   bool          // pid 1 told the program's status
	farewell chan struct{} // the link is at its end
}

// broker is the stage S. It returns only on failure to set up; a run that got a
// final row is reported before it ends.
func broker(s *stage) error {
	signals := catchSignals()
	r := &recording{stage: s, farewell: make(chan struct{})}
	if err := r.open(); err != nil {
		return err
	}
	if err := r.build(); err != nil {
		return err
	}
	if err := r.launch(); err != nil {
		r.giveUp(err)
		_ = unix.Kill(r.init, unix.SIGKILL) // it dies with this process anyhow
		return r.finish(tracer.New(nil), err)
	}
	return r.watch(signals)
}

// open takes what must be reached by descriptor once the root has changed.
func (r *recording) open() error {
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return err
	}
	var err error
	if r.proc, err = unix.Open("/proc", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open /proc: %w", err)
	}
	if r.dir, err = unix.Open(r.RunDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open run folder: %w", err)
	}
	objectsFD, err := unix.Openat(r.dir, objectsDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open object store: %w", err)
	}
	if r.store, err = objects.New(objectsFD); err != nil {
		return err
	}
	b, err := os.ReadFile(filepath.Join(r.RunDir, journal.SecretFile))
	if err != nil {
		return err
	}
	if len(b) != len(journal.Secret{}) {
		return fmt.Errorf("%s: got %d bytes, want %d", journal.SecretFile, len(b), len(journal.Secret{}))
	}
	rows, err := r.create(journal.RowsFile)
	if err != nil {
		return err
	}
	if err := journal.Lock(rows); err != nil {
		return err
	}
	details, err := r.create(journal.DetailsFile)
	if err != nil {
		return err
	}
	begin := time.Now() // read for its monotonic part only
	r.journal, err = journal.NewWriter(journal.Config{
		Rows: rows, Details: details, SaveHead: r.saveHead, Secret: journal.Secret(b), Start: r.Start,
		Clock: func() uint64 { return uint64(time.Since(begin)) },
	})
	return err
}

func (r *recording) create(name string) (*os.File, error) {
	fd, err := unix.Openat(r.dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_APPEND|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// saveHead replaces the checkpoint: durable.WriteFile works on paths, which are
// gone here.
func (r *recording) saveHead(text []byte) error {
	const temp = journal.HeadFile + ".new"
	fd, err := unix.Openat(r.dir, temp, unix.O_WRONLY|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(fd), temp)
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := unix.Renameat(r.dir, temp, r.dir, journal.HeadFile); err != nil {
		return err
	}
	return unix.Fsync(r.dir)
}

// build makes the file system and pid 1.
func (r *recording) build() error {
	tree, err := mounts.Enter(r.Mounts)
	if err != nil {
		return mountError(err)
	}
	r.tree = tree
	for _, s := range tree.Skipped {
		r.Skipped = append(r.Skipped, s.Path+": "+s.Reason)
	}
	r.rec = record.New(record.Options{
		Log: r.journal, Store: r.store, Proc: r.proc, Roots: r.Start.Roots, Workspace: r.Workspace, Hidden: r.hidden,
	})
	origin := journal.OriginDriver
	for _, ch := range r.Start.Channels {
		if ch.Name == "stdin" && ch.Role == "model" {
			origin = journal.OriginModel
		}
	}
	r.relay, err = stdio.New([3]int{0, 1, 2}, "/dev/pts/ptmx", func(stream int, b []byte) error {
		return r.rec.Chunk(stream, b, origin)
	})
	if err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	// Credentials carry the shim's process id as this process sees it.
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return err
	}
	r.link = pair[0]
	attr := &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Pdeathsig:  unix.SIGKILL,
	}
	if !r.Root {
		attr.AmbientCaps = []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_NET_ADMIN, unix.CAP_SETPCAP}
	}
	streams, terminal := r.relay.Program()
	session := streams[max(terminal, 0)]
	r.init, err = syscall.ForkExec(mounts.OuterExecutable, []string{stageInit}, &syscall.ProcAttr{
		Dir: "/", Sys: attr,
		Files: []uintptr{uintptr(streams[0]), uintptr(streams[1]), uintptr(streams[2]), uintptr(pair[1]), configFD, uintptr(session)},
	})
	if err != nil {
		return fmt.Errorf("start pid 1: %w", err)
	}
	unix.Close(pair[1])
	r.relay.Start()
	return nil
}

func mountError(err error) error {
	u := &Unavailable{What: "mount", Err: err}
	if errors.Is(err, unix.EINVAL) {
		u.What = "overlay"
		u.Hint = "the run folder must not lie on an overlay itself (a container's root): choose one on a volume or tmpfs with -o"
	} else if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		u.Hint = "mounting is blocked in user namespaces (AppArmor, or a container): allow it, or run on the host"
	} else {
		return err
	}
	return u
}

// launch brings the shim to its filter and starts the workers.
func (r *recording) launch() error {
	if _, _, err := r.hear(wordReady); err != nil {
		return err
	}
	if err := r.tree.Finish(); err != nil {
		return err
	}
	if err := r.tell(); err != nil {
		return err
	}
	pid, _, err := r.hear(wordHello)
	if err != nil {
		return err
	}
	r.shim = pid
	return nil
}

func (r *recording) tell() error {
	_, err := unix.Write(r.link, []byte(wordGo))
	return err
}

// hear waits for a word. It returns the sender's process id and a descriptor
// that came with it (-1: none).
func (r *recording) hear(word string) (pid, fd int, err error) {
	b, pid, fd, err := r.packet()
	if err != nil {
		return 0, -1, err
	}
	if string(b) != word {
		return 0, -1, stageFailure(b)
	}
	return pid, fd, nil
}

func (r *recording) packet() (b []byte, pid, fd int, err error) {
	buf, oob := make([]byte, 16<<10), make([]byte, 256)
	for {
		n, on, _, _, err := unix.Recvmsg(r.link, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return nil, 0, -1, fmt.Errorf("pid 1 ended early (%v)", err)
		}
		pid, fd = 0, -1
		messages, err := unix.ParseSocketControlMessage(oob[:on])
		if err != nil {
			return nil, 0, -1, err
		}
		for _, m := range messages {
			if cred, err := unix.ParseUnixCredentials(&m); err == nil {
				pid = int(cred.Pid)
			} else if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
				fd = fds[0]
			}
		}
		return buf[:n], pid, fd, nil
	}
}

// stageFailure is what a later stage reported.
func stageFailure(b []byte) error {
	m, err := parseMessage(b)
	if err != nil {
		return err
	}
	if m.What != "" {
		return &Unavailable{What: m.What, Err: errors.New(m.Error), Hint: m.Hint}
	}
	return errors.New(m.Error)
}

// watch runs the program to its end.
func (r *recording) watch(signals <-chan os.Signal) error {
	t := tracer.New(r)
	t.Orphaned = func(tid int) bool {
		field, err := record.Status(r.proc, tid)
		if err != nil {
			return true
		}
		parent, err := strconv.Atoi(field("PPid"))
		return err != nil || parent == r.init
	}
	arch, err := seccomp.Native()
	if err != nil {
		return err
	}
	r.broker = &brokerpkg.Broker{Arch: arch, Recorder: r.rec, Proc: r.proc, Root: r.Root, Abort: r.giveUp}
	if r.Control {
		r.broker.Control = ControlPath
	}
	go r.obey(signals)
	if err := r.seize(t); err != nil {
		close(r.farewell)
		r.giveUp(err)
		return r.finish(t, err)
	}
	// On another thread: the shim's threads stop for the tracer at any time, and
	// only this thread can let them go on.
	go r.attend()
	return r.finish(t, nil)
}

// seize traces the shim, which waits for a word, and numbers it as process 1.
func (r *recording) seize(t *tracer.Tracer) error {
	if err := t.Seize(r.shim, r.threads); err != nil {
		return &Unavailable{What: "ptrace", Err: err, Hint: "tracing is blocked (a container, or kernel.yama.ptrace_scope=3)"}
	}
	if err := r.rec.Birth(0, r.shim); err != nil {
		return err
	}
	tids, err := r.threads(r.shim)
	if err != nil {
		return err
	}
	for _, tid := range tids {
		if tid == r.shim {
			continue
		}
		if err := r.rec.Birth(0, tid); err != nil {
			return err
		}
	}
	return nil
}

// attend takes the listener, starts the workers, lets the program start, and
// hears pid 1 to its end.
func (r *recording) attend() {
	defer close(r.farewell)
	begin := func() error {
		if err := r.tell(); err != nil {
			return err
		}
		_, fd, err := r.hear(wordFD)
		if err != nil {
			return err
		}
		l, err := seccomp.NewListener(fd)
		if err != nil {
			return &Unavailable{What: "seccomp-notify", Err: err}
		}
		r.broker.Listener = l
		if err := r.broker.Start(workers); err != nil {
			return err
		}
		return r.tell()
	}
	if err := begin(); err != nil {
		r.giveUp(err)
	}
	r.listen()
}

func (r *recording) threads(pid int) ([]int, error) {
	fd, err := unix.Openat(r.proc, strconv.Itoa(pid)+"/task", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("list threads of %d: %w", pid, err)
	}
	f := os.NewFile(uintptr(fd), "task")
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var tids []int
	for _, n := range names {
		tid, err := strconv.Atoi(n)
		if err != nil {
			return nil, err
		}
		tids = append(tids, tid)
	}
	return tids, nil
}

// Birth, Exec and Death are the tracer's events.
func (r *recording) Birth(parent, tid int) error { return r.rec.Birth(parent, tid) }

func (r *recording) Exec(caller, pid int) (bool, error) { return r.broker.Executed(caller, pid) }

func (r *recording) Death(tid, exit int) error { return r.rec.Death(tid, exit) }

// listen takes the program's status from pid 1.
func (r *recording) listen() {
	for {
		b, _, _, err := r.packet()
		if err != nil {
			return
		}
		if status, ok := cutWord(b, wordExit); ok && len(status) == 4 {
			r.mu.Lock()
			r.status, r.exited = unix.WaitStatus(binary.LittleEndian.Uint32(status)), true
			r.mu.Unlock()
			continue
		}
		r.giveUp(stageFailure(b))
	}
}

// obey handles the launcher's words and the signals of the terminal.
func (r *recording) obey(signals <-chan os.Signal) {
	go func() { // a launcher that ends kills this process; a word of it is a signal
		var b [16]byte
		for {
			n, err := unix.Read(linkFD, b[:])
			if err == unix.EINTR {
				continue
			}
			if err != nil || n == 0 {
				return
			}
			switch syscall.Signal(b[0]) {
			case unix.SIGKILL:
				r.cancel.Store(true)
				r.killAll()
			case unix.SIGWINCH:
				r.relay.Resize()
			case unix.SIGINT:
				if !r.relay.Interrupt() {
					_ = unix.Kill(-r.shim, unix.SIGINT) // it may be gone
				}
			case unix.SIGQUIT:
				_ = unix.Kill(-r.shim, unix.SIGQUIT)
			}
		}
	}()
	for range signals { // caught; the launcher passes on what counts
	}
}

func (r *recording) killAll() {
	r.kill.Do(func() { _ = unix.Kill(r.init, unix.SIGKILL) }) // ESRCH: it ended by itself
}

// giveUp ends the run because of a failure of the recorder.
func (r *recording) giveUp(err error) {
	r.mu.Lock()
	if r.reason == nil {
		r.reason = err
	}
	r.mu.Unlock()
	r.killAll()
}

// finish waits until nothing of the run is left and closes the journal.
func (r *recording) finish(t *tracer.Tracer, failure error) error {
	stop := r.reportProgress()
	reaped := false
	err := t.Wait(r.init, func(unix.WaitStatus) { reaped = true })
	stop()
	if err == nil && !reaped {
		err = errors.New("pid 1 was never reaped")
	}
	if err != nil {
		r.giveUp(err)
	}
	if r.broker != nil {
		<-r.farewell // then nobody starts workers any more
		r.broker.Wait()
	}
	if r.reason != nil {
		r.relay.Abort()
	}
	if err := r.relay.Finish(); err != nil {
		r.giveUp(err)
	}
	f, note := r.final(t)
	head, err := r.journal.Final(f, &journal.Detail{Note: note})
	if err == nil {
		err = r.store.Sync()
	}
	if failure == nil {
		failure = r.reason
	}
	if failure == nil {
		failure = err
	}
	if failure != nil {
		return failure
	}
	res := &Result{Code: int(f.Code), Outcome: f.Outcome, Rows: head.Size, Root: head.Root, Skipped: r.Skipped}
	if sum := r.journal.Summary(); sum.Final != nil {
		res.Final = *sum.Final
	}
	send(message{Result: res})
	return nil
}

// final collects what the closing row binds. Whatever does not add up makes the
// run abandoned, with the reason.
func (r *recording) final(t *tracer.Tracer) (journal.Final, string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := journal.Final{Outcome: journal.Abandoned}
	if b := r.broker; b != nil && b.Listener != nil {
		f.Received, f.Answered, f.Void = b.Received.Load(), b.Answered.Load(), b.Void.Load()
		if over, err := b.Listener.Hangup(0); r.reason == nil && (err != nil || !over) {
			r.reason = fmt.Errorf("tasks are left under the filter (%v)", err)
		}
		if r.reason == nil && f.Received != f.Answered+f.Void {
			r.reason = fmt.Errorf("%d notifications received, %d answered, %d void", f.Received, f.Answered, f.Void)
		}
	}
	if n := t.Live(); r.reason == nil && n != 0 {
		r.reason = fmt.Errorf("%d tasks without an end", n)
	}
	if r.reason == nil {
		r.reason = r.rec.DateAll()
	}
	if r.reason == nil {
		f.Delta, r.reason = r.delta()
	}
	switch {
	case r.reason != nil:
		return f, r.reason.Error()
	case r.cancel.Load():
		f.Outcome, f.Code = journal.Cancelled, 128+uint32(unix.SIGKILL)
		return f, "stopped by the user"
	case !r.exited:
		r.reason = errors.New("pid 1 ended without telling how the program ended")
		return f, r.reason.Error()
	}
	f.Code = uint32(r.status.ExitStatus())
	if r.status.Signaled() {
		f.Code = 128 + uint32(r.status.Signal())
	}
	f.Outcome = journal.Completed
	if f.Code != 0 {
		f.Outcome = journal.Failed
	}
	return f, ""
}

// delta compares the upper layer with the journaled writes.
func (r *recording) delta() (journal.DeltaResult, error) {
	changes, err := overlay.Changes(r.tree.Upper, r.tree.Lower)
	if err != nil {
		return journal.DeltaResult{}, err
	}
	var d journal.DeltaResult
	for _, c := range changes {
		d.Changed++
		if !r.rec.Explained(path.Join(r.Workspace, c.Path)) {
			d.Unexplained++
		}
	}
	return d, nil
}

// hidden tells whether a path that is absent inside names something outside,
// below one of the hints.
func (r *recording) hidden(p string) bool {
	if within(p, r.RunDir) {
		return false
	}
	for _, h := range r.Hints {
		if !within(p, h) {
			continue
		}
		fd, err := unix.Openat2(r.tree.Outer, p, &unix.OpenHow{
			Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
		})
		if err == nil {
			unix.Close(fd)
			return true
		}
		return false
	}
	return false
}

func (r *recording) reportProgress() (stop func()) {
	done := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		var last uint64
		for {
			select {
			case <-done:
				return
			case <-tick.C:
			}
			if n := r.rec.Rows(); n != last {
				last = n
				send(message{Rows: n})
			}
		}
	})
	return func() { close(done); group.Wait() }
}
