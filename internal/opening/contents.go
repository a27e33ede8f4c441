package opening

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// Names in a run folder (spec/journal.md, "Files"; spec/sealed-set.md, "Baseline").
const (
	objectsDir   = "objects"
	baselineFile = "baseline"
)

// maxModule bounds what is read of a module, in bytes.
const maxModule = 16 << 20

// baseline reads what the workspace held, by name.
func (x *collector) baseline() (map[string]content, error) {
	b, err := regular.ReadIn(x.run, baselineFile, manifest.MaxSize)
	if err != nil {
		return nil, fmt.Errorf("baseline manifest: %w", err)
	}
	m, err := manifest.Parse(b)
	if err != nil {
		return nil, err
	}
	if got, want := m.Root(), x.start.Baseline; got != want {
		return nil, fmt.Errorf("baseline manifest: got root %x, want %x as in the start row (the run folder is damaged)", got[:8], want[:8])
	}
	out := map[string]content{}
	for _, e := range m.Entries() {
		if e.Type == manifest.File {
			out[e.Path] = content{e.SHA256, e.Size, true}
		}
	}
	return out, nil
}

// contents gives contents by their digest.
type contents struct {
	base  map[string]content // of the workspace as it was, by name in it
	store objects.Source
	// The workspace itself has what the baseline holds, which the store does not keep.
	places []*os.Root
	why    error               // why there is no place
	names  map[[32]byte]string // of the baseline's files
}

// keep opens what contents are read from.
func (x *collector) keep() error {
	if x.kept != nil {
		return nil
	}
	base, err := x.baseline()
	if err != nil {
		return err
	}
	store, err := x.run.OpenRoot(objectsDir)
	if err != nil {
		return err
	}
	c := &contents{base: base, store: objects.Source{Root: store, Keys: x.Keys}, names: map[[32]byte]string{}}
	for name, f := range base {
		if old, ok := c.names[f.sum]; !ok || name < old {
			c.names[f.sum] = name
		}
	}
	for _, at := range x.workspaces() {
		place, err := os.OpenRoot(filepath.FromSlash(at))
		if err == nil {
			c.places = append(c.places, place)
		} else if c.why == nil {
			c.why = err
		}
	}
	x.kept = c
	return nil
}

// workspaces are folders that may hold the files of the sealed workspace. A run without
// namespaces has it as a place to read, beside the copy that is gone.
func (x *collector) workspaces() []string {
	if x.Workspace != "" {
		return []string{x.Workspace}
	}
	list := []string{x.start.Workspace}
	for _, r := range x.start.Roots {
		if r.Class == scope.Private && r.Mode == scope.ReadTree {
			list = append(list, r.Path)
		}
	}
	return list
}

func (c *contents) close() {
	if c == nil {
		return
	}
	c.store.Root.Close()
	for _, place := range c.places {
		place.Close()
	}
}

// read returns a content that has its digest.
func (c *contents) read(f content) ([]byte, error) {
	switch {
	case !f.known:
		return nil, errors.New("the recorder could not read it, or removed secrets from it")
	case f.size == 0:
		return nil, nil
	case f.size > maxModule:
		return nil, fmt.Errorf("got %d bytes, want at most %d", f.size, maxModule)
	}
	b, err := c.store.ReadAll(f.sum, int64(f.size))
	if !errors.Is(err, fs.ErrNotExist) {
		return b, err
	}
	name, ok := c.names[f.sum]
	if !ok {
		return nil, errors.New("the run folder does not have it")
	}
	err = fmt.Errorf("the sealed workspace does not have %s any more", name)
	if len(c.places) == 0 {
		return nil, fmt.Errorf("the sealed workspace is not there: %w", c.why)
	}
	for _, place := range c.places {
		b, e := regular.ReadIn(place, filepath.FromSlash(name), int64(f.size))
		if e == nil && sha256.Sum256(b) == f.sum {
			return b, nil
		}
		if e == nil || !errors.Is(e, fs.ErrNotExist) {
			err = fmt.Errorf("%s is not what was sealed any more", name)
		}
	}
	return nil, err
}
