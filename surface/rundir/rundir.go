// Package rundir is the journal of a recorded run as a source of surface: the one that
// knows who wrote.
//
// Limits first. What the recorder did not see is not here. A version is what a file
// held when it was dated: at the next open, exec or truncation, when its last name
// went, or at the end of its phase. What was written and overwritten between, through
// one open file, is not a version. Two names that were exchanged (RENAME_EXCHANGE) look
// like a rename until one of them is opened again. A name that is no UTF-8 stands as
// the journal spells it, with \xNN for a byte.
//
// What was there before is known from the baseline, which only a run with a task has; else
// from what the run opened or emptied.
//
// It gives every version that a file at the location held in the agent's phase, also of
// files that are gone, each with the process and the row, how it came there and what
// became of it. What was there before (the baseline, or the setup's work) and what a hard
// link or a rename of foreign content put there is listed as such and is not the run's
// writing. What grading wrote is counted, and left out. spec/surface.md, "Journal".
package rundir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/surface"
)

// Names in a run folder (spec/journal.md, "Files"; spec/sealed-set.md, "Baseline").
const (
	objectsDir   = "objects"
	baselineFile = "baseline"
)

// A Source is one run. It is made by Open, or filled by hand from rows and details that
// were checked.
type Source struct {
	Start    journal.Start
	Rows     []journal.Row
	Details  []journal.Detail   // of the rows, in order
	Broken   bool               // the journal breaks off, or has no final row
	Baseline *manifest.Manifest // nil in a run without a task
	// Object opens a content, nil if the contents were pruned.
	Object func(sum [32]byte) (io.ReadCloser, error)
	// Folder is the root of locations, absolute and clean; "" is the workspace.
	Folder string

	store *os.Root
}

// Open reads a run folder: every row is held to the journal's rules, every detail to
// its row's commitment, and the baseline to the start row.
func Open(run *os.Root, private vault.Folder) (*Source, error) {
	s := &Source{}
	if err := s.readRows(run); err != nil {
		return nil, err
	}
	if err := s.readDetails(private); err != nil {
		return nil, err
	}
	err := s.readBaseline(run)
	if err != nil {
		return nil, fmt.Errorf("baseline: %w", err)
	}
	s.store, err = run.OpenRoot(objectsDir)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil // pruned
	}
	if err != nil {
		return nil, err
	}
	store := objects.Source{Root: s.store, Keys: private.Keys}
	s.Object = func(sum [32]byte) (io.ReadCloser, error) { return store.Open(sum) }
	return s, nil
}

// readBaseline reads what the workspace held. A run without a task has none.
func (s *Source) readBaseline(run *os.Root) error {
	b, err := regular.ReadIn(run, baselineFile, manifest.MaxSize)
	if errors.Is(err, os.ErrNotExist) && s.Start.Baseline == [32]byte{} {
		return nil
	}
	if err != nil {
		return err
	}
	if s.Baseline, err = manifest.Parse(b); err != nil {
		return err
	}
	if got := s.Baseline.Root(); got != s.Start.Baseline {
		return fmt.Errorf("got root %x, want %x as in the start row: the run folder is damaged", got[:8], s.Start.Baseline[:8])
	}
	return nil
}

// Close closes the run folder's contents.
func (s *Source) Close() error {
	if s.store == nil {
		return nil
	}
	return s.store.Close()
}

func (s *Source) readRows(run *os.Root) error {
	f, err := regular.In(run, journal.RowsFile)
	if err != nil {
		return err
	}
	defer f.Close()
	c := journal.NewChecker()
	for line, err := range journal.Rows(f) {
		var row journal.Row
		if err == nil {
			row, err = c.Add(line.Raw)
		}
		if err != nil {
			// A killed run ends anywhere; what came before is still what it did.
			s.Broken = true
			break
		}
		s.Rows = append(s.Rows, row)
	}
	sum := c.Summary()
	if sum.Start == nil {
		return errors.New("the journal has no start row: want a folder that cleanrun run -o wrote")
	}
	s.Start, s.Broken = *sum.Start, s.Broken || !sum.Closed()
	return nil
}

func (s *Source) readDetails(private vault.Folder) error {
	secret, err := private.Secret()
	if err != nil {
		return err
	}
	f, err := private.Details()
	if err != nil {
		return err
	}
	defer f.Close()
	next, stop := iter.Pull2(journal.Details(f))
	defer stop()
	for i := range s.Rows {
		raw, err, ok := next()
		if !ok || err != nil {
			s.Rows, s.Broken = s.Rows[:i], true
			return nil
		}
		if !s.Rows[i].Opens(secret.Salt(uint64(i)), raw) {
			return fmt.Errorf("the detail of event %d does not open the event's commitment: it belongs to another run, or was changed", i)
		}
		d, err := journal.ParseDetail(raw)
		if err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		s.Details = append(s.Details, d)
	}
	return nil
}

// Describe names the run.
func (s *Source) Describe() surface.Description {
	return surface.Description{Kind: surface.Journal, Version: fmt.Sprintf("run %x in %s", s.Start.Run, printed(s.root())),
		Applies: []surface.Key{surface.KeyLabels, surface.KeyAttempt}}
}

// printed keeps what a description cannot hold out of it.
func printed(p string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, p[:min(len(p), 512)])
}

func (s *Source) root() string {
	if s.Folder != "" {
		return s.Folder
	}
	return s.Start.Workspace
}

// labels of a run; agent and model are asserted by who ran it.
func (s *Source) labels() (out []surface.Label) {
	for _, l := range []surface.Label{{Name: "agent", Value: s.Start.Agent}, {Name: "benchmark", Value: s.Start.Benchmark},
		{Name: "model", Value: s.Start.Model}, {Name: "task", Value: s.Start.Task}} {
		if l.Value != "" {
			out = append(out, l)
		}
	}
	return out
}

// Attempt is the run's id as a scope names it, in lower-case hex.
func (s *Source) Attempt() string { return fmt.Sprintf("%x", s.Start.Run) }

// List hands over the versions.
func (s *Source) List(ctx context.Context, at surface.Location, c *surface.Collector) {
	if s.Broken {
		c.Open()
	}
	t := newTracker(s, at)
	lost := uint64(0)
	for i := range s.Rows {
		if ctx.Err() != nil {
			_ = c.Listed() // which says so
			return
		}
		row, detail := &s.Rows[i], &s.Details[i]
		switch {
		case row.Op == journal.OpLost:
			lost++
		case row.Final != nil:
			lost += row.Final.Lost + row.Final.Delta.Unexplained
		case row.Result != 0:
		case row.Phase == journal.PhaseGrade:
			if _, ok := t.locate(detail.Path); ok && row.Op == journal.OpWrote {
				c.OutsidePhase()
			}
		default:
			t.row(row, detail)
		}
	}
	if lost > 0 {
		c.Gap(surface.EventsLost, "")
	}
	t.end(s.Broken)
	for p := range t.links {
		c.Gap(surface.LinkNotFollowed, p)
	}
	slices.SortStableFunc(t.versions, func(a, b *version) int { return strings.Compare(a.location, b.location) })
	for _, v := range t.versions {
		if c.File(v.location, func() (*surface.Item, surface.Reason) { return s.item(v), "" }) != nil {
			return
		}
	}
}

// item is a version as the Collector takes it.
func (s *Source) item(v *version) *surface.Item {
	it := &surface.Item{Size: int64(v.size), Labels: s.labels(), Attempt: s.Attempt(), Event: &v.event, Gap: v.gap}
	switch {
	case v.gap == surface.SecretsRemoved:
	case !v.known:
		it.Gap = surface.NotKept
		return it
	case v.gap == "" || v.gap == surface.NotKept:
		it.Digest = &v.sum
	}
	if v.gap == surface.NotKept {
		return it
	}
	if v.size == 0 {
		it.Content = io.NopCloser(bytes.NewReader(nil))
		return it
	}
	if s.Object != nil {
		if f, err := s.Object(v.sum); err == nil {
			it.Content = f
			return it
		}
	}
	it.Gap = surface.NotKept
	return it
}
