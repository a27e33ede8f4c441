package record

import (
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/internal/redact"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// keyLeft is the note of the row that says that the run folder holds a key.
var keyLeft = fmt.Sprintf("more text of the shape of keys than is removed (%d bytes of a content, %d of a run): the rest is stored as it is", redact.MaxRow, redact.MaxRun)

// removable are the operations whose rows can have flag removed.
var removable = func() (t [64]bool) {
	for _, op := range []journal.Op{
		journal.OpOpen, journal.OpWrote, journal.OpExec, journal.OpInterp, journal.OpArgv, journal.OpUnlink, journal.OpRename,
		journal.OpLink, journal.OpSymlink, journal.OpMkdir, journal.OpMknod, journal.OpTruncate, journal.OpChmod, journal.OpChown,
		journal.OpUtime, journal.OpXattr, journal.OpConnect, journal.OpBind, journal.OpDenied, journal.OpGuard,
	} {
		t[op] = true
	}
	return t
}()

// removeFrom replaces secrets in a row's detail, before the path is hashed: a
// disclosed detail must open the row. over says that a key was left.
func (r *Recorder) removeFrom(row *journal.Row, d *journal.Detail) (over bool) {
	if r.remove.Empty() {
		return false
	}
	n := 0
	text := func(s *string, by *redact.Redactor, path bool) {
		var res redact.Result
		if *s, res = by.String(*s, path); res.Bytes > 0 {
			n += res.Bytes
		}
		over = over || res.Over
	}
	// A file's name is held to values only: roots are paths too.
	for _, s := range []*string{&d.Path, &d.Path2, &d.Asked, &d.Cwd, &d.Address} {
		text(s, r.paths, true)
	}
	text(&d.Note, r.remove, false)
	by := r.paths
	if row.Op == journal.OpArgv {
		by = r.remove
	}
	if len(d.Text) > 0 {
		s := string(d.Text)
		text(&s, by, false)
		d.Text = []byte(s)
	}
	for _, list := range []*[]string{&d.Argv, &d.Env} {
		if len(*list) == 0 {
			continue
		}
		// Joined, as the content is: what is removed there is removed here.
		joined := strings.Join(*list, "\x00")
		text(&joined, by, false)
		if parts := strings.Split(joined, "\x00"); len(parts) == len(*list) {
			*list = parts
			continue
		}
		for i := range *list { // a secret with a NUL in it
			text(&(*list)[i], by, false)
		}
	}
	if n > 0 && removable[row.Op] {
		row.Flags |= journal.FlagRemoved
	}
	return over
}

// over says once that a key was left in what is stored. What the run made itself
// is no lost row: nothing of it is hidden, and a run could make itself unscored.
func (r *Recorder) over(own bool) error {
	r.left.Store(true)
	if own || !r.overtold.CompareAndSwap(false, true) {
		return nil
	}
	return r.Lost(0, keyLeft)
}

// KeysLeft tells whether a key was left in what is stored.
func (r *Recorder) KeysLeft() bool { return r.left.Load() }

// full says once that nothing more is stored. Rows that would expose content have
// flag unreadable from then on.
func (r *Recorder) full(err error) error {
	if !errors.Is(err, objects.ErrFull) || !r.isFull.CompareAndSwap(false, true) {
		return nil
	}
	return r.Lost(0, "the limit of stored content is reached: no content is stored from here on")
}

// tool tells whether a path is one of the system's or a toolchain's programs and
// libraries. /etc is not: people keep keys there.
func (r *Recorder) tool(p string) bool {
	depth, class := -1, scope.Private
	for _, root := range r.roots {
		tree := root.Mode != scope.ReadOne && root.Mode != scope.WriteOne
		if (p == root.Path || tree && strings.HasPrefix(p, root.Path+"/")) && len(root.Path) > depth {
			depth, class = len(root.Path), root.Class
		}
	}
	return (class == scope.System || class == scope.Toolchain) && !strings.HasPrefix(p, "/etc/")
}

// A cleaner removes secrets from one stream. Two loops can feed stdin.
type cleaner struct {
	sync.Mutex
	stream *redact.Stream
}

func (c *cleaner) chunk(b []byte) ([]byte, redact.Result) {
	c.Lock()
	defer c.Unlock()
	return c.stream.Chunk(b)
}
