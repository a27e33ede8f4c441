package verify

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// MaxPolicy is the largest policy file in bytes.
const MaxPolicy = 64 << 10

// A Policy says whose keys are trusted in which role and what a bundle must
// have. It is the only trust that Verify knows. spec/policy.md.
type Policy struct {
	Owners  []receipt.PublicKey // may seal ground truth
	Runners []receipt.PublicKey // may sign receipts

	// FullEvidence demands the evidence pack, from which everything is derived
	// again: a compact proof in its place, or nothing, is then INVALID.
	FullEvidence bool
	// SecondSignature demands receipt2.cose by another pinned runner key.
	SecondSignature bool
	// InfrastructureRate is how many percent of a submission's attempts may have
	// been replaced after failures of infrastructure. It speaks of submissions:
	// package audit checks it, Verify does not.
	InfrastructureRate int
	// Footprint demands that the sealed set states a footprint, and that what the run
	// changed is within.
	Footprint bool
	// FootprintObserved demands the same, and that nothing was left out on the runner's
	// word.
	FootprintObserved bool
	// Expect demands that the sealed set expects something of a named path, and that
	// the run passed it.
	Expect bool
	// Period is the key period that a sealed set must be of: one of another period
	// is expired or superseded. "" is any.
	Period string

	// Log holds the log, witness, group and quorum lines, nil without a log line. A
	// bundle that is not logged in one of these logs is then undecided.
	Log *proof.Policy
	// CheckpointInterval is how many seconds of rows may pass before they are in a
	// logged checkpoint; 0 is any number.
	CheckpointInterval uint64
	// Freshness is how many seconds a logged run may take beside its own duration,
	// DefaultFreshness if 0.
	Freshness uint64
}

// DefaultFreshness is an hour in seconds.
const DefaultFreshness = 3600

// Words of "require" lines.
const (
	requireFull      = "full-evidence"
	requireSecond    = "second-signature"
	requireRate      = "infrastructure-rate"
	requireExpect    = "expect"
	requireFootprint = "footprint"
	requireObserved  = "footprint-observed"
	requirePeriod    = "period"
	requireInterval  = "checkpoint-interval"
	requireFreshness = "freshness"
)

// maxSeconds is a year: more is a mistake.
const maxSeconds = 31_536_000

// A PolicyError says which line of a policy is wrong. Line 0 is the whole file.
type PolicyError struct {
	Line int
	Got  string
	Want string
	Hint string
}

func (e *PolicyError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("policy: got %s, want %s", e.Got, e.Want)
	}
	return fmt.Sprintf("policy, line %d: got %s, want %s", e.Line, e.Got, e.Want)
}

// ParsePolicy reads a policy file: lines of words separated by spaces or tabs,
// empty lines, and comment lines that begin with "#". It is strict: an unknown
// word, a repeated key or requirement, and a policy that checks nothing are
// errors. The error is a *PolicyError.
func ParsePolicy(data []byte) (*Policy, error) {
	if len(data) > MaxPolicy {
		return nil, &PolicyError{Got: fmt.Sprintf("%d bytes", len(data)), Want: fmt.Sprintf("at most %d", MaxPolicy)}
	}
	p := &reader{given: map[string]bool{}}
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if err := p.line(string(bytes.TrimSuffix(line, []byte("\n")))); err != nil {
			err.Line = number
			return nil, err
		}
	}
	if err := p.done(); err != nil {
		return nil, err
	}
	return &p.Policy, nil
}

// A reader reads a policy line by line.
type reader struct {
	Policy
	given map[string]bool // requirements
	log   proof.Policy
}

// done checks what only the whole file shows.
func (p *reader) done() *PolicyError {
	if len(p.Owners) == 0 && len(p.Runners) == 0 {
		return &PolicyError{Got: "no key", Want: "at least one owner or runner line", Hint: "a policy that trusts nobody checks nothing; cleanrun keygen prints policy lines"}
	}
	if p.SecondSignature && len(p.Runners) < 2 {
		return &PolicyError{Got: fmt.Sprintf("require %s with %d runner keys", requireSecond, len(p.Runners)), Want: "at least two runner lines"}
	}
	if err := p.log.Done(); err != nil {
		return logLine(err)
	}
	for _, w := range p.log.Witnesses {
		for _, k := range slices.Concat(p.Owners, p.Runners) {
			if w.Key.IsKeyOf(k) {
				return &PolicyError{Got: fmt.Sprintf("the key of %s as witness %s", k.Name(), w.Name), Want: "witnesses that are no owner and no runner", Hint: "who makes entries cannot attest when they were made"}
			}
		}
	}
	if len(p.log.Logs) > 0 {
		p.Log = &p.log
		return nil
	}
	if n := len(p.log.Witnesses); n > 0 {
		return &PolicyError{Got: fmt.Sprintf("%d witness lines and no log line", n), Want: "the log that they witness", Hint: "without it nobody's cosignature would be asked for; cleanrun log init prints the line of a log"}
	}
	for _, word := range []string{requireInterval, requireFreshness} {
		if p.given[word] {
			return &PolicyError{Got: fmt.Sprintf("require %s without a log line", word), Want: "a log line", Hint: "name the log that runs must be registered in"}
		}
	}
	return nil
}

func (p *reader) line(text string) *PolicyError {
	for i := range len(text) {
		if c := text[i]; (c < ' ' && c != '\t') || c > '~' {
			return &PolicyError{Got: fmt.Sprintf("byte 0x%02x", c), Want: "printable ASCII, spaces and tabs", Hint: "save the file as plain text with LF line ends"}
		}
	}
	words := strings.Fields(text)
	if len(words) == 0 || words[0][0] == '#' {
		return nil
	}
	switch words[0] {
	case "owner":
		return key(&p.Owners, words)
	case "runner":
		return key(&p.Runners, words)
	case "require":
		return p.require(words[1:])
	case "log", "witness", "group", "quorum":
		if err := p.log.Line(words); err != nil {
			return logLine(err)
		}
		return nil
	}
	return &PolicyError{Got: fmt.Sprintf("%q", words[0]), Want: "owner, runner, require, log, witness, group or quorum"}
}

func key(keys *[]receipt.PublicKey, words []string) *PolicyError {
	if len(words) != 2 {
		return &PolicyError{Got: fmt.Sprintf("%d words", len(words)), Want: words[0] + " and a vkey"}
	}
	k, err := receipt.ParseVKey(words[1])
	if err != nil {
		return &PolicyError{Got: err.Error(), Want: "a vkey", Hint: "copy the line that cleanrun keygen printed"}
	}
	for _, other := range *keys {
		if other.SameKey(k) || other.Name() == k.Name() {
			return &PolicyError{Got: fmt.Sprintf("the %s key or name %q again", words[0], k.Name()), Want: "each key and each name once in a role"}
		}
	}
	*keys = append(*keys, k)
	return nil
}

// require reads what stands behind the word require: a requirement, and its value
// if it has one.
func (p *reader) require(words []string) *PolicyError {
	flags := map[string]*bool{requireFull: &p.FullEvidence, requireSecond: &p.SecondSignature, requireExpect: &p.Expect, requireFootprint: &p.Footprint,
		requireObserved: &p.FootprintObserved}
	values := map[string]func(string) *PolicyError{
		requireRate:      func(v string) *PolicyError { return percent(&p.InfrastructureRate, v) },
		requirePeriod:    func(v string) *PolicyError { p.Period = v; return nil },
		requireInterval:  func(v string) *PolicyError { return seconds(&p.CheckpointInterval, v) },
		requireFreshness: func(v string) *PolicyError { return seconds(&p.Freshness, v) },
	}
	if len(words) == 0 || flags[words[0]] == nil && values[words[0]] == nil {
		known := slices.Sorted(maps.Keys(flags))
		known = append(known, slices.Sorted(maps.Keys(values))...)
		return &PolicyError{Got: fmt.Sprintf("%q", strings.Join(append([]string{"require"}, words...), " ")), Want: "require and one of " + strings.Join(known, ", ")}
	}
	name := words[0]
	if p.given[name] {
		return &PolicyError{Got: fmt.Sprintf("require %s again", name), Want: "each requirement once"}
	}
	p.given[name] = true
	if flag := flags[name]; flag != nil {
		if len(words) != 1 {
			return &PolicyError{Got: fmt.Sprintf("%d words", len(words)+1), Want: fmt.Sprintf("require %s alone", name)}
		}
		*flag = true
		return nil
	}
	if len(words) != 2 {
		return &PolicyError{Got: fmt.Sprintf("%d words", len(words)+1), Want: fmt.Sprintf("require %s and one value", name)}
	}
	return values[name](words[1])
}

// logLine turns an error of a log, witness, group or quorum line into one of the
// file.
func logLine(err error) *PolicyError {
	var e *proof.Error
	if !errors.As(err, &e) {
		return &PolicyError{Got: err.Error(), Want: "a line of c2sp.org/tlog-policy"}
	}
	return &PolicyError{Got: e.Got, Want: e.Want, Hint: e.Hint}
}

func percent(to *int, word string) *PolicyError {
	n, err := strconv.Atoi(word)
	if err != nil || n < 0 || n > 100 || strconv.Itoa(n) != word {
		return &PolicyError{Got: fmt.Sprintf("%q", word), Want: "a whole number of percent from 0 to 100"}
	}
	*to = n
	return nil
}

func seconds(to *uint64, word string) *PolicyError {
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil || n < 1 || n > maxSeconds || strconv.FormatUint(n, 10) != word {
		return &PolicyError{Got: fmt.Sprintf("%q", word), Want: fmt.Sprintf("a whole number of seconds from 1 to %d", maxSeconds)}
	}
	*to = n
	return nil
}

// pinned finds a key by its thumbprint.
func pinned(keys []receipt.PublicKey, kid [32]byte) (receipt.PublicKey, bool) {
	i := slices.IndexFunc(keys, func(k receipt.PublicKey) bool { return k.Thumbprint() == kid })
	if i < 0 {
		return receipt.PublicKey{}, false
	}
	return keys[i], true
}
