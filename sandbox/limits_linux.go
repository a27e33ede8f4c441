package sandbox

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/sandbox/internal/mounts"
)

// Smallest limits that a program can start under.
const (
	leastMemory    = 16 << 20
	leastDisk      = 64 << 10
	leastProcesses = 1
)

func checkLimits(l Limits) error {
	for _, v := range []struct {
		what       string
		got, least uint64
	}{{"Memory", l.Memory, leastMemory}, {"Disk", l.Disk, leastDisk}, {"Processes", uint64(l.Processes), leastProcesses}} {
		if v.got != 0 && v.got < v.least {
			return refused("Limits."+v.what, fmt.Sprintf("at least %d, or 0 for no limit", v.least), fmt.Sprint(v.got), "no program starts under it")
		}
	}
	return nil
}

// private is the most that one place in memory may hold.
func (l Limits) private() uint64 {
	if l.Disk == 0 || l.Memory == 0 {
		return max(l.Disk, l.Memory)
	}
	return min(l.Disk, l.Memory)
}

// set sets what the kernel enforces for each process: what it starts inherits it,
// and cannot raise it. RLIMIT_AS would count address space that Go and JavaScript
// programs reserve and never use. pid is held at its exec: the shim, a Go program,
// would not live under every limit.
func (l Limits) set(pid int, cgroup bool) error {
	for _, v := range []struct {
		which int
		name  string
		n     uint64
	}{{unix.RLIMIT_DATA, "memory", l.Memory}, {unix.RLIMIT_FSIZE, "file size", l.Disk}} {
		if v.n == 0 || v.which == unix.RLIMIT_DATA && cgroup {
			continue
		}
		var now unix.Rlimit
		err := unix.Prlimit(pid, v.which, nil, &now)
		n := min(v.n, now.Max)
		if err == nil {
			err = unix.Prlimit(pid, v.which, &unix.Rlimit{Cur: n, Max: n}, nil)
		}
		if err != nil && err != unix.ESRCH { // ESRCH: killed meanwhile
			return fmt.Errorf("set the limit of %s to %d bytes: %w", v.name, n, err)
		}
	}
	return nil
}

// names says how each limit is set: for the result, and as arguments of the final
// row's detail.
func (l Limits) names(cgroup bool) (text []string, args map[string]uint64) {
	args = map[string]uint64{}
	add := func(id, how string, n uint64, unit string) {
		if n > 0 {
			text = append(text, fmt.Sprintf("%s: %d%s, %s", strings.TrimPrefix(id, "limit-"), n, unit, how))
			args[id] = n
		}
	}
	if cgroup {
		add("limit-memory-cgroup", "of the whole run (cgroup v2)", l.Memory, " bytes")
		add("limit-processes-cgroup", "refused by the kernel (cgroup v2)", uint64(l.Processes), "")
	} else {
		add("limit-memory", "private memory of each process (RLIMIT_DATA), and of each place in memory", l.Memory, " bytes")
		add("limit-processes", "killed at birth by the tracer", uint64(l.Processes), "")
	}
	add("limit-disk", "of each file (RLIMIT_FSIZE) and of what the run adds, looked at while it runs", l.Disk, " bytes")
	if len(args) == 0 {
		args = nil
	}
	return text, args
}

// reached notes that the run met a limit, once for each.
func (r *recording) reached(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, _, _ := strings.Cut(what, ":")
	if !slices.ContainsFunc(r.met, func(m string) bool { return strings.HasPrefix(m, id+":") }) {
		r.met = append(r.met, what)
	}
}

// openPrivate opens the places in memory whose use counts, before any program
// runs.
func (r *recording) openPrivate() error {
	if r.Limits.Disk == 0 {
		return nil
	}
	list := []string{"/dev/shm"}
	for _, m := range r.Mounts {
		if m.Kind == mounts.Private {
			list = append(list, m.Path)
		}
	}
	for _, p := range list {
		fd, err := unix.Open(p, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT { // it could not be mounted, see Skipped
			continue
		}
		if err != nil {
			return fmt.Errorf("open %s: %w", p, err)
		}
		r.private = append(r.private, fd)
	}
	return nil
}

// watchLimits looks at what the run has added while a command runs. The returned
// function ends that.
func (r *recording) watchLimits(p *phase) (stop func()) {
	if r.Limits.Disk == 0 {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		pause := 100 * time.Millisecond
		for {
			select {
			case <-done:
				return
			case <-time.After(pause):
			}
			began := time.Now()
			if used := r.added(); used > r.Limits.Disk {
				p.full <- fmt.Sprintf("disk: limit reached, %d bytes added", used)
				return
			}
			// A large tree takes long to look at; the watch must not be the load.
			pause = max(100*time.Millisecond, 10*time.Since(began))
		}
	}()
	return func() {
		close(done)
		if r.Plain == nil {
			return // each place in memory is bounded by itself
		}
		if used := r.added(); used > r.Limits.Disk {
			r.reached(fmt.Sprintf("disk: limit reached, %d bytes added", used))
		}
	}
}

// added is the bytes of the workspace's upper layer and of the private places.
// What goes away meanwhile does not count.
func (r *recording) added() uint64 {
	if r.Plain != nil {
		now := r.addedPlain()
		return now - min(now, r.base)
	}
	var sum uint64
	for _, fd := range r.private {
		var st unix.Statfs_t
		if unix.Fstatfs(fd, &st) == nil {
			sum += (st.Blocks - st.Bfree) * uint64(st.Bsize)
		}
	}
	return sum + blocks(r.tree.Upper, ".", r.Limits.Disk-min(sum, r.Limits.Disk))
}

// blocks is the space of a tree, in bytes, or something above most.
func blocks(dir int, name string, most uint64) uint64 {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	var sum uint64
	for sum <= most {
		names, err := f.Readdirnames(256)
		for _, n := range names {
			var st unix.Stat_t
			if unix.Fstatat(fd, n, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
				continue
			}
			if sum += uint64(st.Blocks) * 512; st.Mode&unix.S_IFMT == unix.S_IFDIR {
				sum += blocks(fd, n, most-min(sum, most))
			}
		}
		if err != nil {
			break
		}
	}
	return sum
}

// A cgroup bounds a whole run. It is made beside the caller's own.
type cgroup struct {
	dir string
	fd  *os.File
}

// errNoCgroup says that there is no cgroup v2 hierarchy in which this process may
// make groups with the controllers that are needed.
var errNoCgroup = errors.New("no delegated cgroup v2")

// newCgroup makes a group with the limits of memory and processes.
func newCgroup(l Limits, run string) (*cgroup, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, errNoCgroup
	}
	at, ok := "", false
	for line := range strings.Lines(string(own)) {
		if at, ok = strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			break
		}
	}
	for _, base := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		var st unix.Statfs_t
		if !ok || unix.Statfs(base, &st) != nil || st.Type != unix.CGROUP2_SUPER_MAGIC {
			continue
		}
		// Groups with controllers are made beside a process's own: one that holds
		// processes cannot have such children, the root excepted.
		return makeCgroup(filepath.Join(base, filepath.Dir(at)), "cleanrun-"+run, l)
	}
	return nil, errNoCgroup
}

func makeCgroup(parent, name string, l Limits) (*cgroup, error) {
	b, err := os.ReadFile(filepath.Join(parent, "cgroup.subtree_control"))
	if err != nil {
		return nil, errNoCgroup
	}
	have := strings.Fields(string(b))
	var files [][2]string
	if l.Memory > 0 {
		files = append(files, [2]string{"memory.max", strconv.FormatUint(l.Memory, 10)})
	}
	if l.Processes > 0 {
		files = append(files, [2]string{"pids.max", strconv.FormatUint(uint64(l.Processes)+initTasks, 10)})
	}
	for _, f := range files {
		if controller, _, _ := strings.Cut(f[0], "."); !slices.Contains(have, controller) {
			return nil, errNoCgroup
		}
	}
	g := &cgroup{dir: filepath.Join(parent, name)}
	if err := os.Mkdir(g.dir, 0o755); err != nil {
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			return nil, errNoCgroup
		}
		return nil, fmt.Errorf("make cgroup: %w", err)
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(g.dir, f[0]), []byte(f[1]), 0o600); err != nil {
			return nil, errors.Join(fmt.Errorf("set limit: %w", err), os.Remove(g.dir))
		}
	}
	// Not there without swap accounting.
	_ = os.WriteFile(filepath.Join(g.dir, "memory.swap.max"), []byte("0"), 0o600)
	if g.fd, err = os.Open(g.dir); err != nil {
		return nil, errors.Join(err, os.Remove(g.dir))
	}
	return g, nil
}

// initTasks are threads of pid 1 that count in its cgroup.
const initTasks = 16

// met says which limits were reached.
func (g *cgroup) met() (met []string) {
	for _, f := range [][3]string{{"memory.events", "oom_kill", "memory: limit reached, processes killed"}, {"pids.events", "max", "processes: limit reached, forks refused"}} {
		b, _ := os.ReadFile(filepath.Join(g.dir, f[0]))
		for line := range strings.Lines(string(b)) {
			if name, n, _ := strings.Cut(strings.TrimSpace(line), " "); name == f[1] && cmp.Or(n, "0") != "0" {
				met = append(met, f[2])
			}
		}
	}
	return met
}

// close removes the group, which is empty by now.
func (g *cgroup) close() {
	g.fd.Close()
	for range 100 { // the kernel lets the last task go a moment later
		if err := os.Remove(g.dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// limit makes a cgroup for the run if it needs one and can have it.
func (s *stage) limit() (*cgroup, error) {
	if s.Limits.Memory == 0 && s.Limits.Processes == 0 {
		return nil, nil
	}
	g, err := newCgroup(s.Limits, fmt.Sprintf("%x", s.Start.Run))
	if errors.Is(err, errNoCgroup) {
		return nil, nil // then each process is limited
	}
	s.Cgroup = err == nil
	return g, err
}
