package monitor

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/transparency-dev/tessera/api/layout"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/tlog"
)

// Bounds of what is read.
const (
	maxCheckpoint = 64 << 10
	maxBundle     = layout.EntryBundleWidth * (2 + tlog.MaxEntry)
	askWithin     = 60 * time.Second
)

// A Source shows the resources of c2sp.org/tlog-tiles. Get returns the one at a path
// without leading slash; an error wraps fs.ErrNotExist if there is none.
type Source interface {
	Get(ctx context.Context, path string, limit int64) ([]byte, error)
	// Checkpoint is the newest signed checkpoint.
	Checkpoint(ctx context.Context) ([]byte, error)
}

type folder string

// Folder reads a log in a folder, which may be open and growing.
func Folder(dir string) Source { return folder(dir) }

func (f folder) Checkpoint(ctx context.Context) ([]byte, error) {
	return f.Get(ctx, layout.CheckpointPath, maxCheckpoint)
}

func (f folder) Get(_ context.Context, path string, limit int64) (b []byte, err error) {
	root, err := os.OpenRoot(string(f))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for range 20 { // a file may be renamed over at any time
		if b, err = regular.ReadIn(root, path, limit); !errors.Is(err, regular.ErrReplaced) {
			break
		}
	}
	return b, err
}

type server struct {
	base   string
	client *http.Client
}

// Server reads a log on a server, at an http or https URL. http.DefaultTransport is
// used if h is nil; redirects are not followed.
func Server(base string, h http.RoundTripper) (Source, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("got %.200q, want the http or https URL of a log, without query", base)
	}
	if h == nil {
		h = http.DefaultTransport
	}
	return server{strings.TrimRight(base, "/"), &http.Client{Transport: h, Timeout: askWithin,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

func (s server) Checkpoint(ctx context.Context) ([]byte, error) {
	return s.Get(ctx, layout.CheckpointPath, maxCheckpoint)
}

func (s server) Get(ctx context.Context, path string, limit int64) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/"+path, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept-Encoding", "identity") // what is read is bounded, not what it unpacks to
	a, err := s.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	switch a.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound:
		return nil, fmt.Errorf("%s/%s: %w", s.base, path, fs.ErrNotExist)
	default:
		return nil, fmt.Errorf("%s/%s: got status %d, want 200", s.base, path, a.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(a.Body, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s/%s: got more than %d bytes", s.base, path, limit)
	}
	return b, err
}

// entries calls f with the entries from first to before size, bundle by bundle.
func entries(ctx context.Context, s Source, first, size uint64, f func(index uint64, batch [][]byte) error) error {
	for r := range layout.Range(first, size-first, size) {
		path := layout.EntriesPath(r.Index, r.Partial)
		b, err := s.Get(ctx, path, maxBundle)
		if r.Partial > 0 && errors.Is(err, fs.ErrNotExist) { // the bundle is full by now
			b, err = s.Get(ctx, layout.EntriesPath(r.Index, 0), maxBundle)
		}
		if err != nil {
			return err
		}
		batch, err := split256(b)
		if err == nil && uint(len(batch)) < r.First+r.N {
			err = fmt.Errorf("got %d entries, want %d", len(batch), r.First+r.N)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if err := f(r.Index*layout.EntryBundleWidth+uint64(r.First), batch[r.First:r.First+r.N]); err != nil {
			return err
		}
	}
	return nil
}

// split256 takes an entry bundle apart: a 16-bit length before each entry.
func split256(b []byte) (list [][]byte, err error) {
	for len(b) > 0 {
		if len(list) == layout.EntryBundleWidth {
			return nil, fmt.Errorf("got more than %d entries", len(list))
		}
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return nil, fmt.Errorf("entry %d is cut off", len(list))
		}
		n := 2 + int(binary.BigEndian.Uint16(b))
		list = append(list, b[2:n:n])
		b = b[n:]
	}
	return list, nil
}

// parallel calls f with 0 to n-1 on all processors.
func parallel(n int, f func(int)) {
	workers := min(runtime.GOMAXPROCS(0), n)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}
