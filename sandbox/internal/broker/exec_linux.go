package broker

import (
	"bytes"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox/internal/record"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// maxInterpreters is the kernel's limit on #! chains.
const maxInterpreters = 5

const maxArgv = 6 << 20 // of an argument vector, as the kernel bounds it

// executable is one file of an exec.
type executable struct {
	fd   int
	name string
	st   unix.Stat_t
	head []byte
}

func (x *executable) close() { unix.Close(x.fd) }

func (w *worker) exec(c *call, dirfd int32, addr, argvAddr, envAddr uint64, flags int) {
	e := &record.Event{Op: journal.OpExec}
	p, err := w.path(c, addr)
	var at place
	if err == 0 {
		at, err = w.start(c, dirfd, p)
	}
	if err == 0 && flags&^(unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW) != 0 {
		err = unix.EINVAL
	}
	var argv []string
	if err == 0 {
		argv, err = w.vector(c, argvAddr, maxArgv)
	}
	if err != 0 {
		w.fail(c, e, err)
		return
	}
	defer at.close()
	x, err := w.executable(c, &at, flags)
	if err != 0 {
		e.Path = w.name(c, at, flags&unix.AT_SYMLINK_NOFOLLOW == 0)
		w.asked(e, p)
		w.fail(c, e, err)
		return
	}
	defer x.close()
	e.Path = x.name
	w.asked(e, p)
	env := w.environment(c, envAddr)
	e.Detail.Env = names(env)
	e.Detail.Cwd = w.cwd(c)
	script := p
	if dirfd != noDir && !strings.HasPrefix(p, "/") { // the name that the kernel gives a script
		script = "/dev/fd/" + strconv.Itoa(int(dirfd))
		if p != "" {
			script += "/" + p
		}
	}
	var want image
	rows := []*record.Event{e}
	w.executed(c, e, x)
	if len(argv) == 0 {
		argv = []string{""}
	}
	want.argv = argv
	err = w.chain(c, x, script, &want, &rows)
	if err != 0 {
		undone(e)
		w.fail(c, e, err)
		return
	}
	text := []byte(strings.Join(argv, "\x00"))
	args := &record.Event{Op: journal.OpArgv, Flags: journal.FlagText, Size: uint64(len(text))}
	args.Dir, args.Origin = journal.DirOut, journal.OriginRun
	args.Detail.Text, args.Detail.Argv = text, argv
	w.mu.Lock()
	first := !w.command
	w.command = true
	w.expected[c.tid] = want
	w.mu.Unlock()
	if first { // environment and command line come from the driver
		if !w.environ { // the same for all phases, but for the places of the grader
			w.environ = true
			if err := w.given(c, env); err != nil {
				w.fatal(err)
			}
		}
		w.Recorder.SetPhase(w.phase)
		args.Dir, args.Origin = journal.DirIn, journal.OriginDriver
	}
	for _, row := range rows {
		row.Proc = c.proc
		row.Detail.Syscall = c.name
		if _, err := w.Recorder.Add(row); err != nil {
			w.fatal(err)
		}
	}
	if w.phase == journal.PhaseGrade {
		if at := w.fakeTool(x, w.lexical(at)); at != "" {
			if err := w.Recorder.Guard(c.proc, at, journal.Guard{Kind: journal.GuardHook}); err != nil {
				w.fatal(err)
			}
		}
	}
	w.proceed(c, args)
}

// executable opens a file that is to be executed, with the checks that the
// kernel will make.
func (w *worker) executable(c *call, at *place, flags int) (*executable, syscall.Errno) {
	x := &executable{fd: -1}
	var e syscall.Errno
	if at.path == "" && flags&unix.AT_EMPTY_PATH != 0 && at.own {
		fd, err := unix.FcntlInt(uintptr(at.dir), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return nil, errnoOf(err)
		}
		x.fd = fd
	} else {
		x.fd, e = w.target(c, at, flags&unix.AT_SYMLINK_NOFOLLOW == 0)
	}
	if e != 0 {
		return nil, e
	}
	return w.inspect(x)
}

// inspect takes over x.fd, an O_PATH descriptor.
func (w *worker) inspect(x *executable) (*executable, syscall.Errno) {
	refuse := func(e syscall.Errno) (*executable, syscall.Errno) {
		unix.Close(x.fd)
		return nil, e
	}
	if err := unix.Fstat(x.fd, &x.st); err != nil {
		return refuse(errnoOf(err))
	}
	switch x.st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
	case unix.S_IFLNK:
		return refuse(unix.ELOOP)
	default:
		return refuse(unix.EACCES)
	}
	if err := unix.Faccessat2(x.fd, "", unix.X_OK, unix.AT_EMPTY_PATH|unix.AT_EACCESS); err != nil {
		return refuse(unix.EACCES)
	}
	x.name = w.nameOf(x.fd)
	if e := w.permit(x.fd, x.name, scope.Read); e != 0 {
		return refuse(e)
	}
	fd, err := unix.Openat(w.proc, again(x.fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		if e := w.rights.With(func() {
			fd, err = unix.Openat(w.proc, again(x.fd), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		}); e != nil {
			return refuse(unix.EIO)
		}
	}
	if err != nil {
		// Execute-only: the kernel would keep even the broker from the memory of
		// its process, so none of its calls could be answered.
		return refuse(unix.EACCES)
	}
	unix.Close(x.fd)
	x.fd = fd
	b := make([]byte, 256) // BINPRM_BUF_SIZE
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return refuse(errnoOf(err))
	}
	x.head = b[:n]
	return x, 0
}

// fakeTool is the name under which grading executes a program that the run put before
// another one of that name on PATH; asked is the path that was asked for. "" if it does not.
func (w *worker) fakeTool(x *executable, asked string) string {
	for _, p := range []string{x.name, asked} {
		dir, base := path.Split(p)
		if dir = path.Clean(dir); !slices.Contains(w.Path, dir) {
			continue
		}
		f := w.Recorder.File(&x.st)
		f.Lock()
		early := w.Recorder.Early(f, p)
		f.Unlock()
		if early && slices.ContainsFunc(w.Path, func(d string) bool {
			return d != dir && unix.Access(path.Join(d, base), unix.X_OK) == nil
		}) {
			return p
		}
	}
	return ""
}

// executed puts the file's content into its row. Two execs may name each
// other's files, so the lock is not held until the row is written.
func (w *worker) executed(c *call, e *record.Event, x *executable) {
	f := w.Recorder.File(&x.st)
	f.Lock()
	defer f.Unlock()
	e.Object = f.Number
	if x.name == "" {
		f.Nameless(c.proc)
		e.Detail.Note = "file without a name"
	}
	if err := w.expose(c, e, f, x.fd, true); err != nil {
		w.fatal(err)
	}
	// Stat again: identity must be that of the version that was hashed.
	if err := unix.Fstat(x.fd, &x.st); err != nil {
		w.fatal(err)
	}
}

// chain adds the interpreters: those of #! lines, then the ELF interpreter.
func (w *worker) chain(c *call, x *executable, script string, want *image, rows *[]*record.Event) syscall.Errno {
	for depth := 0; ; depth++ {
		if !bytes.HasPrefix(x.head, []byte("#!")) {
			break
		}
		if depth == maxInterpreters {
			return unix.ELOOP
		}
		interpreter, arg, ok := parseShebang(x.head)
		if !ok {
			return unix.ENOEXEC
		}
		argv := []string{interpreter}
		if arg != "" {
			argv = append(argv, arg)
		}
		argv = append(argv, script)
		want.argv = append(argv, want.argv[1:]...)
		script = interpreter
		next, err := w.interpreter(c, interpreter, rows)
		if err != 0 {
			return err
		}
		defer next.close()
		x = next
	}
	want.file = identify(&x.st)
	loader, foreign := elfInterpreter(x.fd, x.head)
	if foreign {
		return unix.ENOEXEC // a 32-bit program would be killed at its first call
	}
	if loader == "" {
		return 0
	}
	l, err := w.interpreter(c, loader, rows)
	if err != 0 {
		return err
	}
	defer l.close()
	var fs unix.Statfs_t
	fixed := unix.Fstatfs(l.fd, &fs) == nil && fs.Flags&unix.ST_RDONLY != 0
	if w.Plain != nil { // the broker is what keeps it from being changed
		fixed = accessOf(w.Plain.root(l.name)) == scope.Read
	}
	if !fixed {
		want.loader = identify(&l.st)
	}
	return 0
}

// interpreter opens what a #! line or an ELF file names, and makes its row. A
// relative name starts in the caller's directory.
func (w *worker) interpreter(c *call, p string, rows *[]*record.Event) (*executable, syscall.Errno) {
	at, err := w.start(c, noDir, p)
	if err != 0 {
		return nil, err
	}
	defer at.close()
	x, err := w.executable(c, &at, 0)
	if err != 0 {
		return nil, err
	}
	e := &record.Event{Op: journal.OpInterp, Path: x.name}
	if x.name == "" {
		e.Path = w.lexical(at)
	}
	w.asked(e, p)
	w.executed(c, e, x)
	*rows = append(*rows, e)
	return x, 0
}

// environment is what an exec hands to the new program.
func (w *worker) environment(c *call, addr uint64) []string {
	env, err := w.vector(c, addr, maxArgv)
	if err != 0 {
		return nil
	}
	return env
}

// names of variables. Values that the run sets itself are never stored.
func names(env []string) []string {
	out := make([]string, len(env))
	for i, s := range env {
		out[i], _, _ = strings.Cut(s, "=")
	}
	return out
}

// given records the environment that the driver gives to the command, a row of
// its own so that disclosing the command line does not disclose it.
func (w *worker) given(c *call, env []string) error {
	if len(env) == 0 {
		return nil
	}
	text := []byte(strings.Join(env, "\x00"))
	_, err := w.Recorder.Add(&record.Event{
		Proc: c.proc, Op: journal.OpArgv, Dir: journal.DirIn, Origin: journal.OriginDriver, Flags: journal.FlagText, Size: uint64(len(text)),
		Detail: journal.Detail{Text: text, Syscall: c.name, Note: "environment"},
	})
	return err
}

func (w *worker) cwd(c *call) string {
	at, err := w.start(c, noDir, "")
	if err != 0 {
		return ""
	}
	defer at.close()
	return w.nameOf(at.dir)
}
