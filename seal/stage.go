package seal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// StageTests lays the hidden tests out below dir, an empty folder that exists,
// as the grader finds them at Phases.Tests: each file of tests at its path below
// root; a text from a data file under the name of its column, with .diff if it is
// a unified diff and .txt if not. Only the bits to read and to execute are kept.
// Two tests of one path are an error. It reads hidden tests: dir must be where
// no run can see it before grading.
func (t *Task) StageTests(dir string) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range t.Tests {
		base, names, err := t.glob(f.Pattern)
		if err != nil {
			return err
		}
		for _, name := range names {
			host := filepath.Join(base, filepath.FromSlash(name))
			rel, err := filepath.Rel(t.root(f), host)
			if err != nil || !inside(filepath.ToSlash(rel)) {
				rel = filepath.Base(host)
			}
			content, err := regular.ReadGiven(host, maxFile)
			if err != nil {
				return t.errorf(f.Pattern, "cannot read %.200q: %v", name, reason(err))
			}
			info, err := os.Stat(host)
			if err != nil {
				return err
			}
			if err := t.stage(root, f.Pattern, filepath.ToSlash(rel), content, info.Mode().Perm()&0o111 != 0); err != nil {
				return err
			}
		}
	}
	for _, s := range t.given {
		if s.kind != contraband.KindTest {
			continue
		}
		if err := t.stage(root, s.at, stagedName(s), s.content, false); err != nil {
			return err
		}
	}
	return nil
}

// stagedName is a column's name as a file name.
func stagedName(s source) string {
	name := strings.Map(func(r rune) rune {
		if r < ' ' || strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, s.label)
	if s.patch {
		return name + ".diff"
	}
	return name + ".txt"
}

func (t *Task) stage(root *os.Root, at Text, name string, content []byte, executable bool) error {
	perm := fs.FileMode(0o644)
	if executable {
		perm = 0o755
	}
	if err := root.MkdirAll(filepath.Dir(filepath.FromSlash(name)), 0o755); err != nil {
		return fmt.Errorf("hidden tests: %w", err)
	}
	f, err := root.OpenFile(filepath.FromSlash(name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if errors.Is(err, fs.ErrExist) {
		return t.errorf(at, "got a second hidden test at %.200q; give them different paths below root", name)
	}
	if err != nil {
		return fmt.Errorf("hidden tests: %w", err)
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}
