package eval

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/submission"
)

// ErrNothing says that a run folder has no start row: nothing ran in it.
var ErrNothing = errors.New("nothing was recorded")

// Inspect says from its journal alone how an attempt ended. It cuts a torn tail.
// An open journal is a killed attempt. journal.ErrLocked: the attempt still runs.
// ErrNothing: no row was written, so no program was started.
func Inspect(runDir string, c Cell) (Result, error) {
	name := filepath.Join(runDir, journal.RowsFile)
	st, err := os.Stat(name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && st.Size() == 0 {
		return Result{}, ErrNothing
	}
	if err != nil {
		return Result{}, err
	}
	if _, err := journal.Recover(runDir); err != nil {
		return Result{}, fmt.Errorf("%s: %w", runDir, err)
	}
	f, err := regular.At(name, os.O_RDONLY)
	if err != nil {
		return Result{}, err
	}
	defer f.Close()
	check := journal.NewChecker()
	var rewards []journal.Reward
	for line, err := range journal.Rows(f) {
		if err != nil {
			return Result{}, fmt.Errorf("%s: %w", name, err)
		}
		row, err := check.Add(line.Raw)
		if err != nil {
			return Result{}, fmt.Errorf("%s: %w", name, err)
		}
		if row.Reward != nil {
			rewards = append(rewards, *row.Reward)
		}
	}
	s := check.Summary()
	if s.Start == nil {
		return Result{}, ErrNothing // the torn tail was the first row
	}
	if s.Start.Task != c.Task || s.Start.Trial != c.Trial || s.Start.Attempt != c.Attempt {
		return Result{}, fmt.Errorf("%s: the recording is of %v, want %v", runDir, Cell{s.Start.Task, s.Start.Trial, s.Start.Attempt}, c)
	}
	r := Result{Cell: c, Run: hex.EncodeToString(s.Start.Run[:]), Backend: s.Start.Backend, Outcome: Killed}
	if s.Closed() {
		r.Outcome, r.Code = s.Final.Outcome.String(), s.Final.Code
		r.Root = hex.EncodeToString(s.Head.Root[:])
	}
	r.Score = observed(rewards)
	r.Retry = submission.Infrastructure(submission.Inconclusive, failures(&s))
	return r, nil
}

// failures are the reason ids of failures of the recorder that the journal shows
// without any key.
func failures(s *journal.Summary) (out []string) {
	has := func(failed bool, id string) {
		if failed {
			out = append(out, id)
		}
	}
	f := s.Final
	has(f == nil, attest.ReasonOpen)
	has(f != nil && f.Outcome == journal.Abandoned, attest.ReasonAbandoned)
	has(f != nil && f.Received != f.Answered+f.Void, attest.ReasonNotifications)
	return out
}

// observed is the score that the rows hold, nil if there is none or if two
// sources differ.
func observed(rewards []journal.Reward) *Score {
	var first *big.Rat
	for _, w := range rewards {
		v, ok := new(big.Rat).SetString(w.Value)
		if !ok || first != nil && v.Cmp(first) != 0 {
			return nil
		}
		first = v
	}
	if first == nil {
		return nil
	}
	return &Score{rewards[0].Value, "observed"}
}
