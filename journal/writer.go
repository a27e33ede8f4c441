package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/scope"
)

// Names of the files in a run folder.
const (
	RowsFile    = "journal"
	DetailsFile = "detail"
	HeadFile    = "checkpoint"
	SecretFile  = "secret"
)

// A File is where a Writer appends. *os.File is one.
type File interface {
	io.Writer
	Sync() error
}

// Config of a Writer.
type Config struct {
	Rows, Details File
	SaveHead      func(text []byte) error // replaces the last head durably (durable.WriteFile)
	Clock         func() uint64           // nanoseconds since the start, monotonic
	Secret        Secret
	Start         Start // Version and the roots' order and keys are set by the Writer
}

// ErrClosed is returned by Append and Final after Final or Close.
var ErrClosed = errors.New("the journal is closed")

// A Writer appends rows. It is safe for concurrent use. It refuses a row that a
// Checker would refuse, and stays usable. After any failed or short write it is
// poisoned: every later call returns the first cause, and nothing more is
// written, so that a gap can never be hidden by later rows.
type Writer struct {
	syncing sync.Mutex // held around a checkpoint, taken before mu
	mu      sync.Mutex // held around everything below
	cfg     Config
	hasher  *scope.Hasher
	checker *Checker
	salts   *expander
	rows    []byte // not yet written
	details []byte
	raw     []byte // scratch
	closed  bool   // by Final or Close
	err     error
}

// flushAt is the number of buffered bytes that are written without being asked.
const flushAt = 1 << 18

// NewWriter writes the start row and checkpoints it. The caller holds the lock
// of the files (Lock).
func NewWriter(cfg Config) (*Writer, error) {
	cfg.Start.Version = Version
	cfg.Start.Roots = append([]scope.Root(nil), cfg.Start.Roots...)
	key := cfg.Secret.PathKey()
	scope.SortRoots(key, cfg.Start.Roots)
	w := &Writer{cfg: cfg, hasher: scope.NewHasher(key), checker: NewChecker(), salts: newExpander(cfg.Secret)}
	if err := w.append(&Row{Op: OpStart, Start: &w.cfg.Start}, nil); err != nil {
		return nil, err
	}
	if _, err := w.Checkpoint(); err != nil {
		return nil, err
	}
	return w, nil
}

// Append writes one row and its detail; a nil detail is the empty one. It sets
// Seq, Time, Commit and the scope flag. Where the caller left Path or Path2 nil
// and the operation has one, it is made from the detail's Path or Path2, after a
// dir row for each new directory; a caller that numbers directories itself
// (scope.Hasher) must do so for all rows. Bytes of the detail's texts that are
// not UTF-8 become \xNN, since CBOR text cannot hold them; paths are hashed so.
// A final row closes the journal as Final does.
//
// A row that a Checker would refuse is refused here, with nothing written. The
// row is buffered: Flush before the program may see the result.
func (w *Writer) Append(r *Row, d *Detail) error {
	if r.Op == OpFinal && r.Final != nil {
		_, err := w.final(r, d)
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.usable(); err != nil {
		return err
	}
	return w.append(r, d)
}

func (w *Writer) usable() error {
	if w.err == nil && w.closed {
		return ErrClosed
	}
	return w.err
}

func (w *Writer) append(r *Row, d *Detail) error {
	d = utf8Detail(d)
	if d != nil && r.Op > OpDir && int(r.Op) < len(shapes) {
		if err := w.setPaths(r, d, shapes[r.Op]); err != nil {
			return err
		}
	}
	r.Flags &^= FlagOutOfScope
	if r.Op > OpDir {
		if out, err := w.checker.outOfScope(r); err != nil {
			err.Row = w.checker.rows()
			return err
		} else if out {
			r.Flags |= FlagOutOfScope
		}
	}
	return w.put(r, d)
}

func (w *Writer) setPaths(r *Row, d *Detail, s shape) (err error) {
	if r.Path == nil && s.path != never && d.Path != "" {
		if r.Path, err = w.ref(r, d.Path); err != nil {
			return err
		}
	}
	if r.Path2 == nil && s.path2 != never && d.Path2 != "" {
		r.Path2, err = w.ref(r, d.Path2)
	}
	return err
}

// ref returns the reference of a path and declares its directories.
func (w *Writer) ref(r *Row, path string) (*PathRef, error) {
	ref, fresh, err := w.hasher.Path(path)
	if err != nil {
		return nil, err
	}
	for _, dir := range fresh {
		row := Row{Op: OpDir, Phase: r.Phase, Child: dir.Number, Path: &PathRef{Dir: dir.Ref.Dir, Digest: dir.Ref.Digest}}
		if err := w.put(&row, &Detail{Path: dir.Path}); err != nil {
			// The numbers are given and will not be declared: no later row may
			// use them.
			return nil, w.poison(err)
		}
	}
	return &PathRef{Dir: ref.Dir, Digest: ref.Digest}, nil
}

// put numbers, checks, commits and buffers one row.
func (w *Writer) put(r *Row, d *Detail) error {
	r.Seq, r.Time = w.checker.rows(), 0
	if r.Seq > 0 {
		r.Time = max(w.cfg.Clock(), w.checker.last.Time)
	}
	detail, err := EncodeDetail(d)
	if err != nil {
		return err
	}
	if len(detail) > MaxDetail {
		return fmt.Errorf("got a detail of %d bytes, want at most %d", len(detail), MaxDetail)
	}
	var salt [32]byte
	w.salts.salt(r.Seq, &salt)
	r.Commit = Commit(salt, detail)
	if w.raw, err = EncodeRow(w.raw[:0], r); err != nil {
		return err
	}
	if len(w.raw) > MaxRow {
		return fmt.Errorf("got a row of %d bytes, want at most %d", len(w.raw), MaxRow)
	}
	if err := w.checker.check(r); err != nil {
		err.Row = r.Seq
		return err
	}
	w.checker.apply(r, w.raw)
	w.rows = appendRecord(w.rows, w.raw)
	w.details = appendRecord(w.details, detail)
	if len(w.rows)+len(w.details) >= flushAt {
		return w.flush()
	}
	return nil
}

func appendRecord(dst, record []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(record))), record...)
}

// Flush hands all rows to the kernel: they survive the death of the recorder,
// not a power loss.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	return w.flush()
}

// flush writes details first: a row in the kernel always has its detail there.
func (w *Writer) flush() error {
	if err := writeAll(w.cfg.Details, &w.details); err != nil {
		return w.poison(fmt.Errorf("write details: %w", err))
	}
	if err := writeAll(w.cfg.Rows, &w.rows); err != nil {
		return w.poison(fmt.Errorf("write rows: %w", err))
	}
	return nil
}

func writeAll(to io.Writer, buf *[]byte) error {
	if len(*buf) == 0 {
		return nil
	}
	n, err := to.Write(*buf)
	if err == nil && n != len(*buf) {
		err = io.ErrShortWrite
	}
	*buf = (*buf)[:0]
	return err
}

func (w *Writer) poison(err error) error {
	if w.err == nil {
		w.err = fmt.Errorf("journal: no row can be added any more: %w", err)
	}
	return w.err
}

// Checkpoint writes and syncs all rows, then saves and returns the head. Other
// calls go on while it syncs.
func (w *Writer) Checkpoint() (Head, error) {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	return w.checkpoint(func() error { return w.err })
}

// checkpoint calls last, then flushes, under the lock; and syncs without it.
func (w *Writer) checkpoint(last func() error) (Head, error) {
	w.mu.Lock()
	err := last()
	if err == nil {
		err = w.flush()
	}
	h := w.checker.head()
	w.mu.Unlock()
	if err != nil {
		return Head{}, err
	}
	if err := w.sync(h); err != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		return Head{}, w.poison(err)
	}
	return h, nil
}

// sync brings the files to the disk, then the head: a saved head is always one
// of rows that are there.
func (w *Writer) sync(h Head) error {
	for _, f := range [...]File{w.cfg.Details, w.cfg.Rows} {
		if err := f.Sync(); err != nil {
			return fmt.Errorf("sync: %w", err)
		}
	}
	if err := w.cfg.SaveHead(FormatHead(h)); err != nil {
		return fmt.Errorf("save the head: %w", err)
	}
	return nil
}

// Final closes the journal: it writes the final row and checkpoints. Counts,
// Born, Ended and Void are set from the rows, Lost is at least the number of
// lost rows. The phase is that of the last row.
func (w *Writer) Final(f Final, d *Detail) (Head, error) {
	w.mu.Lock()
	phase := w.checker.last.Phase
	w.mu.Unlock()
	return w.final(&Row{Op: OpFinal, Phase: phase, Final: &f}, d)
}

func (w *Writer) final(r *Row, d *Detail) (Head, error) {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	return w.checkpoint(func() error {
		if err := w.usable(); err != nil {
			return err
		}
		f, sum := *r.Final, w.checker.Summary()
		f.Counts, f.Born, f.Ended, f.Void = sum.Counts, sum.Born, sum.Ended, sum.Void
		f.Lost = max(f.Lost, sum.Lost)
		r.Final = &f
		if err := w.append(r, d); err != nil {
			return err
		}
		w.closed = true
		return nil
	})
}

// Close checkpoints what was written. Without a final row the journal stays open
// for its readers: its run can never be CLEAN. It does not close the files. A
// poisoned writer returns its cause.
func (w *Writer) Close() error {
	w.syncing.Lock()
	defer w.syncing.Unlock()
	_, err := w.checkpoint(func() error {
		err := w.usable()
		w.closed = true
		return err
	})
	if err == ErrClosed {
		return nil
	}
	return err
}

// Summary of the rows so far.
func (w *Writer) Summary() Summary {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checker.Summary()
}

// utf8Detail returns d, or a copy with the bytes escaped that are not UTF-8.
func utf8Detail(d *Detail) *Detail {
	if d == nil || validDetail(d) {
		return d
	}
	c := *d
	for _, s := range [...]*string{&c.Path, &c.Path2, &c.Asked, &c.Cwd, &c.Address, &c.Note} {
		*s = escape(*s)
	}
	c.Argv, c.Env = escapeAll(c.Argv), escapeAll(c.Env)
	return &c
}

func validDetail(d *Detail) bool {
	for _, s := range [...]string{d.Path, d.Path2, d.Asked, d.Cwd, d.Address, d.Note} {
		if !utf8.ValidString(s) {
			return false
		}
	}
	for _, list := range [...][]string{d.Argv, d.Env} {
		for _, s := range list {
			if !utf8.ValidString(s) {
				return false
			}
		}
	}
	return true
}

func escapeAll(list []string) []string {
	out := make([]string, len(list))
	for i, s := range list {
		out[i] = escape(s)
	}
	return out
}

func escape(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, `\x%02x`, s[i])
		} else {
			b.WriteString(s[i : i+n])
		}
		i += n
	}
	return b.String()
}
