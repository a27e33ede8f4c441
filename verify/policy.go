package verify

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/cleanrun-dev/cleanrun/receipt"
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

	rated bool // InfrastructureRate was given
}

// Words of "require" lines.
const (
	requireFull   = "full-evidence"
	requireSecond = "second-signature"
	requireRate   = "infrastructure-rate"
)

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
	p := new(Policy)
	number := 0
	for line := range bytes.Lines(data) {
		number++
		if err := p.line(string(bytes.TrimSuffix(line, []byte("\n")))); err != nil {
			err.Line = number
			return nil, err
		}
	}
	if len(p.Owners) == 0 && len(p.Runners) == 0 {
		return nil, &PolicyError{Got: "no key", Want: "at least one owner or runner line", Hint: "a policy that trusts nobody checks nothing; cleanrun keygen prints policy lines"}
	}
	if p.SecondSignature && len(p.Runners) < 2 {
		return nil, &PolicyError{Got: fmt.Sprintf("require %s with %d runner keys", requireSecond, len(p.Runners)), Want: "at least two runner lines"}
	}
	return p, nil
}

func (p *Policy) line(text string) *PolicyError {
	for i := range len(text) {
		if c := text[i]; (c < ' ' && c != '\t') || c > '~' {
			return &PolicyError{Got: fmt.Sprintf("byte 0x%02x", c), Want: "printable ASCII, spaces and tabs", Hint: "save the file as plain text with LF line ends"}
		}
	}
	words := strings.Fields(text)
	if len(words) == 0 || words[0][0] == '#' {
		return nil
	}
	if words[0] == "require" && len(words) > 1 && words[1] == requireRate {
		return p.rate(words)
	}
	if len(words) > 2 && (words[0] == "owner" || words[0] == "runner" || words[0] == "require") {
		return &PolicyError{Got: fmt.Sprintf("%d words", len(words)), Want: words[0] + " and one word"}
	}
	switch words[0] {
	case "owner":
		return p.key(&p.Owners, words)
	case "runner":
		return p.key(&p.Runners, words)
	case "require":
		return p.require(words)
	case "log", "witness", "group", "quorum":
		return &PolicyError{
			Got: fmt.Sprintf("%q", words[0]), Want: "owner, runner or require",
			Hint: "this version of cleanrun does not check logs and witnesses, so it refuses a policy that asks for them",
		}
	}
	return &PolicyError{Got: fmt.Sprintf("%q", words[0]), Want: "owner, runner or require"}
}

func (p *Policy) key(keys *[]receipt.PublicKey, words []string) *PolicyError {
	if len(words) != 2 {
		return &PolicyError{Got: words[0] + " without a key", Want: words[0] + " and a vkey"}
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

func (p *Policy) require(words []string) *PolicyError {
	known := map[string]*bool{requireFull: &p.FullEvidence, requireSecond: &p.SecondSignature}
	if len(words) != 2 || known[words[1]] == nil {
		return &PolicyError{Got: fmt.Sprintf("%q", strings.Join(words, " ")), Want: fmt.Sprintf("require %s, require %s or require %s N", requireFull, requireSecond, requireRate)}
	}
	if *known[words[1]] {
		return &PolicyError{Got: fmt.Sprintf("require %s again", words[1]), Want: "each requirement once"}
	}
	*known[words[1]] = true
	return nil
}

// rate reads "require infrastructure-rate N".
func (p *Policy) rate(words []string) *PolicyError {
	want := "require " + requireRate + " and a whole number of percent from 0 to 100"
	if len(words) != 3 {
		return &PolicyError{Got: fmt.Sprintf("%d words", len(words)), Want: want}
	}
	n, err := strconv.Atoi(words[2])
	if err != nil || n < 0 || n > 100 || strconv.Itoa(n) != words[2] {
		return &PolicyError{Got: fmt.Sprintf("%q", words[2]), Want: want}
	}
	if p.rated {
		return &PolicyError{Got: "require " + requireRate + " again", Want: "each requirement once"}
	}
	p.InfrastructureRate, p.rated = n, true
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
