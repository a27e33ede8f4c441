package attest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sort"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// An Attestation is what Build made: the statement to sign and what it rests on.
type Attestation struct {
	Bytes      []byte // JCS bytes of Statement
	Statement  *Statement
	Derivation *Derivation
	Evidence   *Evidence
}

// A Refusal is why a run cannot be attested at all. Nothing was signed.
type Refusal struct {
	ID   string // closed list in spec/statement.md
	Got  string
	Want string
	Hint string // what to do next
}

func (r *Refusal) Error() string {
	return fmt.Sprintf("cannot attest (%s): got %s, want %s", r.ID, r.Got, r.Want)
}

// Build derives the statement of a run. It is pure: the same bytes in give the
// same bytes out.
//
// sealed is the file task.sealed, and set the payload in it, with the owner's
// signature already verified. evidence is the pack that the scanner wrote. score
// may be nil. An error is a *Refusal if the run as such cannot be attested, and
// an *EvidenceError if the pack is malformed.
func Build(set *contraband.Set, sealed, evidence []byte, score *Score) (*Attestation, error) {
	ev, err := ReadEvidence(evidence)
	if err != nil {
		return nil, err
	}
	seal := sha256.Sum256(sealed)
	if err := Bind(set, seal, ev); err != nil {
		return nil, err
	}
	d := Derive(set, ev)
	s, err := Compose(set, seal, ev, sha256.Sum256(evidence), d, score)
	if err != nil {
		return nil, err
	}
	data, err := s.Marshal()
	if err != nil {
		return nil, &Refusal{RefusedStatement, err.Error(), "a statement of bounded size", "take folders off PATH, or shorten names"}
	}
	return &Attestation{Bytes: data, Statement: s, Derivation: d, Evidence: ev}, nil
}

// Compose writes down what was derived: the only statement about this evidence,
// but for a score that is asserted. Where the rows hold a reward, that is the
// score, and a claim is refused. seal and sum are the SHA-256 of the files
// task.sealed and evidence.cbor. The error is a *Refusal.
func Compose(set *contraband.Set, seal [32]byte, ev *Evidence, sum [32]byte, d *Derivation, score *Score) (*Statement, error) {
	score, err := chooseScore(score, d.Observed)
	if err != nil {
		return nil, err
	}
	start, root := ev.start, ev.Root()
	entries := ev.Entries()
	claim := EvidenceClaim{
		Level: LevelFull, SHA256: hex.EncodeToString(sum[:]), Tree: hex.EncodeToString(ev.trailer.Tree[:]),
		Depth: ev.trailer.Depth, Digests: ev.trailer.Digests, Entries: hex.EncodeToString(entries[:]),
	}
	p := Predicate{
		Verdict: d.Verdict,
		Reasons: listed(d.Reasons),
		Matches: composeMatches(d.Matches),
		Run: RunClaim{
			Benchmark: start.Benchmark, Task: start.Task, Trial: start.Trial, Attempt: start.Attempt,
			ID: hex.EncodeToString(start.Run[:]), Outcome: outcomeOpen,
		},
		Journal: JournalClaim{ev.Size(), hex.EncodeToString(root[:])},
		Seal: SealClaim{
			SHA256: hex.EncodeToString(seal[:]), Commitment: hex.EncodeToString(set.Commitment[:]),
			Baseline: hex.EncodeToString(set.Baseline[:]), Profile: set.Profile, Period: set.Period,
		},
		Evidence:   claim,
		Scope:      ScopeClaim{Workspace: start.Workspace, Observe: start.Observe, Roots: []RootClaim{}},
		Counts:     d.Counts,
		Phases:     listed(d.Phases),
		Grader:     grader(set.Phases, start.Phases),
		Coverage:   d.Coverage,
		NotCovered: listed(d.NotCovered),
		Recorder:   RecorderClaim{start.Recorder, start.Backend, listed(start.Blind)},
		Asserted:   AssertedClaim{start.Agent, start.Model},
		Score:      score,
		Expect:     d.Expect,
	}
	if d.Footprint != nil {
		p.Footprint = d.Footprint.claim()
	}
	if ev.final != nil {
		p.Run.Outcome, p.Run.ExitCode = outcomeNames[ev.final.Outcome], ev.final.Code
	}
	for _, r := range start.Roots {
		p.Scope.Roots = append(p.Scope.Roots, RootClaim{r.Path, modeName(r.Mode), className(r.Class)})
	}
	return &Statement{
		Type:          StatementType,
		Subject:       []Subject{{journal.OriginPrefix + p.Run.ID, SubjectDigest{p.Journal.Root}}},
		PredicateType: PredicateType,
		Predicate:     p,
	}, nil
}

// grader says who chose it. Where the set states phases, Bind holds the start row
// to them.
func grader(sealed *contraband.Phases, start *journal.Phases) string {
	switch {
	case start == nil || len(start.Grade) == 0:
		return GraderNone
	case sealed == nil:
		return GraderRunner
	}
	return GraderOwner
}

// listed keeps an empty list from becoming null.
func listed[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

const outcomeOpen = "open"

var outcomeNames = map[journal.Outcome]string{
	journal.Completed: "completed", journal.Failed: "failed", journal.Cancelled: "cancelled", journal.Abandoned: "abandoned",
}

func composeMatches(all []Match) Matches {
	m := Matches{
		Total:   uint64(len(all)),
		Classes: []ClassCount{},
		First:   listed(all[:min(len(all), MaxMatches)]),
		SHA256:  matchListSum(all),
	}
	counts := map[string]uint64{}
	for _, one := range all {
		counts[one.Class]++
	}
	for class, n := range counts {
		m.Classes = append(m.Classes, ClassCount{class, n})
	}
	sort.Slice(m.Classes, func(i, j int) bool { return m.Classes[i].Class < m.Classes[j].Class })
	return m
}

// matchListSum is the SHA-256 of the JCS bytes of the list. It writes them as
// they are hashed: a list may have as many matches as the run has rows. Class and
// reason are of closed lists without a character that JSON escapes.
func matchListSum(all []Match) string {
	h := sha256.New()
	h.Write([]byte("["))
	var b []byte
	for i, m := range all {
		b = b[:0]
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, `{"class":"%s","event":%d,"reason":"%s"}`, m.Class, m.Event, m.Reason)
		h.Write(b)
	}
	h.Write([]byte("]"))
	return hex.EncodeToString(h.Sum(nil))
}

// chooseScore takes the observed reward or, without one, what the runner claims.
func chooseScore(claimed, observed *Score) (*Score, error) {
	if claimed == nil {
		return observed, nil
	}
	if err := claimed.check(); err != nil {
		return nil, &Refusal{RefusedScore, err.Error(), "a well-formed score", "give it as a decimal number"}
	}
	if observed != nil {
		return nil, &Refusal{RefusedScore, fmt.Sprintf("a claimed score of %s", claimed.Value), fmt.Sprintf("none: grading gave %s, which the rows hold", observed.Value), "leave the score out"}
	}
	if claimed.Source != ScoreAsserted {
		return nil, &Refusal{RefusedScore, "an observed score of a journal that holds no reward", fmt.Sprintf("source %q", ScoreAsserted), "record the grading (cleanrun run -grade), or attest the score as asserted"}
	}
	return claimed, nil
}
