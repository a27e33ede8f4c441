package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/compiled"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/opening"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/scanner"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

type attestOptions struct {
	key, sign, sign2, sealed, out, dir, score, identity, store, workspace string
	compact                                                               bool
	log                                                                   *runnersLog // nil logs nothing
}

var (
	attestFlags    attestOptions
	attestLogFlags logFlags
)

var attestCommand = &cli.Command{
	Name:  "attest",
	Args:  "RUNDIR",
	Short: "derive what a run touched, and sign its receipt",
	Long: `Derives the keyed digests of every content that the run was exposed to or wrote, derives the verdict, and writes the signed
bundle. -key takes the audit key, or the key of one benchmark or task that seal -export wrote.

A CLEAN, a DIRTY and an INCONCLUSIVE run all get a receipt: leaving one out is visible. A run that cannot be attested at all is refused
and nothing is written. The same run folder and keys give the same bytes.

With -log the receipt of a run that was started with "run -log" is put into the same log, and the bundle gets the proofs that verify needs for
assurance L1, members log.tlog-proof and log.cbor. If the end of the run is not in the log yet, it is logged first. A run that was killed has no end: its receipt
is written without proofs.

If the task states a footprint, the bundle shows the name of each path that the run changed. A cached module of Python (.pyc) is said to be what its source
compiles to if an interpreter on this machine's PATH makes the same bytes of it. Sources that the run did not change are read from the sealed workspace: -workspace
names it where it is not in the place that the run had it in. The same bytes then need the same interpreters and workspace too. If the task names a path to read, the bundle shows the events with it, the reply and the marker.

-compact writes the same signed statement with a proof of half a megabyte or so in place of the evidence, which is what all verification otherwise
needs. verify then says "aggregation trusted". Keep the run folder, or a full bundle: it is what convicts or clears you.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &attestFlags
		f.String(&v.key, "key", "audit, benchmark or task key `file`; not needed for a task of a public benchmark")
		f.Required(&v.sign, "sign", "runner's signing key `file`")
		f.String(&v.sign2, "sign2", "second signing key `file`, for policies that require one")
		f.Required(&v.sealed, "sealed", "`task.sealed` of the run's task")
		f.Required(&v.out, "o", "`file` to write, out.cleanrun")
		f.String(&v.identity, "identity", identityUsage)
		f.String(&v.store, "store", "also put the bundle into the store in this `folder`")
		f.String(&v.workspace, "workspace", "`folder` of the sealed workspace, for the sources of cached modules, of a task with a footprint")
		f.Bool(&v.compact, "compact", "write a bundle with a compact proof in place of the evidence (spec/compact.md)")
		attestLogFlags.flags(f, "the run was registered in")
		f.String(&v.score, "score", "`number` that you claim as the score (asserted); refused if grading recorded one")
	},
	Run: func(e *cli.Env, args []string) error {
		v := attestFlags
		var err error
		if v.dir, err = oneArg(args, "the run folder"); err != nil {
			return err
		}
		if v.log, err = attestLogFlags.open(context.Background()); err != nil {
			return err
		}
		if v.log != nil {
			defer v.log.Close()
		}
		return thenStore(e, v.store, v.out, func() error {
			p := cli.NewProgress(e.Stderr, "deriving digests")
			a, rep, err := doAttest(v, p, e.Warn)
			p.Done()
			if err != nil {
				return err
			}
			if e.JSON {
				return e.PrintJSON(struct {
					File    string          `json:"file"`
					Verdict attest.Verdict  `json:"verdict"`
					Reasons []attest.Reason `json:"reasons"`
					Events  uint64          `json:"events"`
					Digests uint64          `json:"digests"`
					Score   *attest.Score   `json:"score,omitempty"`
					Names   *int            `json:"names,omitempty"` // of changed paths that the bundle shows
					Shown   int             `json:"shown,omitempty"` // events that it shows in clear, of a named path
				}{v.out, a.Derivation.Verdict, a.Derivation.Reasons, rep.Rows, rep.Digests, a.Statement.Predicate.Score, rep.names, rep.shown})
			}
			fmt.Fprintf(e.Stdout, "%s  %s\n", cli.Colour(e.Stdout, verdictColour[string(a.Derivation.Verdict)], string(a.Derivation.Verdict)), v.out)
			fmt.Fprintf(e.Stdout, " events     %d, %s, %s\n", rep.Rows, several(rep.Objects, "distinct content", "distinct contents"), several(rep.Digests, "digest", "digests"))
			if rep.names != nil {
				fmt.Fprintf(e.Stdout, " names      the bundle shows %s that the run changed, since the task has a footprint\n", counted(*rep.names, "path"))
			}
			if rep.shown > 0 {
				fmt.Fprintf(e.Stdout, " shown      the bundle shows %s in clear: those of the named path and of the reply\n", counted(rep.shown, "event"))
			}
			if s := a.Statement.Predicate.Score; s != nil {
				fmt.Fprintf(e.Stdout, " score      %s, %s\n", s.Value, s.Source)
			}
			fmt.Fprintf(e.Stdout, " next       cleanrun verify -policy policy.txt %s\n", v.out)
			return nil
		})
	},
}

// attestReport says what attesting did, for the user.
type attestReport struct {
	scanner.Report
	names *int // paths that the bundle shows; nil without a footprint
	shown int  // events that it shows in clear
}

// doAttest derives evidence and statement of a run and writes the bundle.
func doAttest(o attestOptions, p *cli.Progress, warn func(string, ...any)) (*attest.Attestation, attestReport, error) {
	none := attestReport{}
	signer, err := keys.Load(o.sign)
	if err != nil {
		return nil, none, err
	}
	if _, err := os.Lstat(o.out); err == nil {
		return nil, none, receiptExists(o.out)
	}
	file, set, err := readSealed(o.sealed)
	if err != nil {
		return nil, none, err
	}
	var key contraband.TaskKey
	if o.key == "" {
		key, err = publicKeyFor(file, set)
	} else {
		key, err = readKeyFor(o.key, set)
	}
	if err != nil {
		return nil, none, err
	}
	if o.workspace != "" && set.Footprint == nil {
		return nil, none, cli.Failf(cli.ExitUsage, "leave it out", "-workspace: the task states no footprint, so it means nothing")
	}
	var score *attest.Score
	if o.score != "" {
		score = &attest.Score{Value: o.score, Source: attest.ScoreAsserted}
	}
	if given, err := readFile(filepath.Join(o.dir, "task.sealed"), contraband.MaxSetSize+1<<16); err == nil && !bytes.Equal(given, file) {
		return nil, none, cli.Failf(cli.ExitUsage, "give "+filepath.Join(o.dir, "task.sealed")+", or name another run folder", "%s is not the sealed set that %s was run with", o.sealed, o.dir)
	}
	if _, err := os.Stat(o.dir); errors.Is(err, os.ErrNotExist) {
		return nil, none, cli.Failf(cli.ExitUsage, "name the folder that cleanrun run -o wrote; cleanrun ls shows those that are here", "%s: there is no such folder", o.dir)
	}
	if _, err := os.Stat(filepath.Join(o.dir, journal.RowsFile)); errors.Is(err, os.ErrNotExist) {
		return nil, none, cli.Failf(cli.ExitUsage, "", "%s: no journal in this folder; want a folder that cleanrun run wrote", o.dir)
	}
	// A run that was killed may have left half a row. What was cut is said in the
	// report; the journal stays open, so the run can never be CLEAN.
	tail, err := journal.Recover(o.dir)
	if errors.Is(err, journal.ErrLocked) {
		return nil, none, cli.Failf(cli.ExitUsage, "wait until it has ended", "%s: the run still goes on", o.dir)
	}
	if err != nil && !errors.Is(err, errors.ErrUnsupported) { // elsewhere a torn tail is the scanner's error
		return nil, none, fmt.Errorf("%s: %w", o.dir, err)
	}
	if warn != nil && (tail.Rows > 0 || tail.Details > 0) {
		warn("%s: the run was killed: cut %s of a torn last row and %d of its detail", o.dir, several(tail.Rows, "byte", "bytes"), tail.Details)
	}
	root, private, err := openRun(o.dir, o.identity)
	if err != nil {
		return nil, none, err
	}
	defer root.Close()
	defer littleGarbage()()
	rep := attestReport{}
	openings, err := rep.open(root, o, set, private.Keys, warn)
	if err != nil {
		return nil, none, fmt.Errorf("%s: %w", o.dir, err)
	}
	config := scanner.Config{Key: key, Openings: openings, Set: set, Keys: private.Keys, Workers: runtime.GOMAXPROCS(0),
		Progress: func(done, total uint64) { p.Update(done>>20, total>>20, "MiB") }}
	evidence, release, scanned, err := scan(root, o.dir, config)
	if errors.Is(err, syscall.ENOSPC) { // the recording may have filled its disk: the bundle goes elsewhere anyhow
		evidence, release, scanned, err = scan(root, filepath.Dir(o.out), config)
	}
	if err != nil {
		return nil, none, fmt.Errorf("%s: %w", o.dir, err)
	}
	defer release()
	rep.Report = scanned
	a, err := attest.Build(set, file, evidence, score)
	if err != nil {
		return nil, none, fmt.Errorf("%s: %w", o.dir, err)
	}
	b := receipt.Bundle{Sealed: file, Evidence: evidence}
	if o.compact {
		b.Evidence = nil
		if b.Proof, err = proveCompact(set, a.Evidence); err != nil {
			return nil, none, fmt.Errorf("%s: %w", o.dir, err)
		}
	}
	a.Evidence = nil // it ends with the mapping
	sub := a.Statement.Predicate.Run.ID
	if b.Receipt, err = receipt.Sign1(receipt.KindReceipt, signer, sub, a.Bytes); err != nil {
		return nil, none, err
	}
	if b.Statement, err = receipt.SignDSSE(signer, a.Bytes); err != nil {
		return nil, none, err
	}
	if o.log == nil && warn != nil && registeredIn(o.dir) != "" {
		warn("%s was registered in a log: without -log %s the receipt has no proof of it, and assurance L0", o.dir, registeredIn(o.dir))
	}
	if o.log != nil {
		if err := logReceipt(o.log, signer, o.dir, &b, warn); err != nil {
			return nil, none, err
		}
	}
	if o.sign2 != "" {
		second, err := keys.Load(o.sign2)
		if err != nil {
			return nil, none, err
		}
		if b.Receipt2, err = receipt.Sign1(receipt.KindReceipt, second, sub, a.Bytes); err != nil {
			return nil, none, err
		}
	}
	if err := durable.CreateFrom(o.out, 0o644, b.Write); err != nil {
		if errors.Is(err, os.ErrExist) {
			err = receiptExists(o.out)
		}
		return nil, none, err
	}
	return a, rep, nil
}

// open collects what the sealed set asks the bundle to show.
func (r *attestReport) open(root *os.Root, o attestOptions, set *contraband.Set, k *vault.Keys, warn func(string, ...any)) (*attest.Openings, error) {
	c := opening.Config{Set: set, Keys: k, Workspace: o.workspace}
	c.Compiler = func(workspace string) func(footprint.Compiled, []byte, []byte) string {
		avoid := []string{workspace} // what a run could change executes nothing here
		for _, dir := range []string{o.dir, c.Workspace} {
			if abs, err := filepath.Abs(dir); err == nil && dir != "" {
				avoid = append(avoid, abs)
			}
		}
		return compiled.NewChecker(os.Getenv("PATH"), avoid...).Check
	}
	out, rep, err := opening.Collect(context.Background(), root, c)
	if err != nil {
		return nil, err
	}
	if set.Footprint != nil {
		r.names = &rep.Names
	}
	r.shown = rep.Rows
	if len(rep.Missing) > 0 && warn != nil {
		warn("event %d: the reply is not kept any more, so what it reports is not established", rep.Missing[0])
	}
	if rep.Unopened > 0 && warn != nil {
		warn("the run changed more paths than a bundle names: %s stay unnamed, and the footprint is not within", counted(rep.Unopened, "path"))
	}
	if n := len(rep.Counted); n > 0 && warn != nil {
		warn("%s of Python counts as any other file; the first is %s: %s", counted(n, "cached module"), quotePath(rep.Counted[0].Path), rep.Counted[0].Why)
	}
	return out, nil
}

func receiptExists(out string) error {
	return cli.Failf(cli.ExitUsage, "a receipt is never overwritten: name a new file", "%s exists", out)
}

// scan derives the evidence pack into a file of the run folder that has no name,
// and maps it: in memory is only what is in use. release ends the bytes' life.
func scan(root *os.Root, dir string, c scanner.Config) (evidence []byte, release func(), rep scanner.Report, err error) {
	f, err := os.CreateTemp(dir, ".evidence-*")
	if err != nil {
		return nil, nil, rep, err
	}
	defer f.Close()
	defer os.Remove(f.Name())
	if rep, err = scanner.Scan(context.Background(), root, f, c); err != nil {
		return nil, nil, rep, err
	}
	debug.FreeOSMemory() // the scanner's
	evidence, release, err = mapped(f)
	return evidence, release, rep, err
}

// publicKeyFor takes the key that the head of a public benchmark publishes.
func publicKeyFor(file []byte, set *contraband.Set) (contraband.TaskKey, error) {
	if s, err := receipt.ParseSealed(file); err == nil && s.Part != nil {
		if head, err := contraband.ParseHead(s.Signed.Unauthenticated().Payload); err == nil {
			if key, ok := head.Public(); ok {
				return key.TaskFor(set)
			}
		}
	}
	return contraband.TaskKey{}, cli.Failf(cli.ExitUsage, "cleanrun help attest", "flag -key is missing: the sealed set is not part of a public benchmark")
}

// readKeyFor reads an audit, benchmark or task key and checks that it sealed set.
func readKeyFor(path string, set *contraband.Set) (contraband.TaskKey, error) {
	raw, err := readSecret(path)
	if err != nil {
		return contraband.TaskKey{}, err
	}
	if key, err := contraband.ParseTaskKey(raw); err == nil {
		if err := key.Check(set); err != nil {
			return contraband.TaskKey{}, fmt.Errorf("%s: %w", path, err)
		}
		return key, nil
	}
	bench, err := contraband.ParseBenchmarkKey(raw)
	if err != nil {
		audit, err := contraband.ParseAuditKey(raw)
		if err != nil {
			return contraband.TaskKey{}, fmt.Errorf("%s: %w", path, err)
		}
		bench = audit.Benchmark(set.Benchmark, set.Period)
	}
	key, err := bench.TaskFor(set)
	if err != nil {
		return contraband.TaskKey{}, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// readSecret reads a small secret file and refuses one that others can read.
func readSecret(path string) ([]byte, error) {
	f, err := regular.Given(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "windows" && st.Mode().Perm()&0o077 != 0 {
		return nil, cli.Failf(cli.ExitUsage, "chmod 600 "+path, "%s: got mode %04o, want 0600: others can read this secret", path, st.Mode().Perm())
	}
	return io.ReadAll(io.LimitReader(f, 1<<16))
}
