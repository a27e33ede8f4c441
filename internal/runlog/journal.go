package runlog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
)

// Errors of a run that cannot be logged any further.
var (
	// ErrNotRegistered is of a run whose start row names no log.
	ErrNotRegistered = errors.New("the run was not registered in a log before it started")
	// ErrOpen is of a run that was killed: without a closing row there is no FINAL.
	ErrOpen = errors.New("the run's journal is open: it was killed, or still goes on")
)

// readJournal reads the start of a run and what its closing row and head are, final
// nil if there is none.
func readJournal(dir string) (start *journal.Start, final *journal.Final, head journal.Head, err error) {
	name := filepath.Join(dir, journal.RowsFile)
	f, err := regular.At(name, os.O_RDONLY)
	if err != nil {
		return nil, nil, head, err
	}
	defer f.Close()
	c := journal.NewChecker()
	for line, err := range journal.Rows(f) {
		if err == nil {
			_, err = c.Add(line.Raw)
		}
		if err != nil && c.Summary().Start != nil {
			return c.Summary().Start, nil, head, fmt.Errorf("%w (%s: %w)", ErrOpen, name, err)
		}
		if err != nil {
			return nil, nil, head, fmt.Errorf("%s: %w", name, err)
		}
	}
	s := c.Summary()
	if s.Start == nil {
		return nil, nil, head, fmt.Errorf("%s: no rows: nothing ran", name)
	}
	return s.Start, s.Final, s.Head, nil
}

// heads proves of each CHECKPOINT that the journal in the run folder begins as it
// says, for a compact bundle; nil for another.
func (c *Config) heads(checkpoints []receipt.LogEntry) (paths [][][32]byte, err error) {
	if !c.Compact || len(checkpoints) == 0 {
		return nil, nil
	}
	name := filepath.Join(c.Dir, journal.RowsFile)
	f, err := regular.At(name, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var rows journal.Tree
	for line, err := range journal.Rows(f) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		rows.Append(line.Raw)
	}
	for i := range checkpoints {
		u, err := entry.Parse(checkpoints[i].Statement)
		if err != nil {
			return nil, err
		}
		e, err := u.Verify(c.Signer.Public())
		if err != nil {
			return nil, err
		}
		path, err := rows.Consistency(e.Checkpoint().Size, rows.Size())
		if err != nil {
			return nil, fmt.Errorf("%s: CHECKPOINT %d: %w", name, i+1, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}
