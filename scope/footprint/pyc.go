package footprint

import (
	"encoding/binary"
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// A Compiled names a cached module of Python, by the rules of PEP 3147 and PEP 488.
type Compiled struct {
	Path     string // <folder>/__pycache__/<module>.<tag>[.opt-N].pyc
	Source   string // <folder>/<module>.py
	Tag      string // "cpython-312"
	Optimize int    // 0, 1 or 2
}

const cacheFolder = "__pycache__"

// ParseCompiled reads the name of a cached module. Any other path, also below a
// __pycache__ folder, is none.
func ParseCompiled(p string) (c Compiled, ok bool) {
	dir, name := path.Split(p)
	dir = strings.TrimSuffix(dir, "/")
	parts := strings.Split(name, ".")
	if path.Base(dir) != cacheFolder || len(parts) < 3 || parts[len(parts)-1] != "pyc" {
		return c, false
	}
	parts = parts[:len(parts)-1]
	if level, is := strings.CutPrefix(parts[len(parts)-1], "opt-"); is {
		if level != "1" && level != "2" || len(parts) < 3 {
			return c, false
		}
		c.Optimize, _ = strconv.Atoi(level)
		parts = parts[:len(parts)-1]
	}
	c.Path, c.Tag = p, parts[len(parts)-1]
	module := strings.Join(parts[:len(parts)-1], ".")
	number, is := strings.CutPrefix(c.Tag, "cpython-")
	if _, err := strconv.ParseUint(number, 10, 16); !is || err != nil || module == "" {
		return c, false
	}
	c.Source = path.Join(path.Dir(dir), module+".py")
	return c, true
}

// Minor is the N of Python 3.N that the tag names, or an error.
func (c Compiled) Minor() (int, error) {
	minor, ok := strings.CutPrefix(c.Tag, "cpython-3")
	n, err := strconv.Atoi(minor)
	if !ok || err != nil {
		return 0, fmt.Errorf("tag %q: got another Python, want cpython-3N", c.Tag)
	}
	return n, nil
}

// ParseTemporary tells which cached module a temporary name was made for: the import
// system writes <name>.<number> and renames it.
func ParseTemporary(p string) (Compiled, bool) {
	i := strings.LastIndexByte(p, '.')
	if i < 0 {
		return Compiled{}, false
	}
	if _, err := strconv.ParseUint(p[i+1:], 10, 64); err != nil {
		return Compiled{}, false
	}
	return ParseCompiled(p[:i])
}

const pycHeader = 16

// CheckHeader compares the header of a cached module (PEP 552) with its source's time of
// writing and size. It proves that Python would load the file for this source, not that
// the code is the source's: whoever writes the file writes the header too. A file that
// names a hash is refused: the unchecked kind is loaded whatever the source says, and
// nobody leaves the checked kind behind by importing. The error says why it is a change.
func CheckHeader(pyc []byte, written time.Time, size int64) error {
	if len(pyc) < pycHeader {
		return fmt.Errorf("got %d bytes, want a header of %d", len(pyc), pycHeader)
	}
	flags := binary.LittleEndian.Uint32(pyc[4:])
	if flags != 0 {
		return fmt.Errorf("got flags %d, want 0: it is held to a hash or to nothing, not to its source's time and size", flags)
	}
	if got, want := binary.LittleEndian.Uint32(pyc[8:]), uint32(written.Unix()); got != want {
		return fmt.Errorf("got the time of writing %d, want its source's, %d", got, want)
	}
	if got := binary.LittleEndian.Uint32(pyc[12:]); got != uint32(size) {
		return fmt.Errorf("got a source of %d bytes, want %d", got, size)
	}
	return nil
}
