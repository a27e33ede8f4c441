package footprint

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func fileAttributes(f *os.File) ([32]byte, error) { return attributes(int(f.Fd())) }

// attributes digests the user's attributes and the capabilities of an open file. An
// overlay's own attributes are none of the file.
func attributes(fd int) (sum [32]byte, err error) {
	size, err := unix.Flistxattr(fd, nil)
	if err == unix.ENOTSUP || err == nil && size == 0 {
		return sum, nil
	}
	if err != nil {
		return sum, os.NewSyscallError("flistxattr", err)
	}
	list := make([]byte, size)
	if size, err = unix.Flistxattr(fd, list); err != nil {
		return sum, os.NewSyscallError("flistxattr", err)
	}
	h := sha256.New()
	some := false
	names := bytes.Split(bytes.TrimSuffix(list[:size], []byte{0}), []byte{0})
	slices.SortFunc(names, bytes.Compare)
	for _, raw := range names {
		name := string(raw)
		if (!strings.HasPrefix(name, "user.") || strings.HasPrefix(name, "user.overlay.")) && name != "security.capability" {
			continue
		}
		value := make([]byte, 64<<10) // the kernel's bound
		n, err := unix.Fgetxattr(fd, name, value)
		if err != nil {
			return sum, os.NewSyscallError("fgetxattr", err)
		}
		for _, part := range [][]byte{raw, value[:n]} {
			h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part))))
			h.Write(part)
		}
		some = true
	}
	if some {
		sum = [32]byte(h.Sum(nil))
	}
	return sum, nil
}
