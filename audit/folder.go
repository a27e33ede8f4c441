package audit

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// Members of a submission's folder, besides its bundles.
const (
	MemberCOSE = "submission.cose"      // COSE_Sign1 by the runner over the statement
	MemberDSSE = "submission.dsse.json" // DSSE by the same key over the same statement
	BundleExt  = ".cleanrun"            // after the SHA-256 of a bundle
)

// MaxBundle is the largest bundle in bytes.
const MaxBundle = 3 << 30

// maxMembers bounds the listing of a folder.
const maxMembers = 1 << 20

// A folder is a submission's folder. Nothing outside it is read, no symbolic link
// in it is followed, and only regular files are opened.
type folder struct {
	root *os.Root
	path string
}

func openFolder(path string) (*folder, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	return &folder{root, path}, nil
}

func (f *folder) close() error { return f.root.Close() }

// names lists what stands in the folder.
func (f *folder) names() ([]string, error) {
	dir, err := f.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxMembers + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(names) > maxMembers {
		return nil, fmt.Errorf("%s: got more than %d files", f.path, maxMembers)
	}
	return names, nil
}

// open opens a regular file of at most limit bytes.
func (f *folder) open(name string, limit int64) (*os.File, int64, error) {
	file, err := regular.In(f.root, name)
	if err != nil {
		return nil, 0, err
	}
	st, err := file.Stat()
	if err == nil && st.Size() > limit {
		err = fmt.Errorf("%s: got %d bytes, want at most %d", name, st.Size(), limit)
	}
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, st.Size(), nil
}

// read reads a file that open opens. buf is used if it is large enough. room, if
// it is not nil, is told the size before anything is read.
func (f *folder) read(name string, limit int64, buf []byte, room func(size int64)) ([]byte, error) {
	file, size, err := f.open(name, limit)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if room != nil {
		room(size)
	}
	if int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	buf = buf[:size]
	if _, err := io.ReadFull(file, buf); err != nil {
		return nil, fmt.Errorf("%s: it changed while it was read: %w", name, err)
	}
	if n, _ := file.Read(make([]byte, 1)); n != 0 {
		return nil, fmt.Errorf("%s: it changed while it was read", name)
	}
	return buf, nil
}

// bundleName splits the name of a bundle.
func bundleName(name string) (sum string, ok bool) {
	sum, ok = strings.CutSuffix(filepath.Base(name), BundleExt)
	return sum, ok && len(sum) == 64 && strings.Trim(sum, "0123456789abcdef") == ""
}

// limits of the two signed files.
const (
	maxCOSE = receipt.MaxSubmission
	maxDSSE = receipt.MaxSubmissionEnvelope
)

// A gate bounds how many bytes of bundles are in memory at once. A bundle that
// is larger than the whole gate waits until it is alone.
type gate struct {
	mu   sync.Mutex
	free *sync.Cond
	left int64
	all  int64
}

func newGate(size int64) *gate {
	g := &gate{left: size, all: size}
	g.free = sync.NewCond(&g.mu)
	return g
}

// enter takes n bytes and returns how many leave must give back.
func (g *gate) enter(n int64) int64 {
	n = min(n, g.all)
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.left < n {
		g.free.Wait()
	}
	g.left -= n
	return n
}

func (g *gate) leave(n int64) {
	g.mu.Lock()
	g.left += n
	g.mu.Unlock()
	g.free.Broadcast()
}
