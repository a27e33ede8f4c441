//go:build unix

package registry_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// A log whose entries were changed while nobody had it open is not opened: without
// its REGISTER a second one of the attempt would be let in.
func TestChangedEntries(t *testing.T) {
	c := newCast(t)
	dir := c.folder(t)
	s := c.open(t, c.openLog(t, dir))
	register := c.register(1)
	add(t, s, c.seal("head"))
	add(t, s, register)
	again := c.register(1, func(r *entry.Register) { r.Run = runID(60) })
	refused(t, s, entry.RegisterAgain, again)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = c.open(t, c.openLog(t, dir)) // control: as it was
	refused(t, s, entry.RegisterAgain, again)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	bundle := filepath.Join(dir, "tile", "entries", "000.p", "2")
	good, err := os.ReadFile(bundle)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(good, register)
	good[at+len(register)-1] ^= 1
	if err := os.WriteFile(bundle, good, 0o644); err != nil {
		t.Fatal(err)
	}
	l := c.openLog(t, dir)
	defer l.Close()
	if _, err := registry.Open(t.Context(), registry.Options{Log: l, Key: c.log, Admit: c.admit()}); !errors.Is(err, registry.ErrChanged) {
		t.Errorf("got %v, want %v", err, registry.ErrChanged)
	}
}
