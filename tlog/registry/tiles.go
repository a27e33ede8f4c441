package registry

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/transparency-dev/tessera/api/layout"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
)

// A tile is a resource of c2sp.org/tlog-tiles.
type tile struct {
	entries bool
	level   uint64 // of a hash tile
	index   uint64
	partial uint8 // width of a partial tile, 0 for a full one
}

// parseTile reads what follows "/tile/" in a path. A path has one spelling, and
// what is opened is built from the numbers, not from the text.
func parseTile(rest string) (t tile, ok bool) {
	kind, index, found := strings.Cut(rest, "/")
	if !found || len(rest) > 64 {
		return t, false
	}
	var err error
	if kind == "entries" {
		t.entries = true
	} else if t.level, err = layout.ParseTileLevel(kind); err != nil {
		return t, false
	}
	// The parser of layout looks one group before the width without asking whether there is one.
	if strings.Contains(index, ".p") && strings.Count(index, "/") == 0 {
		return t, false
	}
	if t.index, t.partial, err = layout.ParseTileIndexPartial(index); err != nil {
		return t, false
	}
	return t, t.path() == "tile/"+rest
}

func (t tile) path() string {
	if t.entries {
		return layout.EntriesPath(t.index, t.partial)
	}
	return layout.TilePath(t.level, t.index, t.partial)
}

// tiles answers for /tile/: from the folder of an embedded log, or, without one,
// entry bundles from the log itself.
func (h *handler) tiles(w http.ResponseWriter, r *http.Request) {
	t, ok := parseTile(strings.TrimPrefix(r.URL.Path, "/tile/"))
	if !ok {
		plainProblem(w, http.StatusBadRequest, "got %.80q, want a path of c2sp.org/tlog-tiles", r.URL.Path)
		return
	}
	switch {
	case h.root != nil:
		h.file(w, t)
	case t.entries:
		h.bundle(w, r, t)
	default:
		plainProblem(w, http.StatusNotFound, "this log has no hash tiles: ask for proofs at /cleanrun/v1/proofs")
	}
}

// file sends a tile as it lies in the folder.
func (h *handler) file(w http.ResponseWriter, t tile) {
	f, err := regular.In(h.root, t.path())
	for n := 0; n < 20 && errors.Is(err, regular.ErrReplaced); n++ { // a partial tile is written again and again
		f, err = regular.In(h.root, t.path())
	}
	if errors.Is(err, fs.ErrNotExist) {
		plainProblem(w, http.StatusNotFound, "there is no %s: ask for the full tile, or for one that the checkpoint has", t.path())
		return
	}
	if err != nil {
		plainProblem(w, http.StatusServiceUnavailable, "%s cannot be read", t.path())
		return
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		plainProblem(w, http.StatusServiceUnavailable, "%s cannot be read", t.path())
		return
	}
	tileHeader(w)
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	io.CopyN(w, f, info.Size()) // an error ends the connection: the length is not met
}

func tileHeader(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
}

// bundle makes an entry bundle. What is not in the newest checkpoint is not there.
func (h *handler) bundle(w http.ResponseWriter, r *http.Request, t tile) {
	width := uint64(layout.EntryBundleWidth)
	if t.partial > 0 {
		width = uint64(t.partial)
	}
	_, cp, err := h.service.checkpoint(r.Context())
	if err != nil {
		writeProblem(w, err)
		return
	}
	first := t.index * layout.EntryBundleWidth
	if t.index > cp.Size/layout.EntryBundleWidth || first+width > cp.Size {
		plainProblem(w, http.StatusNotFound, "there is no %s: the log has %d entries", t.path(), cp.Size)
		return
	}
	started, next := false, first
	err = h.service.log.Entries(r.Context(), first, func(i uint64, entry []byte) error {
		if i != next {
			return fmt.Errorf("got entry %d, want %d", i, next)
		}
		if !started {
			tileHeader(w)
			started = true
		}
		var size [2]byte
		binary.BigEndian.PutUint16(size[:], uint16(len(entry)))
		if _, err := w.Write(append(size[:], entry...)); err != nil {
			return err
		}
		if next++; next == first+width {
			return errEnough
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
	case started:
		panic(http.ErrAbortHandler) // half a bundle must not look like one
	default:
		writeProblem(w, unavailable(err))
	}
}

// openRoot opens the folder that static tiles are served from.
func openRoot(dir string) (*os.Root, error) {
	if dir == "" {
		return nil, nil
	}
	return os.OpenRoot(dir)
}
