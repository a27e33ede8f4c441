package broker

import (
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// Plain makes a Broker serve a run without namespaces. Then no mount keeps the
// host from the run: the broker itself decides by the path of what it opened,
// before it opens it for use. What is outside every root is absent for the run.
type Plain struct {
	Self   int          // process id of the broker
	Roots  []scope.Root // of the start row
	RunDir string       // closed but for the roots in it
	Hide   []string     // trees that are absent even with Observe: the user's home
	Hints  []string     // of Hide, what is there with Observe: the task's surroundings
	// Shared are folders of all users, such as /tmp: the run gets at what it made
	// there, and at nothing else.
	Shared []string

	mu   sync.Mutex
	mine map[string]bool // entries of Shared that the run made
	ptys map[uint64]bool // terminals of the run, by device number
}

// Terminal lets the run use a terminal of the host.
func (p *Plain) Terminal(device uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ptys == nil {
		p.ptys = map[uint64]bool{}
	}
	p.ptys[device] = true
}

// Made lists what the run made in shared folders, to be removed after it.
func (p *Plain) Made() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for at := range p.mine {
		out = append(out, at)
	}
	return out
}

// made notes a new name.
func (p *Plain) made(name string) {
	for _, dir := range p.Shared {
		if path.Dir(name) != dir {
			continue
		}
		p.mu.Lock()
		if p.mine == nil {
			p.mine = map[string]bool{}
		}
		p.mine[name] = true
		p.mu.Unlock()
	}
}

func within(p, dir string) bool {
	return p == dir || dir == "/" || strings.HasPrefix(p, dir+"/")
}

// root is the deepest root that holds a path, nil if none does.
func (p *Plain) root(name string) *scope.Root {
	var found *scope.Root
	for i := range p.Roots {
		r := &p.Roots[i]
		tree := r.Mode != scope.ReadOne && r.Mode != scope.WriteOne
		if (name == r.Path || tree && within(name, r.Path)) && (found == nil || len(r.Path) > len(found.Path)) {
			found = r
		}
	}
	return found
}

func accessOf(r *scope.Root) scope.Access {
	if r == nil {
		return scope.None
	}
	switch r.Mode {
	case scope.WriteTree, scope.WriteOne:
		return scope.Write
	case scope.NoTree:
		return scope.None
	}
	return scope.Read
}

// permit decides about what an O_PATH descriptor leads to; name is its path.
func (w *worker) permit(fd int, name string, need scope.Access) syscall.Errno {
	if w.Plain == nil {
		return 0
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return errnoOf(err)
	}
	return w.decide(name, &st, need)
}

// decide answers with ENOENT for what the run must not know of, else with the errno
// of a read-only or foreign place.
func (w *worker) decide(name string, st *unix.Stat_t, need scope.Access) syscall.Errno {
	kind := st.Mode & unix.S_IFMT
	switch {
	case name == "": // pipes, sockets and files without a name: only the run's own are in reach
		if kind == unix.S_IFIFO || kind == unix.S_IFSOCK || kind == 0 || st.Nlink == 0 {
			return 0
		}
		return unix.ENOENT
	case kind == unix.S_IFCHR || kind == unix.S_IFBLK:
		return w.Plain.device(st)
	case within(name, "/proc"):
		return w.process(name, need)
	}
	r := w.Plain.root(name)
	if kind == unix.S_IFIFO && accessOf(r) != scope.Write && w.outcome(name, accessOf(r), scope.Read) == 0 {
		return unix.EACCES // who is at the other end of a pipe of the host is not of the run
	}
	if r != nil && r.Class == scope.Kernel && kind != unix.S_IFDIR && within(name, "/dev") {
		return unix.EACCES
	}
	if r != nil && r.Class == scope.Private && w.Plain.foreign(name, r.Path) {
		return unix.EACCES
	}
	return w.outcome(name, accessOf(r), need)
}

// decideName decides about a name that is absent, or that is changed and not what it
// leads to.
func (w *worker) decideName(dir int, base, name string) syscall.Errno {
	if w.Plain == nil {
		return 0
	}
	if within(name, "/proc") || within(name, "/dev") && !within(name, "/dev/shm") {
		return unix.EACCES
	}
	r := w.Plain.root(name)
	if r != nil && r.Class == scope.Private && w.Plain.foreign(name, r.Path) {
		var st unix.Stat_t
		exists := unix.Fstatat(dir, strings.TrimRight(base, "/"), &st, unix.AT_SYMLINK_NOFOLLOW) == nil
		if exists || path.Dir(name) != r.Path {
			return unix.EACCES
		}
	}
	return w.outcome(name, accessOf(r), scope.Write)
}

func (w *worker) outcome(name string, have, need scope.Access) syscall.Errno {
	switch {
	case have >= need:
		return 0
	case have != scope.None:
		return unix.EROFS
	case !w.Observe || w.Plain.hides(name):
		return unix.ENOENT
	case need == scope.Read:
		return 0 // the row says that it was out of scope
	}
	return unix.EROFS
}

// foreign tells whether a path leads to an entry of a shared folder that the run did not make.
func (p *Plain) foreign(name, root string) bool {
	for _, dir := range p.Shared {
		if dir != root || name == dir {
			continue
		}
		top, _, _ := strings.Cut(name[len(dir)+1:], "/")
		p.mu.Lock()
		defer p.mu.Unlock()
		return !p.mine[dir+"/"+top]
	}
	return false
}

// hides tells what observing does not show.
func (p *Plain) hides(name string) bool {
	if within(name, p.RunDir) {
		return true
	}
	for _, h := range p.Hide {
		if !within(name, h) {
			continue
		}
		shown := false
		for _, hint := range p.Hints {
			shown = shown || within(name, hint) && within(hint, h) && hint != h
		}
		if !shown {
			return true
		}
	}
	return false
}

// device lets through what has no content of the host, and the run's terminals.
func (p *Plain) device(st *unix.Stat_t) syscall.Errno {
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return unix.EACCES
	}
	major, minor := unix.Major(st.Rdev), unix.Minor(st.Rdev)
	switch {
	case major == 1 && (minor == 3 || minor == 5 || minor == 7 || minor == 8 || minor == 9): // null zero full random urandom
		return 0
	case major == 5 && (minor == 0 || minor == 2): // tty ptmx
		return 0
	case major >= 136 && major <= 143:
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.ptys[st.Rdev] {
			return 0
		}
	}
	return unix.EACCES
}

// process decides about procfs: what is the run's own, and the kernel's for reading.
// Other processes of the host are absent.
func (w *worker) process(name string, need scope.Access) syscall.Errno {
	first, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(name, "/proc"), "/"), "/")
	pid, err := strconv.Atoi(first)
	switch {
	case err == nil && !w.Recorder.Lives(pid):
		return unix.ENOENT
	case err == nil && need == scope.Write && (within(rest, "attr") || strings.Contains(rest, "/attr/")):
		return unix.EACCES
	case err == nil:
		return 0
	case need == scope.Write:
		return unix.EACCES
	}
	switch first {
	case "kcore", "vmcore", "kmsg", "mem":
		return unix.EACCES
	}
	return 0
}

// quiet answers a call that needs no row.
func (w *worker) quiet(c *call, answer func() error) {
	switch err := answer(); {
	case err == nil, isGone(err):
		w.Answered.Add(1)
	default:
		w.fatal(err)
	}
}

func (w *worker) goOn(c *call) { w.quiet(c, func() error { return w.Listener.Continue(c.ID) }) }

// plainDescriptor performs a change of metadata through a descriptor itself, on what it
// looked at: the number in the caller's register may mean another file a moment later.
func (w *worker) plainDescriptor(c *call, e *record.Event, fd int) {
	e.Detail.Args = map[string]uint64{"fd": c.Args[0] & 0x7fffffff}
	if err := w.permit(fd, e.Path, scope.Write); err != 0 {
		w.fail(c, e, err)
		return
	}
	w.mark(e, fd)
	var name string
	var value []byte
	if strings.HasSuffix(c.name, "xattr") {
		var err syscall.Errno
		if name, value, err = w.attribute(c); err != 0 {
			w.fail(c, e, err)
			return
		}
	}
	if e.Path != "" {
		w.Recorder.Touched(e.Path)
	}
	if w.gone(c, e) {
		return
	}
	var err error
	switch c.name {
	case "fchmod":
		err = unix.Fchmodat(w.proc, again(fd), uint32(c.Args[1])&0o7777, 0)
	case "fchown":
		err = unix.Fchownat(fd, "", int(int32(c.Args[1])), int(int32(c.Args[2])), unix.AT_EMPTY_PATH)
	case "fsetxattr":
		err = w.inProc(func() error { return unix.Setxattr(again(fd), name, value, int(int32(c.Args[4]))) })
	case "fremovexattr":
		err = w.inProc(func() error { return unix.Removexattr(again(fd), name) })
	default: // flags of a file system
		err = unix.EOPNOTSUPP
	}
	w.fail(c, e, errnoOf(err))
}

// attribute reads name and value of an extended attribute.
func (w *worker) attribute(c *call) (name string, value []byte, e syscall.Errno) {
	name, e = w.text(c, c.Args[1], 256)
	switch {
	case e == unix.ENAMETOOLONG:
		return "", nil, unix.ERANGE
	case e != 0 || !strings.Contains(c.name, "set"):
		return name, nil, e
	case c.Args[3] > 64<<10: // XATTR_SIZE_MAX
		return "", nil, unix.E2BIG
	}
	if value = make([]byte, c.Args[3]); len(value) > 0 {
		e = w.memory(c, c.Args[2], value)
	}
	return name, value, e
}
