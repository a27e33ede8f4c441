package entry

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// A Difference is the first field of an entry that is not what the run's journal,
// or its seal, says.
type Difference struct {
	Kind      Kind
	Field     string // as spec/log.md names it
	Got, Want string
}

func (d *Difference) Error() string {
	return fmt.Sprintf("%v, %s: got %s, want %s", d.Kind, d.Field, d.Got, d.Want)
}

// RegisterOf is the registration of a run that starts so and relies on the SEAL
// over sealed. The start's own registration and freshness do not count: they
// come after it. A run without a task cannot be registered.
func RegisterOf(start *journal.Start, sealed [32]byte) (Register, error) {
	if start.Task == "" {
		return Register{}, fmt.Errorf("got a run without a task, want one that is bound to a sealed set: only those are registered")
	}
	scope, err := dcbor.Marshal(start.Roots)
	if err != nil {
		return Register{}, err
	}
	bare := *start
	bare.Registration, bare.Freshness = nil, nil
	whole, err := dcbor.Marshal(&bare)
	if err != nil {
		return Register{}, err
	}
	r := Register{
		Run: start.Run, Benchmark: start.Benchmark, Task: start.Task, Trial: start.Trial, Attempt: start.Attempt,
		Seal: start.Seal, Sealed: sealed, Baseline: start.Baseline, Scope: sha256.Sum256(scope),
		Agent: sha256.Sum256([]byte(start.Agent)), Model: sha256.Sum256([]byte(start.Model)),
		Recorder: start.Recorder, Start: sha256.Sum256(whole),
	}
	return r, r.check()
}

type field struct{ name, got, want string }

func firstDifference(kind Kind, fields ...field) error {
	for _, f := range fields {
		if f.got != f.want {
			return &Difference{kind, f.name, f.got, f.want}
		}
	}
	return nil
}

func digest(d [32]byte) string { return fmt.Sprintf("%x", d) }
func quoted(s string) string   { return fmt.Sprintf("%q", s) }
func number(n uint64) string   { return fmt.Sprint(n) }

// counted tells counts apart: no two lists are one text.
func counted(list []journal.OpCount) string {
	parts := make([]string, len(list))
	for i, c := range list {
		parts[i] = fmt.Sprintf("%d %v in %v", c.N, c.Op, c.Phase)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// CompareRegister holds each field of a REGISTER to the start row of its run. What
// it relies on, e.Sealed, is not in the start row: CompareSeal holds the SEAL to
// it. The error is a *Difference, or says why the run cannot be registered.
func CompareRegister(r Register, start *journal.Start) error {
	want, err := RegisterOf(start, r.Sealed)
	if err != nil {
		return err
	}
	return firstDifference(KindRegister,
		field{"run", hexRun(r.Run), hexRun(want.Run)},
		field{"benchmark", quoted(r.Benchmark), quoted(want.Benchmark)},
		field{"task", quoted(r.Task), quoted(want.Task)},
		field{"trial", number(uint64(r.Trial)), number(uint64(want.Trial))},
		field{"attempt", number(uint64(r.Attempt)), number(uint64(want.Attempt))},
		field{"seal", digest(r.Seal), digest(want.Seal)},
		field{"baseline", digest(r.Baseline), digest(want.Baseline)},
		field{"scope", digest(r.Scope), digest(want.Scope)},
		field{"agent", digest(r.Agent), digest(want.Agent)},
		field{"model", digest(r.Model), digest(want.Model)},
		field{"recorder", quoted(r.Recorder), quoted(want.Recorder)},
		field{"start", digest(r.Start), digest(want.Start)},
	)
}

// CompareSeal holds a SEAL to the REGISTER that relies on it, and to what the
// verifier found sealed: digest is that of the benchmark's head or, for a set
// sealed alone, of the set. Who signed the SEAL is the caller's to check.
func CompareSeal(s Seal, r Register, of receipt.Kind, digestOf [32]byte) error {
	sub := r.Benchmark
	if of == receipt.KindSealedSet {
		sub += "/" + r.Task
	}
	return firstDifference(KindSeal,
		field{"digest", digest(s.Digest), digest(digestOf)},
		field{"type of what was hashed", s.Of.String(), of.String()},
		field{"sub", quoted(s.Subject), quoted(sub)},
		field{"digest", digest(s.Digest), digest(r.Sealed)},
	)
}

// FinalOf is the FINAL of a journal that this closing row and head end.
func FinalOf(row *journal.Final, head journal.Head, checkpoints uint64) Final {
	return Final{head, row.Outcome, row.Code, slices.Clone(row.Counts), checkpoints}
}

// CompareFinal holds each field of a FINAL to the closing row and the head of its
// journal, except the number of CHECKPOINTs, which no row has. The error is a
// *Difference.
func CompareFinal(f Final, row *journal.Final, head journal.Head) error {
	return firstDifference(KindFinal,
		field{"run", hexRun(f.Head.Run), hexRun(head.Run)},
		field{"size", number(f.Head.Size), number(head.Size)},
		field{"root", digest(f.Head.Root), digest(head.Root)},
		field{"outcome", f.Outcome.String(), row.Outcome.String()},
		field{"exit code", number(uint64(f.Code)), number(uint64(row.Code))},
		field{"counts", counted(f.Counts), counted(row.Counts)},
	)
}
