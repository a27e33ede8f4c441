package sandbox

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/cleanrun-dev/cleanrun/scope"
)

// mountsBelow lists mount points inside dir.
func mountsBelow(dir string) ([]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("sandbox: %w", err)
	}
	defer f.Close()
	var out []string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 5 {
			continue
		}
		// The kernel writes space, tab, newline and backslash in octal.
		at := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(fields[4])
		if at != dir && within(at, dir) {
			out = append(out, at)
		}
	}
	return out, nil
}

// onOverlay tells whether a folder lies on an overlay, like a container's root.
func onOverlay(dir string) (bool, error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return false, fmt.Errorf("sandbox: %s: %w", dir, err)
	}
	return fs.Type == unix.OVERLAYFS_SUPER_MAGIC, nil
}

// foreignOwner finds an entry that is not the caller's in user and group.
func foreignOwner(dir string) (string, error) {
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	found := ""
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) {
			found = p
			return filepath.SkipAll
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != uid || st.Gid != gid {
			found = p
			return filepath.SkipAll
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("sandbox: read workspace: %w", err)
	}
	return found, nil
}

// copyTree copies regular files, directories and links; it is the caller's own
// afterwards. What the caller cannot read, the run could not either.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(p string, d fs.DirEntry, err error) error {
		rel, e := filepath.Rel(from, p)
		if e != nil {
			return e
		}
		at := filepath.Join(to, rel)
		if errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			err = os.Mkdir(at, info.Mode().Perm()|0o700)
		case info.Mode().IsRegular():
			err = copyFile(p, at, info.Mode().Perm())
			if errors.Is(err, fs.ErrPermission) {
				return nil
			}
		case info.Mode()&fs.ModeSymlink != 0:
			var target string
			if target, err = os.Readlink(p); err == nil {
				err = os.Symlink(target, at)
			}
		default:
			return nil
		}
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		times := []unix.Timespec{unix.Timespec(st.Atim), unix.Timespec(st.Mtim)}
		return unix.UtimesNanoAt(unix.AT_FDCWD, at, times, unix.AT_SYMLINK_NOFOLLOW)
	})
}

func copyFile(from, to string, perm fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm|0o200)
	if err != nil {
		return err
	}
	if _, err = out.ReadFrom(in); err == nil {
		err = out.Chmod(perm)
	}
	return errors.Join(err, out.Close())
}

// pathDirs are the directories that the programs on PATH need. A directory
// named bin or shims belongs to a prefix with its libraries (a virtual
// environment, pyenv, node): then the prefix is shown, unless it is a home or
// holds other things than tools.
func pathDirs(env []string, home string) []string {
	var out, seen []string
	add := func(d string) {
		if !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	for _, d := range filepath.SplitList(lookup(env, "PATH")) {
		if !filepath.IsAbs(d) {
			continue
		}
		d = filepath.Clean(d)
		add(d)
		if up := prefixOf(d, home); up != "" {
			add(up)
		}
		if real, ok := resolved(d); ok && !(strings.HasPrefix(real, "/usr/") && slices.Contains(seen, real)) { // /bin is often /usr/bin
			seen = append(seen, real)
			for _, target := range linkTargets(d) {
				add(target)
				if up := prefixOf(target, home); up != "" {
					add(up)
				}
			}
		}
		if filepath.Base(filepath.Dir(d)) == ".cargo" { // the programs there are links to one that starts others
			if toolchains := filepath.Join(home, ".rustup"); home != "" {
				add(toolchains)
			}
		}
	}
	return out
}

// prefixOf is the installation that a bin directory belongs to, or "".
func prefixOf(d, home string) string {
	up := filepath.Dir(d)
	switch filepath.Base(d) {
	case "bin", "sbin", "shims", "libexec":
	default:
		return ""
	}
	if up == "/" || up == home || home != "" && (up == filepath.Join(home, ".local") || up == filepath.Join(home, ".cargo")) {
		return ""
	}
	for _, sign := range []string{"lib", "lib64", "libexec", "versions", "pkg", "pyvenv.cfg"} {
		if _, err := os.Stat(filepath.Join(up, sign)); err == nil {
			return up
		}
	}
	return ""
}

// linkTargets are the directories outside d that symbolic links in d lead to.
func linkTargets(d string) []string {
	const most = 1024
	f, err := os.Open(d)
	if err != nil {
		return nil
	}
	defer f.Close()
	entries, err := f.ReadDir(most + 1)
	if err != nil || len(entries) > most {
		return nil
	}
	slices.SortFunc(entries, func(a, b os.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var out []string
	for _, e := range entries {
		if e.Type()&os.ModeSymlink == 0 {
			continue
		}
		link := filepath.Join(d, e.Name())
		if to, err := os.Readlink(link); err != nil || !strings.Contains(to, "/") {
			continue // to a file beside it; if that is a link, it has its own turn
		}
		real, ok := resolved(link)
		if !ok {
			continue
		}
		if up := filepath.Dir(real); up != d && !strings.HasPrefix(up, "/usr/") && !slices.Contains(out, up) {
			out = append(out, up)
		}
	}
	return out
}

// resolved is filepath.EvalSymlinks of an absolute path, done by the kernel: a
// directory of programs may hold hundreds of links.
func resolved(p string) (string, bool) {
	fd, err := unix.Open(p, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", false
	}
	defer unix.Close(fd)
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return real, err == nil && filepath.IsAbs(real)
}

// umask reads the file mode mask of this process. umask(2) would have to change
// it for all threads to tell it.
func umask() (int, error) {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("sandbox: umask: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "Umask:"); ok {
			m, err := strconv.ParseUint(strings.TrimSpace(v), 8, 12)
			return int(m), err
		}
	}
	return 0, errors.New("sandbox: /proc/self/status has no Umask")
}

// monotonic is the time that all processes of the machine share.
func monotonic() (int64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0, fmt.Errorf("sandbox: clock: %w", err)
	}
	return t.Nano(), nil
}

func realDir(field, p string) (string, error) {
	abs, err := filepath.Abs(p)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", refused(field, "an existing folder", fmt.Sprintf("%q (%v)", p, err), "make it first")
	}
	st, err := os.Stat(abs)
	if err != nil || !st.IsDir() {
		return "", refused(field, "a folder", abs, "make it first")
	}
	if err := scope.CheckPath(abs); err != nil {
		return "", refused(field, "a path in UTF-8", strconv.QuoteToASCII(abs), "rename it")
	}
	return abs, nil
}
