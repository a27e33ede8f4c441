package main

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// events are the rows of a run folder or of a bundle. Nothing about them is
// verified beyond their own structure.
type events struct {
	path    string
	summary journal.Summary
	torn    error         // why a run folder's journal ends early, nil if it does not
	rows    []journal.Row // all of them, by seq
	details []journal.Detail
	known   bool   // details are there
	sealed  []byte // a bundle's task.sealed
	// What a bundle shows all the same, since the sealed set asks for it.
	opened map[uint64]*journal.Detail
	paths  map[[32]byte]string // by digest
}

// readEvents reads a run folder, with the identity file that opens it if it is
// encrypted, or a bundle.
func readEvents(path, identity string) (*events, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return readRunDir(path, identity)
	}
	if identity != "" {
		return nil, cli.Failf(cli.ExitUsage, "leave out -identity", "%s is a bundle, which nobody encrypts", path)
	}
	data, err := readFile(path, maxBundle)
	if err != nil {
		return nil, err
	}
	b, err := receipt.ParseBundle(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if b.Evidence == nil {
		return nil, cli.Failf(cli.ExitUsage, "give the run folder, or a bundle with its evidence", "%s: a compact bundle holds no events but those that decide", path)
	}
	ev, err := attest.ReadEvidence(b.Evidence)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out := &events{path: path, summary: ev.Summary(), sealed: b.Sealed, opened: map[uint64]*journal.Detail{}, paths: map[[32]byte]string{}}
	for row := range ev.Rows() {
		for _, ref := range []*journal.PathRef{row.Path, row.Path2} {
			if ref == nil {
				continue
			}
			if p, ok := ev.OpenedPath(ref.Digest); ok {
				out.paths[ref.Digest] = p
			}
		}
		if d, ok := ev.OpenedDetail(row.Seq); ok {
			out.opened[row.Seq] = &d
		}
		out.rows = append(out.rows, *row)
	}
	return out, nil
}

// readRunDir reads the public rows and, where they open the rows' commitments,
// the private details.
func readRunDir(dir, identity string) (*events, error) {
	f, err := regular.At(filepath.Join(dir, journal.RowsFile), os.O_RDONLY)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%s: no journal in this folder; want a folder that cleanrun run -o wrote", dir)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := &events{path: dir}
	c := journal.NewChecker()
	for line, err := range journal.Rows(f) {
		var row journal.Row
		if err == nil {
			row, err = c.Add(line.Raw)
		}
		if err != nil {
			// A run folder may belong to a run that was killed, or still goes on:
			// what is there is shown, and said to be cut.
			out.torn = err
			break
		}
		out.rows = append(out.rows, row)
	}
	if len(out.rows) == 0 {
		return nil, fmt.Errorf("%s: the journal has no rows", dir)
	}
	out.summary = c.Summary()
	out.details, err = openDetails(dir, identity, out.rows)
	if err != nil {
		return nil, err
	}
	out.known = true
	return out, nil
}

// openDetails reads the details of dir and holds each to the commitment of its
// row.
func openDetails(dir, identity string, rows []journal.Row) ([]journal.Detail, error) {
	root, private, err := openRun(dir, identity)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	secret, err := private.Secret()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	f, err := private.Details()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	details := make([]journal.Detail, 0, len(rows))
	next, stop := iter.Pull2(journal.Details(f))
	defer stop()
	for i := range rows {
		raw, err, ok := next()
		if !ok || errors.Is(err, io.ErrUnexpectedEOF) {
			break // the tail of a killed run
		}
		if err != nil {
			return nil, fmt.Errorf("%s: event %d: %w", dir, i, err)
		}
		if !rows[i].Opens(secret.Salt(uint64(i)), raw) {
			return nil, fmt.Errorf("%s: the detail of event %d does not open the event's commitment: it belongs to another run, or was changed", dir, i)
		}
		d, err := journal.ParseDetail(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: event %d: %w", dir, i, err)
		}
		details = append(details, d)
	}
	return details, nil
}

// detail of event seq, nil if it is not known.
func (e *events) detail(seq uint64) *journal.Detail {
	if seq >= uint64(len(e.details)) {
		return e.opened[seq]
	}
	return &e.details[seq]
}

// names are the paths of event seq, "" for each that it has not or that is not known.
func (e *events) names(seq uint64) (path, path2 string) {
	r := &e.rows[seq]
	if d := e.detail(seq); d != nil {
		path, path2 = d.Path, d.Path2
	}
	if path == "" && r.Path != nil {
		path = e.paths[r.Path.Digest]
	}
	if path2 == "" && r.Path2 != nil {
		path2 = e.paths[r.Path2.Digest]
	}
	return path, path2
}

// find is how the rows name a path, false if none is known to.
func (e *events) find(path string) (journal.PathRef, bool) {
	for i := range e.rows {
		r := &e.rows[i]
		one, two := e.names(uint64(i))
		if r.Path != nil && one == path {
			return *r.Path, true
		}
		if r.Path2 != nil && two == path {
			return *r.Path2, true
		}
	}
	return journal.PathRef{}, false
}
