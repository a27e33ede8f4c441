package tlog

import (
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// Tessera says through klog what goes wrong while it publishes, and nowhere else.
// klog writes to stderr, which is the command's. So its lines are kept here, and
// an error that they may explain quotes them. A process has one klog, and it has
// to be set before anything uses it.
func init() {
	klog.SetLoggerWithOptions(logr.Discard(), klog.WriteKlogBuffer(warnings.write))
}

var warnings recent

// recent keeps the last few warnings.
type recent struct {
	mu    sync.Mutex
	lines []string
}

// write takes a line of klog: "W1130 08:00:00.000000 123 files.go:157] what".
func (r *recent) write(line []byte) {
	if len(line) == 0 || line[0] == 'I' {
		return
	}
	_, text, ok := strings.Cut(strings.TrimSpace(string(line)), "] ")
	if !ok {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.lines); n > 0 && r.lines[n-1] == text {
		return
	}
	if len(r.lines) == 4 {
		r.lines = append(r.lines[:0], r.lines[1:]...)
	}
	r.lines = append(r.lines, text)
}

// String joins the warnings, the newest last. It is "" if there was none.
func (r *recent) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(r.lines, "; ")
}
