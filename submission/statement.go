// Package submission makes and reads the statement that a runner publishes of an
// eval: the grid of all trials and attempts, the score, and the Merkle root over
// the receipts. spec/submission.md is the format.
//
// Limits first. A submission is a claim: it names receipts, it does not hold
// them. That each cell is what its receipt says is what package audit checks.
// Attempts are numbered by the runner; a run that was never given a number, and
// never published, leaves no gap. Agent and model are names that somebody wrote.
//
// The package is pure: values in, bytes out, no clock, no file, nothing random.
// All arithmetic is exact, so that every machine prints the same digits.
//
//	rule, err := submission.ParseRule("pass@3")
//	s, err := submission.Build(submission.Input{...})
//	data, err := s.Marshal()
//	s, err = submission.ParseStatement(data)
package submission

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/jcs"
)

// Constants of the statement (in-toto Attestation Framework, Statement v1).
const (
	PredicateType = "https://cleanrun.dev/attestation/submission/v1"
	// NamePrefix and the submission's id are the name of the subject.
	NamePrefix = "cleanrun.dev/submission/"

	// MaxStatement is the largest statement in bytes. A cell takes some 500.
	MaxStatement = 16 << 20
)

// A Statement is the payload of a submission. As parsed it is unauthenticated.
type Statement struct {
	Type          string           `json:"_type"`
	Predicate     Predicate        `json:"predicate"`
	PredicateType string           `json:"predicateType"`
	Subject       []attest.Subject `json:"subject"` // exactly one: the root over the receipts
}

// Predicate of type submission/v1. Digests are lower-case hex. Nothing in it is
// a time or random.
type Predicate struct {
	Agent     Named     `json:"agent"`
	Benchmark Benchmark `json:"benchmark"`
	Grid      []Cell    `json:"grid"` // by task, trial, attempt
	Model     Named     `json:"model"`
	Score     Score     `json:"score"`
	Trials    uint32    `json:"trials"` // planned for each task, from 1
}

// Named is an agent or a model, as the runner calls it, with the digests of the
// files that the runner says it is made of.
type Named struct {
	Files []File `json:"files"` // by name
	Name  string `json:"name"`  // as in the receipts; may be empty
}

// A File is known by its digest; its name is the runner's.
type File struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// Benchmark names the seal that every receipt of the submission is under.
type Benchmark struct {
	Head  string `json:"head"`  // SHA-256 of the signed head (COSE_Sign1)
	Name  string `json:"name"`  //
	Root  string `json:"root"`  // RFC 9162 root over the tasks' sets, from the head
	Tasks uint64 `json:"tasks"` // sealed tasks
	Weak  uint64 `json:"weak"`  // tasks that the owner left out because too little of them can be sealed
}

// State of an attempt.
type State string

const (
	Clean        State = State(attest.Clean)
	Dirty        State = State(attest.Dirty)
	Inconclusive State = State(attest.Inconclusive)
	Failed       State = "error"   // it was made, but there is no receipt of it
	Missing      State = "missing" // the trial has no attempt at all
)

// Attested tells whether a cell of this state has a receipt.
func (s State) Attested() bool { return s == Clean || s == Dirty || s == Inconclusive }

// A Cell is one attempt: what its receipt says. Without a receipt the digests
// are empty and there is no score.
type Cell struct {
	Attempt uint32        `json:"attempt"` // from 1; 0 if missing
	Bundle  string        `json:"bundle"`  // SHA-256 of the *.cleanrun file, which is also its name
	Receipt string        `json:"receipt"` // SHA-256 of receipt.cose in it
	Reasons []string      `json:"reasons"` // ids, in the order of the receipt
	Root    string        `json:"root"`    // of the journal
	Run     string        `json:"run"`     // run id
	Score   *attest.Score `json:"score"`
	State   State         `json:"state"`
	Task    string        `json:"task"`
	Trial   uint32        `json:"trial"` // from 1
}

// Score of the submission, by one rule, counted in both ways.
type Score struct {
	Headline Counting `json:"headline"` // which of the two the runner calls the score
	K        uint32   `json:"k"`        // of pass@k and pass^k, else 0
	Plain    Total    `json:"plain"`
	Rule     string   `json:"rule"` // mean, pass@k or pass^k
	Ruled    Total    `json:"ruled"`
}

// Counting says what a verdict does to a trial's score.
type Counting string

const (
	Plain Counting = "plain" // nothing: scores as they were
	Ruled Counting = "ruled" // DIRTY counts 0, INCONCLUSIVE is unscored
)

// A Total is a score over all tasks. Scored, Unscored and Missing are trials and
// add up to Tasks x Trials. Decimals have six digits after the point.
type Total struct {
	Interval Interval `json:"interval"`
	Missing  uint64   `json:"missing"`  // no attempt, or none with a receipt
	Scored   uint64   `json:"scored"`   //
	Tasks    uint64   `json:"tasks"`    // that have a value and stand in Value
	Unscored uint64   `json:"unscored"` // a receipt, but no score
	Value    string   `json:"value"`    // mean over tasks; "" if no task has a value
}

// Interval is a 95% confidence interval of Total.Value over tasks.
type Interval struct {
	High   string `json:"high"` // "" without a method
	Low    string `json:"low"`
	Method string `json:"method"` // MethodWilson, MethodClustered or MethodNone
}

// ID of the submission: the first half of the root over the receipts, in hex. It
// is the sub claim of the signed file.
func (s *Statement) ID() string { return s.Subject[0].Digest.SHA256[:32] }

// Marshal checks s as ParseStatement does and returns its JCS bytes (RFC 8785).
func (s *Statement) Marshal() ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	data, err := jcs.Marshal(s)
	if err != nil {
		return nil, err
	}
	if len(data) > MaxStatement {
		return nil, bad("the statement", fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d: publish the eval in parts", MaxStatement))
	}
	return data, nil
}

// ParseStatement reads JCS bytes. It encodes what it read and compares, so an
// unknown, missing, repeated or differently spelled field, a wrong type, white
// space or a byte after the end are errors. It checks form only: what the cells
// claim is for package audit.
func ParseStatement(data []byte) (*Statement, error) {
	if len(data) > MaxStatement {
		return nil, bad("the statement", fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", MaxStatement))
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	s := new(Statement)
	if err := dec.Decode(s); err != nil {
		return nil, fmt.Errorf("submission: %w", err)
	}
	if err := s.check(); err != nil {
		return nil, err
	}
	again, err := jcs.Marshal(s)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, data) {
		return nil, fmt.Errorf("submission: not the JCS encoding (RFC 8785) of its own value: a field is missing, repeated, out of order or spelled another way")
	}
	return s, nil
}

// An Error says what is wrong with a statement, or with what Build was given.
type Error struct {
	Where     string
	Got, Want string
}

func (e *Error) Error() string {
	return fmt.Sprintf("submission: %s: got %s, want %s", e.Where, e.Got, e.Want)
}

func bad(where, got, want string) error { return &Error{where, got, want} }

// hexDigest tells whether s is n bytes in lower-case hex.
func hexDigest(s string, n int) bool {
	if len(s) != 2*n {
		return false
	}
	b, err := hex.DecodeString(s)
	return err == nil && hex.EncodeToString(b) == s
}
