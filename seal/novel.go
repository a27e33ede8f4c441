package seal

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/canon"
)

// A run is a sequence of lines that the pre-image does not have.
type run []string

// novel returns the runs of s that are new: the lines whose canonical form is
// no line of the pre-image. Lines without letters and digits neither break a
// run nor make one.
func (s *source) novel() ([]run, error) {
	if s.patch {
		return patchRuns(s.content)
	}
	old := lineSet(s.pre)
	var runs []run
	var open run
	for _, line := range splitLines(s.content) {
		c := string(canon.Canonical([]byte(line)))
		switch {
		case c == "":
		case old[c]:
			runs, open = closeRun(runs, open)
		default:
			open = append(open, line)
		}
	}
	runs, _ = closeRun(runs, open)
	return runs, nil
}

func closeRun(runs []run, open run) ([]run, run) {
	if len(open) > 0 {
		runs = append(runs, open)
	}
	return runs, nil
}

// canonical is the form of the whole run.
func (r run) canonical() []byte {
	return canon.Canonical([]byte(strings.Join(r, "\n")))
}

func splitLines(content []byte) []string {
	return strings.Split(string(content), "\n")
}

func lineSet(content []byte) map[string]bool {
	set := map[string]bool{}
	for _, line := range splitLines(content) {
		set[string(canon.Canonical([]byte(line)))] = true
	}
	return set
}

// patchRuns returns the runs of + lines of a unified diff. Lines that the same
// diff shows as context or takes away are not new: they were moved. A - line
// does not break a run, since it is not in the new file.
func patchRuns(diff []byte) ([]run, error) {
	lines := splitLines(diff)
	old := map[string]bool{}
	hunks := 0
	// Twice through: all old lines must be known first.
	err := eachHunkLine(lines, func(mark byte, text string) {
		if mark == '@' {
			hunks++
		} else if mark != '+' {
			old[string(canon.Canonical([]byte(text)))] = true
		}
	})
	if err != nil {
		return nil, err
	}
	if hunks == 0 {
		return nil, fmt.Errorf("got no hunk (@@ -a,b +c,d @@), want a unified diff")
	}
	var runs []run
	var open run
	err = eachHunkLine(lines, func(mark byte, text string) {
		c := string(canon.Canonical([]byte(text)))
		switch {
		case mark == '-' || mark == '+' && c == "":
		case mark == '+' && !old[c]:
			open = append(open, text)
		default:
			runs, open = closeRun(runs, open)
		}
	})
	runs, _ = closeRun(runs, open)
	return runs, err
}

// eachHunkLine visits '@' for each hunk and then its lines with their mark. The
// counts of the hunk decide what is a line of it: a removed line that begins
// with "-- " is no file header.
func eachHunkLine(lines []string, visit func(mark byte, text string)) error {
	for i := 0; i < len(lines); i++ {
		if !strings.HasPrefix(lines[i], "@@ ") {
			continue
		}
		minus, plus, ok := hunkCounts(lines[i])
		if !ok {
			return fmt.Errorf("line %d: got no hunk header, want @@ -a,b +c,d @@", i+1)
		}
		visit('@', "")
		for minus > 0 || plus > 0 {
			if i++; i == len(lines) {
				return fmt.Errorf("line %d: the diff ends inside a hunk", i)
			}
			line := strings.TrimSuffix(lines[i], "\r")
			switch {
			case strings.HasPrefix(line, "+") && plus > 0:
				plus--
			case strings.HasPrefix(line, "-") && minus > 0:
				minus--
			case (line == "" || line[0] == ' ') && plus > 0 && minus > 0: // some tools cut the blank of an empty line
				plus, minus = plus-1, minus-1
				visit(' ', strings.TrimPrefix(line, " "))
				continue
			case strings.HasPrefix(line, `\`): // no newline at end of file
				continue
			default:
				return fmt.Errorf("line %d: got a line that the counts of its hunk do not allow", i+1)
			}
			visit(line[0], line[1:])
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
