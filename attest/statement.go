package attest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/jcs"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// Constants of the statement (in-toto Attestation Framework, Statement v1).
const (
	StatementType = "https://in-toto.io/Statement/v1"
	PredicateType = "https://cleanrun.dev/attestation/clean-run/v1"

	// MaxStatement is the largest statement in bytes.
	MaxStatement = 48 << 10
	// MaxMatches is how many matches a statement lists; the rest is bound by
	// Matches.SHA256.
	MaxMatches = 256
	// MaxOutside is how many paths out of the footprint a statement lists, and
	// MaxOutsideBytes how many bytes they have together, as JSON writes them; the
	// rest is bound by OutsideClaim.SHA256.
	MaxOutside      = 32
	MaxOutsideBytes = 8 << 10
	// LevelFull is the evidence level of a pack that holds every row and every
	// digest, from which the verdict is derived again in full.
	LevelFull = "full"

	// maxExact is the largest integer that JSON numbers carry exactly (RFC 8785, section 3.2.2.3).
	maxExact = 1<<53 - 1
)

// A Statement is the payload of a receipt: what the runner claims. As parsed it
// is unauthenticated, and its verdict is never more than a claim: the verifier
// composes the statement again from the evidence and compares each field.
type Statement struct {
	Type          string    `json:"_type"`
	Subject       []Subject `json:"subject"` // exactly one: the journal head
	PredicateType string    `json:"predicateType"`
	Predicate     Predicate `json:"predicate"`
}

// A Subject is the journal head: the origin of its checkpoints, and its root.
type Subject struct {
	Name   string        `json:"name"`
	Digest SubjectDigest `json:"digest"`
}

// SubjectDigest holds the RFC 9162 root over the journal's rows, which is a
// SHA-256 value, under the name that in-toto has for one.
type SubjectDigest struct {
	SHA256 string `json:"sha256"`
}

// Predicate of type clean-run/v1. Digests are lower-case hex. Integers are exact
// JSON numbers. Nothing in it is a time or random.
type Predicate struct {
	Verdict    Verdict        `json:"verdict"`
	Reasons    []Reason       `json:"reasons"`
	Matches    Matches        `json:"matches"`
	Run        RunClaim       `json:"run"`
	Journal    JournalClaim   `json:"journal"`
	Seal       SealClaim      `json:"seal"`
	Evidence   EvidenceClaim  `json:"evidence"`
	Scope      ScopeClaim     `json:"scope"`
	Counts     Counts         `json:"counts"`
	Phases     []PhaseClaim   `json:"phases"` // that ended, in order; empty in a run of an agent alone
	Grader     string         `json:"grader"` // who chose it: GraderOwner, GraderRunner or GraderNone
	Coverage   Coverage       `json:"coverage"`
	NotCovered []ChannelClaim `json:"notCovered"`
	Recorder   RecorderClaim  `json:"recorder"`
	Asserted   AssertedClaim  `json:"asserted"`
	Score      *Score         `json:"score,omitempty"`
	// Footprint is there exactly if the sealed set states one.
	Footprint *FootprintClaim `json:"footprint,omitempty"`
	// Expect is there exactly if the sealed set expects something of a named path. It
	// is no part of the verdict.
	Expect *expect.Result `json:"expect,omitempty"`
}

// Matches of a run. A match is a row, a class and a reason id; it shows no
// plaintext and no digest.
type Matches struct {
	Total   uint64       `json:"total"`
	Classes []ClassCount `json:"classes"` // sorted by class
	First   []Match      `json:"first"`   // by event, class, reason; at most MaxMatches
	SHA256  string       `json:"sha256"`  // of the JCS bytes of the full list
}

// ClassCount counts matches of one class.
type ClassCount struct {
	Class string `json:"class"`
	Count uint64 `json:"count"`
}

// RunClaim names the attempt.
type RunClaim struct {
	Benchmark string `json:"benchmark"`
	Task      string `json:"task"`
	Trial     uint32 `json:"trial"`
	Attempt   uint32 `json:"attempt"`
	ID        string `json:"id"`       // run id, hex
	Outcome   string `json:"outcome"`  // completed, failed, cancelled, abandoned; open without a final row
	ExitCode  uint32 `json:"exitCode"` // of the command; 0 if open
}

// JournalClaim is the head: how many rows, and the RFC 9162 root over them.
type JournalClaim struct {
	Size uint64 `json:"size"`
	Root string `json:"root"`
}

// SealClaim names the sealed set that the run was judged by.
type SealClaim struct {
	SHA256     string `json:"sha256"`     // of the file task.sealed
	Commitment string `json:"commitment"` // task commitment
	Baseline   string `json:"baseline"`   // root of the baseline manifest, as sealed and as found
	Profile    string `json:"profile"`
	Period     string `json:"period"`
}

// EvidenceClaim names the evidence pack.
type EvidenceClaim struct {
	Level   string `json:"level"`   // LevelFull
	SHA256  string `json:"sha256"`  // of the file evidence.cbor
	Tree    string `json:"tree"`    // root of the prefix-bucket tree
	Depth   uint8  `json:"depth"`   //
	Digests uint64 `json:"digests"` // distinct digests in the tree
	Entries string `json:"entries"` // root over the entries (Evidence.Entries): with the tree, what a compact proof is held to
}

// ScopeClaim is the allow list of the start row, without its keys.
type ScopeClaim struct {
	Workspace string      `json:"workspace"`
	Observe   bool        `json:"observe"`
	Roots     []RootClaim `json:"roots"`
}

// RootClaim is one root or grant.
type RootClaim struct {
	Path  string `json:"path"`
	Mode  string `json:"mode"`  // read-tree, write-tree, read-one, write-one, none
	Class string `json:"class"` // workspace, grant, system, toolchain, private, kernel, closed
}

// PhaseClaim says how a phase ended.
type PhaseClaim struct {
	Phase string `json:"phase"` // setup, agent, grade
	How   string `json:"how"`   // exited, timeout, not-started
	Code  uint32 `json:"code"`  // exit code, 128+n if signal n ended it
	Left  uint32 `json:"left"`  // processes that outlived the command and were killed
}

// ChannelClaim is a channel that no digests cover, with the bytes that went
// through it.
type ChannelClaim struct {
	Name  string `json:"name"`
	Role  string `json:"role"`
	Bytes uint64 `json:"bytes"`
}

// RecorderClaim says what watched the run, and what that does not see.
type RecorderClaim struct {
	Version string   `json:"version"`
	Backend string   `json:"backend"`
	Blind   []string `json:"blind"`
}

// A FootprintClaim is what the agent phase changed, held to what the sealed set
// allows.
type FootprintClaim struct {
	Outcome  string       `json:"outcome"`  // FootprintWithin, FootprintOutside, FootprintInconclusive
	Gate     bool         `json:"gate"`     // a change outside makes the run DIRTY
	Written  uint64       `json:"written"`  // distinct paths that changed
	Compiled uint64       `json:"compiled"` // of these, left out on the attester's word: cached modules that are what their sources compile to
	Unopened uint64       `json:"unopened"` // of these, those whose names the evidence does not show
	Outside  OutsideClaim `json:"outside"`
}

// OutsideClaim lists paths out of the footprint.
type OutsideClaim struct {
	Total  uint64        `json:"total"`
	First  []OutsidePath `json:"first"`  // by path: each that still fits into MaxOutside paths of MaxOutsideBytes together
	SHA256 string        `json:"sha256"` // of the JCS bytes of the full list
}

// AssertedClaim is what the runner says of the agent. Nothing observes it.
type AssertedClaim struct {
	Agent string `json:"agent"`
	Model string `json:"model"`
}

// A Score is a decimal number in text, such as "0.75", and where it comes from.
type Score struct {
	Value  string `json:"value"`
	Source string `json:"source"` // ScoreObserved or ScoreAsserted
}

// Sources of a score.
const (
	ScoreObserved = "observed" // the rows of this journal's grade phase hold it
	ScoreAsserted = "asserted" // somebody says so
)

// Who chose the grader of a run.
const (
	GraderOwner  = "owner"  // the sealed set states it
	GraderRunner = "runner" // the set says nothing: what grading gave is as good as the runner's word
	GraderNone   = "none"
)

// Marshal returns the JCS bytes (RFC 8785) of the statement.
func (s *Statement) Marshal() ([]byte, error) {
	data, err := jcs.Marshal(s)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxStatement {
		return nil, fmt.Errorf("statement: got %d bytes, want at most %d: shorten the names or the list of roots", len(data), MaxStatement)
	}
	return data, nil
}

// ParseStatement reads JCS bytes. It encodes what it read and compares, so an
// unknown, missing, repeated or differently spelled field, a wrong type, white
// space or a byte after the end are errors. It checks form only: what the fields
// claim is checked against the evidence.
func ParseStatement(data []byte) (*Statement, error) {
	if len(data) > MaxStatement {
		return nil, fmt.Errorf("statement: got %d bytes, want at most %d", len(data), MaxStatement)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	s := new(Statement)
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("statement: %w", err)
	}
	if s.Type != StatementType {
		return nil, fmt.Errorf("statement: got _type %q, want %q", s.Type, StatementType)
	}
	if s.PredicateType != PredicateType {
		return nil, fmt.Errorf("statement: got predicateType %q, want %q: another version of cleanrun may read it", s.PredicateType, PredicateType)
	}
	if len(s.Subject) != 1 {
		return nil, fmt.Errorf("statement: got %d subjects, want exactly 1, the journal head", len(s.Subject))
	}
	if len(s.Predicate.Matches.First) > MaxMatches {
		return nil, fmt.Errorf("statement: got %d matches, want at most %d", len(s.Predicate.Matches.First), MaxMatches)
	}
	if f := s.Predicate.Footprint; f != nil && len(f.Outside.First) > MaxOutside {
		return nil, fmt.Errorf("statement: got %d paths out of the footprint, want at most %d", len(f.Outside.First), MaxOutside)
	}
	if err := s.Predicate.Score.check(); err != nil {
		return nil, err
	}
	again, err := jcs.Marshal(s)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, data) {
		return nil, fmt.Errorf("statement: not the JCS encoding (RFC 8785) of its own value: a field is missing, repeated, out of order or spelled another way")
	}
	return s, nil
}

// check holds a score to one spelling: an optional minus, digits without a
// leading zero, and an optional fraction of at most nine digits.
func (s *Score) check() error {
	if s == nil {
		return nil
	}
	if s.Source != ScoreObserved && s.Source != ScoreAsserted {
		return fmt.Errorf("score: got source %q, want %q or %q", s.Source, ScoreObserved, ScoreAsserted)
	}
	if !journal.Decimal(s.Value) {
		return fmt.Errorf("score: got %q, want a decimal number such as 1 or 0.75, at most 15 digits before and 9 after the point", s.Value)
	}
	return nil
}
