package sandbox

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/internal/objects"
)

// baselineFile may be in the run folder before the run: the manifest whose root
// is the start row's baseline.
const baselineFile = "baseline"

// readBaseline reads it while the sandbox is built. The file is opened now, by
// path; given waits and hands the digests to the store.
func (r *recording) readBaseline() {
	data, err := os.ReadFile(filepath.Join(r.RunDir, baselineFile))
	if errors.Is(err, fs.ErrNotExist) {
		r.given = func() error { return nil }
		return
	}
	var sizes map[objects.Sum]uint64
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err == nil {
			sizes, err = r.baselineSizes(data)
		}
	}()
	r.given = func() error {
		if <-done; err != nil {
			return err
		}
		r.store.Given(sizes)
		return nil
	}
}

// baselineSizes are the contents that an attester exempts. The control file is
// not exempt, whatever the workspace holds.
func (r *recording) baselineSizes(data []byte) (map[objects.Sum]uint64, error) {
	m, err := manifest.Parse(data)
	if err != nil {
		return nil, err
	}
	if got, want := m.Root(), r.Start.Baseline; got != want {
		return nil, fmt.Errorf("%s in the run folder: got root %x, want %x, the start row's baseline", baselineFile, got[:8], want[:8])
	}
	sizes := map[objects.Sum]uint64{}
	for _, e := range m.Entries() {
		if e.Type == manifest.File || e.Type == manifest.Prompt {
			sizes[e.SHA256] = e.Size
		}
	}
	if r.Plain != nil {
		delete(sizes, sha256.Sum256(r.Plain.Text))
	}
	for _, m := range r.Mounts {
		if m.Path == ControlPath {
			delete(sizes, sha256.Sum256(m.Content))
		}
	}
	return sizes, nil
}
