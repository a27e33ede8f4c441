package seal

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/canon"
)

// A run is a sequence of lines that the pre-image does not have, in canonical
// form. A line feed is where the form begins anew, so the form of a run is that
// of its lines, joined.
type run struct {
	form  []byte
	lines [][]byte
}

// A runner collects runs. The forms of all lines stand in one buffer.
type runner struct {
	buf  []byte
	ends []int // of the open run's lines, after the start of it
	open int   // where the open run begins
	runs []run
}

// add canonicalizes a line and keeps it if it is new. Lines without letters and
// digits neither break a run nor make one.
func (r *runner) add(line []byte, old map[string]bool) {
	start := len(r.buf)
	r.buf = canon.Append(r.buf, line)
	switch form := r.buf[start:]; {
	case len(form) == 0:
	case old[string(form)]:
		r.buf = r.buf[:start]
		r.end()
	default:
		r.ends = append(r.ends, len(r.buf))
	}
}

// end closes the open run.
func (r *runner) end() {
	if len(r.ends) > 0 {
		form := r.buf[r.open:len(r.buf):len(r.buf)]
		lines := make([][]byte, len(r.ends))
		from := r.open
		for i, to := range r.ends {
			lines[i] = form[from-r.open : to-r.open]
			from = to
		}
		r.runs = append(r.runs, run{form, lines})
	}
	r.open, r.ends = len(r.buf), r.ends[:0]
}

// novel returns the runs of s that are new: the lines whose canonical form is
// no line of the pre-image.
func (s *source) novel() ([]run, error) {
	if s.patch {
		return patchRuns(s.content)
	}
	old := map[string]bool{}
	if s.changes {
		old = lineSet(s.pre)
	}
	r := &runner{buf: make([]byte, 0, len(s.content))}
	for _, line := range splitLines(s.content) {
		r.add(line, old)
	}
	r.end()
	return r.runs, nil
}

func splitLines(content []byte) [][]byte { return bytes.Split(content, []byte("\n")) }

func lineSet(content []byte) map[string]bool {
	set := map[string]bool{}
	var buf []byte
	for _, line := range splitLines(content) {
		buf = canon.Append(buf[:0], line)
		if !set[string(buf)] {
			set[string(buf)] = true
		}
	}
	return set
}

// patchRuns returns the runs of + lines of a unified diff. Lines that the same
// diff shows as context or takes away are not new: they were moved. A - line
// does not break a run, since it is not in the new file.
func patchRuns(diff []byte) ([]run, error) {
	lines := splitLines(diff)
	old := map[string]bool{}
	var buf []byte
	// Twice through: all old lines must be known first.
	err := checkPatch(lines, func(mark byte, text []byte) {
		if mark != '+' {
			buf = canon.Append(buf[:0], text)
			old[string(buf)] = true
		}
	})
	if err != nil {
		return nil, err
	}
	r := &runner{buf: make([]byte, 0, len(diff))}
	err = eachHunkLine(lines, func(mark byte, text []byte) {
		switch mark {
		case '-':
		case '+':
			r.add(text, old)
		default:
			r.end()
		}
	})
	r.end()
	return r.runs, err
}

// checkPatch visits the lines of all hunks, of which there must be one.
func checkPatch(lines [][]byte, visit func(mark byte, text []byte)) error {
	hunks := 0
	err := eachHunkLine(lines, func(mark byte, text []byte) {
		if mark == '@' {
			hunks++
		} else {
			visit(mark, text)
		}
	})
	if err == nil && hunks == 0 {
		err = fmt.Errorf("got no hunk (@@ -a,b +c,d @@), want a unified diff")
	}
	return err
}

// eachHunkLine visits '@' for each hunk and then its lines with their mark. The
// counts of the hunk decide what is a line of it: a removed line that begins
// with "-- " is no file header.
func eachHunkLine(lines [][]byte, visit func(mark byte, text []byte)) error {
	for i := 0; i < len(lines); i++ {
		if !bytes.HasPrefix(lines[i], []byte("@@ ")) {
			continue
		}
		minus, plus, ok := hunkCounts(string(lines[i]))
		if !ok {
			return fmt.Errorf("line %d: got no hunk header, want @@ -a,b +c,d @@", i+1)
		}
		visit('@', nil)
		for minus > 0 || plus > 0 {
			if i++; i == len(lines) {
				return fmt.Errorf("line %d: the diff ends inside a hunk", i)
			}
			line := bytes.TrimSuffix(lines[i], []byte("\r"))
			mark := byte(' ') // some tools cut the blank of an empty line
			if len(line) > 0 {
				mark, line = line[0], line[1:]
			}
			switch {
			case mark == '+' && plus > 0:
				plus--
			case mark == '-' && minus > 0:
				minus--
			case mark == ' ' && plus > 0 && minus > 0:
				plus, minus = plus-1, minus-1
			case mark == '\\': // no newline at end of file
				continue
			default:
				return fmt.Errorf("line %d: got a line that the counts of its hunk do not allow", i+1)
			}
			visit(mark, line)
		}
	}
	return nil
}

// hunkCounts reads "@@ -a[,b] +c[,d] @@".
func hunkCounts(header string) (minus, plus int, ok bool) {
	f := strings.Fields(header)
	if len(f) < 4 || f[0] != "@@" || f[3] != "@@" || f[1][0] != '-' || f[2][0] != '+' {
		return 0, 0, false
	}
	count := func(s string) int {
		start, n, found := strings.Cut(s[1:], ",")
		if _, err := strconv.ParseUint(start, 10, 31); err != nil {
			return -1
		}
		if !found {
			return 1
		}
		c, err := strconv.ParseUint(n, 10, 31)
		if err != nil {
			return -1
		}
		return int(c)
	}
	minus, plus = count(f[1]), count(f[2])
	return minus, plus, minus >= 0 && plus >= 0
}

// isPatch tells a unified diff from other text. A text with the lines of a diff
// that cannot be read as one is an error: taken as plain text, its context would
// be ground truth that the workspace holds.
func isPatch(text []byte) (bool, error) {
	meant := bytes.Contains(text, []byte("\n@@ -")) && bytes.Contains(text, []byte("\n+++ ")) || bytes.HasPrefix(text, []byte("@@ -")) || bytes.HasPrefix(text, []byte("diff --git "))
	if !meant {
		return false, nil
	}
	err := checkPatch(splitLines(text), func(byte, []byte) {})
	if err != nil && !bytes.Contains(text, []byte("\n@@ -")) && !bytes.HasPrefix(text, []byte("@@ -")) {
		return false, nil // a rename or a binary patch has no lines
	}
	return err == nil, err
}
