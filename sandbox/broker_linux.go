package sandbox

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/redact"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
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
	remove  *redact.Redactor
	started func() error // waits until the start row is on the disk
	given   func() error // reads the baseline, to its end
	rec     *record.Recorder
	link    int // to pid 1 and shim
	init    int // process id of pid 1
	shim    int // process id of the shim, then of the program
	relay   *stdio.Relay
	broker  *brokerpkg.Broker

	kill     sync.Once
	cancel   atomic.Bool // the user stopped the run
	closing  atomic.Uint32
	mu       sync.Mutex
	reason   error // why the recorder gave up
	ending   unix.WaitStatus
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
	r.readBaseline()
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
	var sink vault.Sink
	if r.remove, sink, err = r.protect(details); err != nil {
		return err
	}
	begin := time.Now() // read for its monotonic part only
	started := make(chan error, 1)
	go func() { // it waits for the disk, and needs no path
		var err error
		r.journal, err = journal.NewWriter(journal.Config{
			Rows: rows, Details: sink, SaveHead: r.saveHead, Secret: r.Keep.Secret, Start: r.Start,
			Clock: func() uint64 { return uint64(time.Since(begin)) },
		})
		started <- err
	}()
	r.started = func() error { return <-started }
	return nil
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
	if err := r.started(); err != nil {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	r.rec = record.New(record.Options{
		Handles: int(min(limit.Cur, 1<<20) / 2),
		Log:     r.journal, Store: r.store, Proc: r.proc, Roots: r.Start.Roots, Workspace: r.Workspace, Hidden: r.hidden, Remove: r.remove,
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
		return m.failure()
	}
	return errors.New(m.Error)
}
