package overlay

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// attrs are the extended attributes of a file that matter here.
type attrs struct {
	opaque bool
	user   string // the program's own, in a form to compare
}

func attributes(f *os.File) (attrs, error) {
	var a attrs
	fd := int(f.Fd())
	all, err := listAttributes(fd)
	if err != nil {
		return a, err
	}
	for _, n := range all {
		key, ours := strings.CutPrefix(n, "user.overlay.")
		if !ours {
			key, ours = strings.CutPrefix(n, "trusted.overlay.")
		}
		if !ours {
			continue
		}
		v, err := attribute(fd, n)
		switch {
		case err != nil:
			return a, err
		case key == "opaque":
			a.opaque = string(v) == "y"
		case key == "redirect" || key == "metacopy":
			return a, fmt.Errorf("overlay attribute %s: the layer was mounted with another option than ours", n)
		}
	}
	own, err := userAttributes(fd)
	if err != nil {
		return a, err
	}
	for _, n := range slices.Sorted(maps.Keys(own)) {
		a.user += fmt.Sprintf("%d:%s%d:%s", len(n), n, len(own[n]), own[n])
	}
	return a, nil
}

// userAttributes are the program's own. security.* and system.* are the kernel's;
// access control lists show in the mode.
func userAttributes(fd int) (map[string][]byte, error) {
	all, err := listAttributes(fd)
	if err != nil {
		return nil, err
	}
	own := map[string][]byte{}
	for _, n := range all {
		if strings.HasPrefix(n, "user.") && !strings.HasPrefix(n, "user.overlay.") {
			if own[n], err = attribute(fd, n); err != nil {
				return nil, err
			}
		}
	}
	return own, nil
}

func listAttributes(fd int) ([]string, error) {
	b, err := xattr(func(b []byte) (int, error) { return unix.Flistxattr(fd, b) })
	if err == unix.EOPNOTSUPP || len(b) == 0 && err == nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list attributes: %w", err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00"), nil
}

func attribute(fd int, name string) ([]byte, error) {
	b, err := xattr(func(b []byte) (int, error) { return unix.Fgetxattr(fd, name, b) })
	if err != nil {
		return nil, fmt.Errorf("attribute %s: %w", name, err)
	}
	return b, nil
}

// xattr calls get with a buffer large enough.
func xattr(get func([]byte) (int, error)) ([]byte, error) {
	for {
		n, err := get(nil)
		if err != nil || n == 0 {
			return nil, err
		}
		b := make([]byte, n)
		if n, err = get(b); err == nil {
			return b[:n], nil
		} else if err != unix.ERANGE {
			return nil, err
		}
	}
}
