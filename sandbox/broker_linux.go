package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/overlay"
	"github.com/cleanrun-dev/cleanrun/internal/redact"
	"github.com/cleanrun-dev/cleanrun/internal/seccomp"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
	brokerpkg "github.com/cleanrun-dev/cleanrun/sandbox/internal/broker"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/snapshot"
)

// terminalFD is the terminal that a program's session takes, or a second stdin that
// is none. cgroupFD is the broker's, if there is one.
const (
	terminalFD = 5
	cgroupFD   = 5
)

// a recording is the broker's state.
type recording struct {
	*stage
	proc    int // outer procfs
	dir     int // run folder
	tree    *mounts.Tree
	journal *journal.Writer
	store   *objects.Store
	remove  *redact.Redactor
	started func() error // returns when the start row is on the disk
	given   func() error // reads the baseline, to its end
	rec     *record.Recorder
	ground  ground
	link    int         // to pid 1 and shim
	words   chan packet // what they say; closed at the end of the link
	init    int         // process id of pid 1
	broker  *brokerpkg.Broker
	began   time.Time // when Run was called

	// Of a run without namespaces.
	index   snapshot.Index   // the workspace as it was copied
	changes []overlay.Change // in it, at the end
	base    uint64           // bytes of what it works in, at the start

	// For grading: the hidden tests, mounted nowhere yet (-1: none); the reward
	// folder; the workspace; the private places whose use counts.
	tests, rewardDir, workDir int
	private                   []int

	now     atomic.Pointer[phase] // whose command runs
	cancel  atomic.Bool           // the user stopped the run
	closing atomic.Uint32
	cost    Cost

	mu      sync.Mutex
	reason  error // why the recorder gave up
	code    uint32
	exited  bool // code is that of the command
	ends    []PhaseEnd
	rewards []journal.Reward
	met     []string // limits that were reached
}

// broker is the stage S. It returns only on failure to set up; a run that got a
// final row is reported before it ends.
func broker(s *stage) error {
	if s.Plain != nil && s.Landlock > 0 && len(os.Args) == 1 {
		return s.wallIn()
	}
	signals := catchSignals()
	if s.Cgroup {
		unix.CloseOnExec(cgroupFD)
	}
	r := &recording{stage: s, tests: -1, began: time.Now()}
	if now, err := monotonic(); err == nil {
		r.began = r.began.Add(time.Duration(s.Began - now))
	}
	if err := r.open(); err != nil {
		return err
	}
	if s.Plain != nil {
		if err := r.buildPlain(); err != nil {
			return err
		}
		if err := r.begin(r.plainHidden); err != nil {
			return err
		}
		return r.record(signals)
	}
	if err := r.build(); err != nil {
		return err
	}
	err := r.launch()
	if err != nil && s.Register {
		return err // nothing was registered, and there is no row
	}
	if err := r.begin(r.hidden); err != nil {
		return err
	}
	if err != nil {
		r.giveUp(err)
		return r.finish(err)
	}
	return r.record(signals)
}

// record runs the phases and closes the journal. It is the same for every backend.
func (r *recording) record(signals <-chan os.Signal) error {
	arch, err := r.arch()
	if err != nil {
		return err
	}
	r.broker = &brokerpkg.Broker{Arch: arch, Recorder: r.rec, Proc: r.proc, Root: r.Root, Observe: r.Start.Observe, Abort: r.giveUp, Plain: r.plainBroker()}
	for _, d := range filepath.SplitList(lookup(r.Env, "PATH")) {
		r.broker.Path = append(r.broker.Path, filepath.Clean(d))
	}
	if p := r.Start.Phases; p != nil && p.RewardDir != "" {
		r.broker.Reward = r.rewardAt()
	}
	if r.Control {
		r.broker.Control = r.controlAt()
	}
	go r.obey(signals)
	stop := r.reportProgress()
	stopHeads := r.tellHeads()
	err = r.phases()
	stop()
	stopHeads()
	return r.finish(err)
}

// arch is the system call policy of the backend.
func (s *stage) arch() (*seccomp.Arch, error) {
	if s.Plain != nil {
		return seccomp.Plain()
	}
	return seccomp.Native()
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
	write := func() (err error) {
		begin := time.Now() // read for its monotonic part only
		r.journal, err = journal.NewWriter(journal.Config{
			Rows: rows, Details: sink, SaveHead: r.saveHead, Secret: r.Keep.Secret, Start: r.Start,
			Clock: func() uint64 { return uint64(time.Since(begin)) },
		})
		return err
	}
	if r.Register { // what it is registered with is in the start row
		r.started = func() error {
			if err := r.register(); err != nil {
				return err
			}
			return write()
		}
		return nil
	}
	started := make(chan error, 1)
	go func() { started <- write() }() // it waits for the disk, and needs no path
	r.started = func() error { return <-started }
	return nil
}

// begin takes the start row as written: from here on there is something to close.
func (r *recording) begin(hidden func(string) bool) error {
	if err := r.started(); err != nil {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	r.rec = record.New(record.Options{
		Handles: int(min(limit.Cur, 1<<20) / 2),
		Log:     r.journal, Store: r.store, Proc: r.proc, Roots: r.Start.Roots, Workspace: r.Workspace, Hidden: hidden, Remove: r.remove,
	})
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
	tree, err := mounts.Enter(r.Mounts, r.Limits.private())
	if err != nil {
		return mountError(err)
	}
	r.tree = tree
	for _, s := range tree.Skipped {
		r.Skipped = append(r.Skipped, s.Path+": "+s.Reason)
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
	null, err := unix.Open(os.DevNull, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(null)
	if r.Cgroup {
		attr.UseCgroupFD, attr.CgroupFD = true, cgroupFD
	}
	// The streams of each command follow on the link.
	in := uintptr(null)
	r.init, err = syscall.ForkExec(mounts.OuterExecutable, []string{stageInit}, &syscall.ProcAttr{
		Dir: "/", Sys: attr, Files: []uintptr{in, in, in, uintptr(pair[1]), configFD},
	})
	if err != nil {
		return fmt.Errorf("start pid 1: %w", err)
	}
	unix.Close(pair[1])
	r.ground = &namespaces{r: r}
	r.words = make(chan packet)
	go r.read()
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

// launch waits for pid 1 and lets go of the outer root.
func (r *recording) launch() error {
	if _, _, err := r.hear(wordReady); err != nil {
		return err
	}
	if r.Tests != "" {
		var err error
		if r.tests, err = mounts.Detach(r.Tests); err != nil {
			return err
		}
	}
	if err := r.tree.Finish(); err != nil {
		return err
	}
	if err := r.places(); err != nil {
		return err
	}
	return r.openPrivate()
}

func (r *recording) tell(word string) error {
	_, err := unix.Write(r.link, []byte(word))
	return err
}

// hear waits for a word. It returns the sender's process id and a descriptor
// that came with it (-1: none).
func (r *recording) hear(word string) (pid, fd int, err error) {
	p, ok := <-r.words
	if !ok {
		return 0, -1, errors.New("pid 1 ended early")
	}
	if string(p.text) != word {
		return 0, -1, stageFailure(p.text)
	}
	return p.pid, p.fd, nil
}

// read takes what pid 1 and shim say, to the end of the link.
func (r *recording) read() {
	defer close(r.words)
	for {
		buf, oob := make([]byte, 16<<10), make([]byte, 256)
		n, on, _, _, err := unix.Recvmsg(r.link, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		p := packet{text: buf[:n], fd: -1}
		messages, err := unix.ParseSocketControlMessage(oob[:on])
		if err != nil {
			return
		}
		for _, m := range messages {
			if cred, err := unix.ParseUnixCredentials(&m); err == nil {
				p.pid = int(cred.Pid)
			} else if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
				p.fd = fds[0]
			}
		}
		r.words <- p
	}
}

// stageFailure is what a later stage reported.
func stageFailure(b []byte) error {
	if _, ended := cutWord(b, wordExit); ended {
		return errors.New("the shim ended early")
	}
	m, err := parseMessage(b)
	if err != nil {
		return err
	}
	if m.What != "" {
		return m.failure()
	}
	return errors.New(m.Error)
}
