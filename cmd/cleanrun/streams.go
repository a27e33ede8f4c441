package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scanner"
)

// printStream prints what a run wrote to a stream, chunk by chunk.
func printStream(w io.Writer, ev *events, op journal.Op, identity string) error {
	if !ev.known {
		return cli.Failf(cli.ExitUsage, "give the run folder", "%s: a bundle holds no contents", ev.path)
	}
	root, private, err := openRun(ev.path, identity)
	if err != nil {
		return err
	}
	defer root.Close()
	store, err := root.OpenRoot(scanner.ObjectsDir)
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: the contents were pruned", ev.path)
	}
	if err != nil {
		return err
	}
	defer store.Close()
	source := objects.Source{Root: store, Keys: private.Keys}
	for i := range ev.details {
		row, detail := &ev.rows[i], &ev.details[i]
		if row.Op != op || row.Size == 0 {
			continue
		}
		if len(detail.SHA256) != len(objects.Sum{}) {
			return fmt.Errorf("%s: event %d: no digest of a content", ev.path, i)
		}
		b, err := source.ReadAll(objects.Sum(detail.SHA256), int64(row.Size))
		if err != nil {
			return fmt.Errorf("%s: event %d: %w", ev.path, i, err)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}
