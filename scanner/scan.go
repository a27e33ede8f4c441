package scanner

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync/atomic"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// BaselineFile is the manifest's name in the run folder.
const BaselineFile = "baseline"

// Config of a scan.
type Config struct {
	Key      contraband.TaskKey
	Set      *contraband.Set
	Progress func(done, total uint64) // bytes of content, may be nil
	Workers  int                      // goroutines that fingerprint; 0 is one for each processor
	Keys     *vault.Keys              // of an encrypted run folder; nil if it is in clear
	Openings *attest.Openings         // what the set asks to show, for the trailer; nil for nothing
}

// A Report says what a scan did, for the user. Nothing of it is signed.
type Report struct {
	Head     journal.Head
	Rows     uint64
	Objects  uint64 // distinct contents that were fingerprinted
	Scanned  uint64 // bytes, by rows
	Baseline uint64
	Declared uint64
	Opaque   uint64
	Bounded  uint64 // rows whose scan a limit cut short
	Digests  uint64 // distinct run digests
	Checked  int    // rows that the self-check derived again
}

// Scan reads the run folder and writes its evidence pack (attest.Header, Items,
// Trailer) to out. It writes nothing into the folder but a temporary file, which
// it removes, if digests do not fit into memory. On error, what was written to
// out is not to be used. Errors: a *ContentError if an object is missing,
// changed or unreadable, a *contraband.KeyError for another task's key, a
// *CheckError if the self-check fails, or that of a reader.
func Scan(ctx context.Context, run *os.Root, out io.Writer, cfg Config) (Report, error) {
	if err := cfg.Key.Check(cfg.Set); err != nil {
		return Report{}, err
	}
	return scan(ctx, run, out, cfg, newWorker)
}

// newWorker is a parameter of scan, so that a test can put in a broken one.
func newWorker(cfg *Config, salt [16]byte, s *scratch) *worker {
	return &worker{fp: canon.New(cfg.Key, cfg.Set.Filter), mac: cfg.Key.Digester(), salt: salt, scratch: s, held: new(atomic.Int64)}
}

type workerMaker func(*Config, [16]byte, *scratch) *worker

func scan(ctx context.Context, run *os.Root, out io.Writer, cfg Config, maker workerMaker) (rep Report, err error) {
	folder, err := openFolder(run, cfg.Keys)
	if err != nil {
		return Report{}, err
	}
	defer folder.close()
	ov, err := overviewOf(folder)
	if err != nil {
		return Report{}, err
	}
	base, err := readBaseline(run, ov.sum.Start.Baseline)
	if err != nil {
		return Report{}, err
	}
	if cfg.Workers == 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	spare := &scratch{root: run, name: fmt.Sprintf("scan-%d.tmp", os.Getpid())}
	defer func() { err = errors.Join(err, spare.close()) }()
	salt := contraband.RunSalt(ov.start)
	s := &session{
		cfg: cfg, folder: folder, over: ov, base: base, sizes: sizes(base), salt: salt,
		first: maker(&cfg, salt, spare),
		cache: map[key]*job{}, budget: newBudget(inFlight),
		tree:  sorter{scratch: spare, limit: treeSpillAt},
		check: newChecks(ov.sum.Head),
		out:   out,
	}
	if err := s.run(ctx); err != nil {
		return Report{}, err
	}
	return s.rep, nil
}

// clone returns a worker of the same key for another goroutine.
func (w *worker) clone(k contraband.TaskKey) *worker {
	return &worker{fp: w.fp.Clone(), mac: k.Digester(), salt: w.salt, scratch: w.scratch, held: w.held, lose: w.lose}
}

// overview is what a first pass over the rows says.
type overview struct {
	sum   journal.Summary
	start []byte // bytes of the start row
	// last chunk of each stream, and of each stream in each phase
	last  map[journal.Op]uint64
	ended map[[2]uint8]uint64
}

func overviewOf(f *folder) (*overview, error) {
	ov := &overview{last: map[journal.Op]uint64{}, ended: map[[2]uint8]uint64{}}
	chain := journal.NewChecker()
	synced, err := f.checkpoint()
	if err != nil {
		return nil, err
	}
	rows, err := f.rows()
	if err != nil {
		return nil, err
	}
	for line, err := range rows {
		if err != nil {
			return nil, err
		}
		r, err := chain.Add(line.Raw)
		if err != nil {
			return nil, err
		}
		if r.Start != nil {
			ov.start = line.Raw
		}
		if r.Seq+1 == synced.Size {
			sum := chain.Summary()
			if err := sum.CheckHead(synced); err != nil {
				return nil, fmt.Errorf("scan: rows are not those of the last checkpoint (the run folder was changed): %w", err)
			}
		}
		if r.Size > 0 && chunked(&r) {
			ov.last[r.Op] = r.Seq
			ov.ended[[2]uint8{uint8(r.Op), uint8(r.Phase)}] = r.Seq
		}
	}
	ov.sum = chain.Summary()
	if got := ov.sum.Head.Size; ov.sum.Start != nil && got < synced.Size {
		return nil, fmt.Errorf("scan: journal: got %d rows, want at least %d, which were synced to disk (the run folder was changed or the disk lost them: record the run again)", got, synced.Size)
	}
	if ov.sum.Start == nil {
		return nil, fmt.Errorf("scan: got a journal without rows, want at least the start row (record the run again)")
	}
	return ov, nil
}

// ends tells whether a chunk ends its stream, and its stream's part of the phase.
func (ov *overview) ends(r *journal.Row) (last, end bool) {
	return ov.last[r.Op] == r.Seq, ov.ended[[2]uint8{uint8(r.Op), uint8(r.Phase)}] == r.Seq
}

func chunked(r *journal.Row) bool {
	return r.Op == journal.OpStdin || r.Op == journal.OpStdout || r.Op == journal.OpStderr
}

// declared tells a row of an opaque channel that the task declares as the model's.
func declared(r *journal.Row) bool { return r.Origin == journal.OriginModel }

// judged tells whether content that no view reads counts as opaque: what came in
// as a file or through the driver's stdin. What the run produced does not.
func judged(r *journal.Row) bool {
	return r.Dir == journal.DirIn && r.Origin != journal.OriginRun && !declared(r) && r.Flags&journal.FlagText == 0
}

// exempt tells whether the row's content is a baseline object.
func (s *session) exempt(c *content) bool {
	return !c.text && !chunked(&c.row) && c.row.Flags&journal.FlagControl == 0 && s.base.Contains(c.sum)
}

// maxBaseline bounds the manifest, in bytes: some ten million files.
const maxBaseline = 1 << 30

// readBaseline reads the manifest and compares it with the start row.
func readBaseline(run *os.Root, want [32]byte) (*manifest.Manifest, error) {
	data, err := regular.ReadIn(run, BaselineFile, maxBaseline)
	if err != nil {
		return nil, fmt.Errorf("scan: baseline manifest: %w", err)
	}
	m, err := manifest.Parse(data)
	if err != nil {
		return nil, fmt.Errorf("scan: %w", err)
	}
	if got := m.Root(); got != want {
		return nil, fmt.Errorf("scan: baseline manifest: got root %x, want %x as in the start row (the run folder is damaged)", got[:8], want[:8])
	}
	return m, nil
}

// sizes of the baseline's objects.
func sizes(m *manifest.Manifest) map[[32]byte]uint64 {
	out := map[[32]byte]uint64{}
	for _, e := range m.Entries() {
		if e.Type == manifest.File || e.Type == manifest.Prompt {
			out[e.SHA256] = e.Size
		}
	}
	return out
}

// controls returns the layer-1 values of the challenged controls, sorted. One
// that the control text does not yield is left out: the verdict says so.
func controls(w *worker, set *contraband.Set, head journal.Head) []byte {
	all := set.Controls
	want := map[[32]byte]bool{}
	for _, i := range contraband.ChallengeControls(journal.FormatHead(head), len(all)/sha256.Size) {
		want[[32]byte(all[i*sha256.Size:])] = true
	}
	var opened [][32]byte
	w.fp.Object([]byte(set.Control), false, func(_ contraband.Class, s [32]byte) {
		if c := contraband.Control(s); want[c] {
			delete(want, c)
			opened = append(opened, s)
		}
	})
	return concat(opened)
}
