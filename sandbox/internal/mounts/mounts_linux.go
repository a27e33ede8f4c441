// Package mounts builds the file system that a run sees.
//
// Enter works in a fresh user and mount namespace and needs CAP_SYS_ADMIN there,
// so it is the same code for root and for an ordinary user. It only adds mount
// flags, never clears one: flags inherited from the outer namespace are locked.
package mounts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Kind of a mount.
type Kind uint8

const (
	Bind    Kind = iota // the outer Source, read-only, with everything mounted below it
	Private             // an empty, writable tmpfs
	Mask                // an empty tmpfs that nobody can read: hides what is below
	Overlay             // Lower under Upper, writable
	File                // a read-only file of the given Content
	Dir                 // an empty directory of the read-only root
	Copy                // a writable private copy of the outer file Source
	Planted             // a read-only file of the given Content, over what is there
	Pin                 // a folder of a private place that cannot be renamed
)

// A Mount is one place of the tree. Paths are inside the sandbox, clean and
// absolute.
type Mount struct {
	Path     string
	Kind     Kind
	Source   string // Bind: outer path; Overlay: outer path of the lower layer
	State    string // Overlay: outer directory that holds upper and work
	Content  []byte // File, Planted
	ReadOnly bool   // Overlay: not to be changed
	Main     bool   // Overlay: the workspace
	Memory   bool   // Overlay: upper layer in memory, State is not used
	Size     uint64 // Private, and Overlay in memory: most bytes it may hold; 0 is the kernel's default
	Must     bool   // the run is refused without it; else it is skipped and named
}

// Skipped is a mount that could not be made.
type Skipped struct{ Path, Reason string }

// A Tree is the outer side of what Enter built.
type Tree struct {
	Outer   int // the outer root, a detached recursive copy, O_PATH
	Upper   int // upper layer of the workspace, O_RDONLY directory
	Lower   int // its lower layer
	Skipped []Skipped
}

// The base is a tmpfs: the outer root hangs at outerRoot, the new one grows at
// newRoot.
const (
	outerRoot = "/o"
	newRoot   = "/n"
)

// Enter moves the calling process (all threads) onto a base tmpfs and builds
// the tree of ms, parents first, under it. Until Finish the outer root stays
// reachable, which pid 1 needs to mount a new procfs. shared is the most that
// /dev/shm may hold, in bytes; 0 is the kernel's default.
func Enter(ms []Mount, shared uint64) (*Tree, error) {
	unix.Umask(0)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return nil, fmt.Errorf("make mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", "/tmp", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return nil, fmt.Errorf("mount base tmpfs on /tmp: %w", err)
	}
	for _, d := range []string{"/tmp" + outerRoot, "/tmp" + newRoot} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return nil, err
		}
	}
	if err := unix.PivotRoot("/tmp", "/tmp"+outerRoot); err != nil {
		return nil, fmt.Errorf("pivot to base: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return nil, err
	}
	if err := unix.Mount(newRoot, newRoot, "", unix.MS_BIND, ""); err != nil {
		return nil, fmt.Errorf("bind new root: %w", err)
	}
	t := &Tree{Outer: -1, Upper: -1, Lower: -1}
	// A plain descriptor of the outer root would lose the mounts below it when
	// the root is detached; a cloned tree keeps them.
	outer, err := unix.OpenTree(unix.AT_FDCWD, outerRoot, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, fmt.Errorf("clone outer root: %w", err)
	}
	t.Outer = outer
	for i := range ms {
		if err := t.mount(&ms[i], i); err != nil {
			if ms[i].Must {
				return nil, err
			}
			if !errors.Is(err, fs.ErrNotExist) {
				t.Skipped = append(t.Skipped, Skipped{ms[i].Path, err.Error()})
			}
		}
	}
	if err := dev(shared); err != nil {
		return nil, err
	}
	// Until Finish, /dev in this process means the sandbox's own.
	if err := os.Symlink(newRoot+"/dev", "/dev"); err != nil {
		return nil, err
	}
	if err := linkOuter(); err != nil {
		return nil, err
	}
	return t, os.MkdirAll(newRoot+"/proc", 0o755)
}

// linkOuter makes the outer root's entries reachable under their own names on
// the base, until Finish. The program may be linked dynamically, and the kernel
// looks for its interpreter and libraries when pid 1 is executed.
func linkOuter() error {
	entries, err := os.ReadDir(outerRoot)
	if err != nil {
		return err
	}
	for _, e := range entries {
		err := os.Symlink(outerRoot+"/"+e.Name(), "/"+e.Name())
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

func (t *Tree) mount(m *Mount, i int) error {
	at := newRoot + m.Path
	switch m.Kind {
	case Bind:
		return bind(outerRoot+m.Source, at)
	case Dir:
		return os.MkdirAll(at, 0o755)
	case Private, Mask:
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		mode, flags := "mode=700", uintptr(unix.MS_NOSUID|unix.MS_NODEV)
		if m.Path == "/tmp" || m.Path == "/var/tmp" {
			mode = "mode=1777"
		}
		if m.Kind == Mask {
			mode, flags = "mode=000,size=4k", flags|unix.MS_RDONLY
		}
		if m.Size > 0 {
			mode += sizeOption(m.Size)
		}
		if err := unix.Mount("tmpfs", at, "tmpfs", flags, mode); err != nil {
			return fmt.Errorf("mount tmpfs on %s: %w", m.Path, err)
		}
		return nil
	case File:
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, m.Content, 0o444); err != nil {
			return err
		}
		return readOnlyBind(at, at)
	case Copy:
		return private(outerRoot+m.Source, at, fmt.Sprintf("/c%d", i))
	case Planted:
		return planted(m.Content, at, fmt.Sprintf("/p%d", i))
	case Pin: // the kernel renames no mount point
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(at, at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("pin %s: %w", m.Path, err)
		}
		return nil
	case Overlay:
		return t.overlay(m, i)
	}
	return fmt.Errorf("mount %s: unknown kind %d", m.Path, m.Kind)
}

// overlay binds the layers to short names first: overlayfs splits its options at
// commas and colons, and outer paths would stand in the run's mount table.
func (t *Tree) overlay(m *Mount, i int) error {
	lower, state := fmt.Sprintf("/l%d", i), fmt.Sprintf("/s%d", i)
	for _, d := range []string{lower, state} {
		if err := os.Mkdir(d, 0o755); err != nil {
			return err
		}
	}
	if err := unix.Mount(outerRoot+m.Source, lower, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind layer %s: %w", m.Source, err)
	}
	if err := layers(m, lower, state); err != nil {
		return err
	}
	if err := os.MkdirAll(newRoot+m.Path, 0o755); err != nil {
		return err
	}
	opt := "lowerdir=" + lower + ",upperdir=" + state + "/upper,workdir=" + state + "/work,userxattr,xino=auto"
	if err := unix.Mount("overlay", newRoot+m.Path, "overlay", unix.MS_NOSUID|unix.MS_NODEV, opt); err != nil {
		return fmt.Errorf("mount overlay on %s: %w", m.Path, err)
	}
	if m.ReadOnly {
		a := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
		if err := unix.MountSetattr(unix.AT_FDCWD, newRoot+m.Path, 0, &a); err != nil {
			return fmt.Errorf("make %s read-only: %w", m.Path, err)
		}
	}
	if !m.Main {
		return nil
	}
	var err error
	if t.Upper, err = unix.Open(state+"/upper", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open upper layer: %w", err)
	}
	if t.Lower, err = unix.Open(lower, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err != nil {
		return fmt.Errorf("open lower layer: %w", err)
	}
	return nil
}

// layers prepares upper and work. The merged root takes owner and mode from the
// upper layer, so they are made like the lower one's.
func layers(m *Mount, lower, state string) error {
	if m.Memory {
		mode := "mode=700"
		if m.Size > 0 {
			mode += sizeOption(m.Size)
		}
		if err := unix.Mount("tmpfs", state, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, mode); err != nil {
			return fmt.Errorf("mount upper layer in memory: %w", err)
		}
		for _, d := range []string{"/upper", "/work"} {
			if err := os.Mkdir(state+d, 0o700); err != nil {
				return err
			}
		}
	} else if err := unix.Mount(outerRoot+m.State, state, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind layer %s: %w", m.State, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(lower, &st); err != nil {
		return err
	}
	// An owner that is not mapped here was copied, or is nobody's inside.
	if err := unix.Chown(state+"/upper", int(st.Uid), int(st.Gid)); err != nil && err != unix.EPERM && err != unix.EINVAL {
		return fmt.Errorf("owner of %s: %w", m.Path, err)
	}
	return unix.Chmod(state+"/upper", st.Mode&0o7777)
}

func sizeOption(n uint64) string { return fmt.Sprintf(",size=%d", n) }

// dev builds a small /dev. The device binds must not be nodev.
func dev(shared uint64) error {
	const d = newRoot + "/dev"
	if err := os.MkdirAll(d, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", d, "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, "mode=755"); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	for _, n := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		if err := touch(d + "/" + n); err != nil {
			return err
		}
		if err := unix.Mount(outerRoot+"/dev/"+n, d+"/"+n, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("bind /dev/%s: %w", n, err)
		}
	}
	for _, l := range [][2]string{
		{"pts/ptmx", "ptmx"}, {"/proc/self/fd", "fd"}, {"/proc/self/fd/0", "stdin"},
		{"/proc/self/fd/1", "stdout"}, {"/proc/self/fd/2", "stderr"},
	} {
		if err := os.Symlink(l[0], d+"/"+l[1]); err != nil {
			return err
		}
	}
	for _, p := range []string{"/pts", "/shm"} {
		if err := os.Mkdir(d+p, 0o755); err != nil {
			return err
		}
	}
	// No gid=5: the tty group is not mapped for a user.
	if err := unix.Mount("devpts", d+"/pts", "devpts", unix.MS_NOSUID|unix.MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	mode := "mode=1777"
	if shared > 0 {
		mode += sizeOption(shared)
	}
	if err := unix.Mount("tmpfs", d+"/shm", "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, mode); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	return nil
}

// Finish makes the new root read-only and lets go of the outer one. pivot_root
// moves the roots of all processes of the mount namespace, pid 1 included.
func (t *Tree) Finish() error {
	a := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV}
	if err := unix.MountSetattr(unix.AT_FDCWD, newRoot, 0, &a); err != nil {
		return fmt.Errorf("make root read-only: %w", err)
	}
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot to new root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("detach outer root: %w", err)
	}
	return os.Chdir("/")
}
