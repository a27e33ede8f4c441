package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// plainPlaces refuses a task that would look for its hidden tests or leave its reward at
// a place that cannot be made on the host: its grader would fail, and look like an
// answer that is wrong.
func (s *stage) plainPlaces() error {
	p := s.Start.Phases
	if p == nil || len(p.Grade) == 0 {
		return nil
	}
	const hint = "run where user namespaces work (cleanrun doctor), or let the grader take the place from "
	for _, v := range []struct{ at, variable string }{{p.Tests, TestsVariable}, {p.RewardDir, RewardVariable}} {
		if v.at == "" {
			continue
		}
		want := "a grader that reads " + v.variable + ": without namespaces there is no " + v.at
		if names([]byte(strings.Join(p.Grade, "\n")), v.at, v.variable) {
			return refused("Grade", want, fmt.Sprintf("%q", p.Grade), hint+v.variable)
		}
		found, err := s.naming(v.at, v.variable)
		if err != nil {
			return err
		}
		if found != "" {
			return refused("Tests", want, found+", which names "+v.at, hint+v.variable)
		}
	}
	return nil
}

// mostScript is more than a script of a grader has.
const mostScript = 4 << 20

// naming finds a file of the grader that names a place and not the variable for it:
// among the hidden tests and in the guarded paths of the workspace.
func (s *stage) naming(at, variable string) (found string, err error) {
	look := func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(p)
		if errors.Is(err, fs.ErrPermission) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, mostScript))
		if err == nil && names(b, at, variable) {
			found = p
			return fs.SkipAll
		}
		return err
	}
	var dirs []string
	if s.Tests != "" {
		dirs = append(dirs, s.Tests)
	}
	for _, g := range s.Start.Phases.Guard {
		dirs = append(dirs, filepath.Join(s.Plain.Source, g))
	}
	for _, d := range dirs {
		if err := filepath.WalkDir(d, look); err != nil {
			return "", fmt.Errorf("sandbox: look at the grader: %w", err)
		}
		if found != "" {
			break
		}
	}
	return found, nil
}

// names tells whether a text has a path, not as the end of a longer one, and not the
// variable.
func names(text []byte, at, variable string) bool {
	if bytes.Contains(text, []byte(variable)) {
		return false
	}
	for from := 0; ; {
		i := bytes.Index(text[from:], []byte(at))
		if i < 0 {
			return false
		}
		if from += i; from == 0 || !inPath(text[from-1]) {
			return true
		}
		from += len(at)
	}
}

func inPath(b byte) bool {
	return b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z' || strings.IndexByte("_-./}", b) >= 0
}
