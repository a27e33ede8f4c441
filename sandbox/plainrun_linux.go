package sandbox

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	brokerpkg "github.com/cleanrun-dev/cleanrun/sandbox/internal/broker"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/snapshot"
)

// ungrounded is the ground of a run without namespaces: shims are children of the
// broker, which all that loses its maker is given to.
type ungrounded struct {
	r      *recording
	theirs int // the shims' end of the link
	kills  sync.Once
	dead   atomic.Bool // kill was called
	last   atomic.Bool // what is born now is killed before it runs

	mu      sync.Mutex
	command int // process id of the present phase's command, 0 when it was swept
}

// patience is how long a process that was killed may take to end.
const patience = 10 * time.Second

// buildPlain copies the workspace and prepares the ground.
func (r *recording) buildPlain() error {
	unix.Umask(0)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("adopt orphans: %w", err)
	}
	if err := os.Chdir("/proc"); err != nil { // where names of descriptors start
		return err
	}
	var err error
	if r.index, err = snapshot.Copy(r.Plain.Source, r.Workspace); err != nil {
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1); err != nil {
		return err
	}
	r.link, r.init = pair[0], os.Getpid()
	r.ground = &ungrounded{r: r, theirs: pair[1]}
	r.words = make(chan packet)
	go r.read()
	const how = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	r.tree = &mounts.Tree{Outer: -1, Upper: -1}
	if r.tree.Lower, err = unix.Open(r.Plain.Source, how, 0); err != nil {
		return fmt.Errorf("open workspace: %w", err)
	}
	if err := r.places(); err != nil {
		return err
	}
	if r.Limits.Disk > 0 {
		r.base = r.addedPlain()
	}
	return nil
}

// plainBroker is what the broker decides by.
func (r *recording) plainBroker() *brokerpkg.Plain {
	if r.Plain == nil {
		return nil
	}
	return &brokerpkg.Plain{
		Self: os.Getpid(), Roots: r.Start.Roots, RunDir: r.RunDir, Hide: r.Plain.Hide, Hints: r.Hints, Shared: sharedFolders,
	}
}

// plainHidden tells whether a path that is absent for the run names something that
// it must not find: what lies around the task, and its own recording. The workspace is a
// copy in the run folder, so a path that leads out of it by .. means what lies beside
// the workspace itself.
func (r *recording) plainHidden(p string) bool {
	around := within(p, r.RunDir) && p != r.RunDir
	if around && r.surrounds(path.Join(path.Dir(r.Plain.Source), strings.TrimPrefix(p, r.RunDir))) {
		return true
	}
	var st unix.Stat_t
	return r.surrounds(p) || around && unix.Lstat(p, &st) == nil
}

// surrounds tells a path of something that lies around the task.
func (r *recording) surrounds(p string) bool {
	around := false
	for _, h := range r.Hints {
		if !within(p, h) {
			continue
		}
		counts := true
		for _, own := range r.Plain.Hide { // where a program may look for its own files
			if within(p, own) && (h == own || within(own, h)) {
				counts = false
			}
		}
		around = around || counts
	}
	var st unix.Stat_t
	return around && unix.Lstat(p, &st) == nil
}

func (u *ungrounded) start(kind journal.Phase, streams [3]int, terminal int) (int, error) {
	for _, fd := range streams {
		var st unix.Stat_t
		if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR {
			u.r.broker.Plain.Terminal(st.Rdev)
		}
	}
	attr := &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if u.r.Cgroup {
		attr.UseCgroupFD, attr.CgroupFD = true, cgroupFD
	}
	u.last.Store(u.dead.Load()) // no command is watched now, see sweep
	session := streams[max(terminal, 0)]
	pid, err := syscall.ForkExec("/proc/self/exe", []string{stageShim, string(rune('0' + kind))}, &syscall.ProcAttr{
		Dir: u.r.Workspace, Sys: attr,
		Files: []uintptr{uintptr(streams[0]), uintptr(streams[1]), uintptr(streams[2]), uintptr(u.theirs), configFD, uintptr(session)},
	})
	if err != nil {
		return 0, fmt.Errorf("start shim: %w", err)
	}
	u.mu.Lock()
	u.command = pid
	u.mu.Unlock()
	greeted := new(atomic.Bool)
	if err := u.watch(kind, pid, greeted); err != nil {
		return 0, err
	}
	if _, _, err := u.r.hear(wordHello); err != nil {
		return 0, err
	}
	greeted.Store(true)
	return pid, nil
}

// watch clears away what the command leaves as soon as it ends. The tracer hears of
// that end too, but in a storm of forks it may take for ever: the kernel shows it the newest first.
func (u *ungrounded) watch(kind journal.Phase, pid int, greeted *atomic.Bool) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("open process: %w", err)
	}
	go func() {
		defer unix.Close(fd)
		for {
			_, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if err == nil {
				break
			}
			if err != unix.EINTR {
				return // sweep does it
			}
		}
		if !greeted.Load() { // nobody else would say so: this process holds that end too
			u.tell(OwnFailure << 8)
			return
		}
		p := u.r.now.Load()
		if p == nil || p.main != pid {
			return
		}
		if kind == journal.PhaseGrade {
			time.Sleep(grace)
		}
		u.mu.Lock()
		mine := u.command == pid
		if mine {
			p.sweeping.Store(true)
			u.last.Store(true)
		}
		u.mu.Unlock()
		if mine {
			u.clearAway(func() bool { u.mu.Lock(); defer u.mu.Unlock(); return u.command == pid })
		}
	}()
	return nil
}

func (u *ungrounded) born(tid int) {
	if u.last.Load() {
		_ = unix.Kill(tid, unix.SIGKILL)
	}
}

// died tells how the command of a phase ended, as pid 1 does elsewhere.
func (u *ungrounded) died(exit int) {
	if u.dead.Load() {
		return
	}
	status := uint32(exit&0xff) << 8
	if exit < 0 {
		status = uint32(-exit)
	}
	u.tell(status)
}

func (u *ungrounded) tell(status uint32) {
	_, _ = unix.Write(u.theirs, []byte(wordExit+string(binary.LittleEndian.AppendUint32(nil, status)))) // nobody listens after kill
}

// sweep kills what is left until the tracer has seen the end of each process, and takes
// away the orphans. It runs on the main thread, whose children they are.
func (u *ungrounded) sweep() {
	u.mu.Lock()
	u.command = 0
	u.mu.Unlock()
	u.killAll()
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil)
		if err == unix.EINTR || err == nil && pid > 0 {
			continue
		}
		return
	}
}

// killAll ends a storm of forks too: what is born meanwhile never runs.
func (u *ungrounded) killAll() {
	u.last.Store(true)
	u.clearAway(func() bool { return true })
}

// clearAway kills what lives until nothing does, or it is no longer to.
func (u *ungrounded) clearAway(going func() bool) {
	told := map[int]bool{}
	for pause := 500 * time.Microsecond; ; pause = min(2*pause, 20*time.Millisecond) {
		left := u.r.rec.Living()
		if len(left) == 0 || !going() {
			return
		}
		now := make(map[int]bool, len(left))
		for _, pid := range left {
			if now[pid] = true; !told[pid] {
				_ = unix.Kill(pid, unix.SIGKILL) // it may have ended
			}
		}
		told = now
		time.Sleep(pause)
	}
}

func (u *ungrounded) kill() {
	u.kills.Do(func() {
		u.dead.Store(true)
		_ = unix.Shutdown(u.r.link, unix.SHUT_RDWR) // a shim that waits for a word ends
		go u.killAll()
	})
}

func (u *ungrounded) end() error {
	u.sweep()
	unix.Close(u.theirs)
	runtime.KeepAlive(u)
	for began := time.Now(); time.Since(began) < patience; {
		pid, err := unix.Wait4(-1, nil, unix.WALL|unix.WNOTHREAD|unix.WNOHANG, nil)
		switch {
		case err == unix.ECHILD:
			return nil
		case err != nil && err != unix.EINTR:
			return fmt.Errorf("wait for what is left: %w", err)
		case err == nil && pid == 0:
			time.Sleep(time.Millisecond)
		}
	}
	return errors.New("a process was never reaped")
}

// showTests puts the hidden tests where the grader finds them.
func (u *ungrounded) showTests() error {
	if u.r.Tests == "" {
		return nil
	}
	_, err := snapshot.Copy(u.r.Tests, u.r.testsAt())
	return err
}

// addedPlain is the space of all that the run works in, in bytes.
func (r *recording) addedPlain() (sum uint64) {
	for _, d := range plainFolders {
		sum += blocks(r.dir, d, 1<<62)
	}
	if r.broker == nil {
		return sum
	}
	for _, p := range r.broker.Plain.Made() { // in shared folders
		var st unix.Stat_t
		if unix.Lstat(p, &st) != nil {
			continue
		}
		if sum += uint64(st.Blocks) * 512; st.Mode&unix.S_IFMT == unix.S_IFDIR {
			sum += blocks(unix.AT_FDCWD, p, 1<<62)
		}
	}
	return sum
}
