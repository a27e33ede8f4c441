package objects

import (
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// id is what an object is named after.
func (s *Store) id(sum Sum) Sum { return Source{Keys: s.Keys}.id(sum) }

func (s *Store) name(sum Sum) string { return Name(s.id(sum)) }

// has says whether the object is there: known to this Store, or on disk.
func (s *Store) has(sum Sum) (bool, error) {
	s.mu.Lock()
	_, ok := s.known[sum]
	s.mu.Unlock()
	if ok {
		return true, nil
	}
	var st unix.Stat_t
	err := unix.Fstatat(s.dir, s.name(sum), &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look up object: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return false, fmt.Errorf("object %s is no regular file (mode %#o)", s.name(sum), st.Mode)
	}
	s.addKnown(sum)
	return true, nil
}

func (s *Store) addKnown(sum Sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.known) >= maxMemo {
		clear(s.known)
	}
	s.known[sum] = struct{}{}
	if len(s.fresh) < maxFresh {
		s.fresh = append(s.fresh, sum)
	}
}

// create makes a temporary file in the store.
func (s *Store) create() (int, string, error) {
	for {
		name := "tmp-" + strconv.FormatUint(s.temp.Add(1), 10)
		fd, err := unix.Openat(s.dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err == unix.EEXIST { // left by a store that was killed
			continue
		}
		if err != nil {
			return -1, "", fmt.Errorf("create object: %w", err)
		}
		if err := unix.Fchmod(fd, 0o600); err != nil { // the umask of this thread is the program's
			unix.Close(fd)
			return -1, "", fmt.Errorf("create object: %w", err)
		}
		return fd, name, nil
	}
}

// settle closes tmp and gives it its name, or removes it if there was an error or
// the object is known.
func (s *Store) settle(tmp int, name string, sum Sum, err error) error {
	if e := unix.Close(tmp); err == nil && e != nil {
		err = fmt.Errorf("write object: %w", e)
	}
	known := false
	if err == nil {
		known, err = s.has(sum)
	}
	if err == nil && !known {
		err = s.publish(name, sum)
	}
	if err != nil || known {
		if e := unix.Unlinkat(s.dir, name, 0); err == nil && e != nil {
			err = fmt.Errorf("remove temporary object: %w", e)
		}
	}
	return err
}

func (s *Store) publish(name string, sum Sum) error {
	final := s.name(sum)
	made := &s.made[s.id(sum)[0]]
	if !made.Load() {
		err := unix.Mkdirat(s.dir, final[:2], 0o700)
		if err == nil {
			err = unix.Fchmodat(s.dir, final[:2], 0o700, 0)
		}
		if err != nil && err != unix.EEXIST {
			return fmt.Errorf("make object folder: %w", err)
		}
		made.Store(true)
	}
	// Two threads may race with the same content: either name is right.
	if err := unix.Renameat(s.dir, name, s.dir, final); err != nil {
		return fmt.Errorf("name object: %w", err)
	}
	s.addKnown(sum)
	return nil
}

// Sync makes all objects durable. Nothing may be put meanwhile.
func (s *Store) Sync() error {
	err := s.sync()
	if err != nil {
		return fmt.Errorf("sync object store: %w", err)
	}
	s.fresh = nil
	return nil
}

// sync syncs a few objects by themselves: the file system may hold gigabytes of
// other programs that nobody has asked to write.
func (s *Store) sync() error {
	if len(s.fresh) >= maxFresh {
		return unix.Syncfs(s.dir)
	}
	var fds []int
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	open := func(name string) error {
		fd, err := unix.Openat(s.dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err == nil {
			fds = append(fds, fd)
		}
		return err
	}
	for _, sum := range s.fresh {
		if err := open(s.name(sum)); err != nil {
			return err
		}
		// Started here, all are written together. Where that does not work fsync does
		// it all.
		_ = unix.SyncFileRange(fds[len(fds)-1], 0, 0, unix.SYNC_FILE_RANGE_WRITE)
	}
	dirs := map[byte]bool{}
	for _, sum := range s.fresh {
		if first := s.id(sum)[0]; !dirs[first] {
			dirs[first] = true
			if err := open(s.name(sum)[:2]); err != nil {
				return err
			}
		}
	}
	for _, fd := range append(fds, s.dir) {
		if err := unix.Fsync(fd); err != nil {
			return err
		}
	}
	return nil
}
