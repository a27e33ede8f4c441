package contraband

import (
	"fmt"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// BenchmarkVersion of the head of a benchmark's seal.
const BenchmarkVersion = "cleanrun/benchmark/v1"

// Bounds of a benchmark's seal.
const (
	MaxHeadSize = 8 << 10 // bytes of the head's encoding
	MaxTasks    = 1 << 20 // sets of one benchmark
)

// A Head is what the owner signs of a benchmark's seal (spec/benchmark.md): one
// root over the sealed sets of all its tasks. A Head that ParseHead returned is
// well formed; whether the owner signed it is receipt's business.
type Head struct {
	Version   string   `cbor:"1,keyasint"`
	Benchmark string   `cbor:"2,keyasint"`
	Period    string   `cbor:"3,keyasint"` // key period, "" is the first
	Tasks     uint64   `cbor:"4,keyasint"` // number of sealed sets, at least 1
	Root      [32]byte `cbor:"5,keyasint"` // RFC 9162 root over the sets' payloads, ascending by task
	Weak      uint64   `cbor:"6,keyasint"` // tasks of the data that the owner left out because they cannot be sealed well
	Revision  string   `cbor:"7,keyasint"` // of the data, as the owner names it; "" is allowed for private keys only
	Data      [32]byte `cbor:"8,keyasint"` // digest of the data, zero unless the key is public
	Key       []byte   `cbor:"9,keyasint"` // K_benchmark if it is public, else empty
}

// Rules of a head, beside those that it shares with sets.
const (
	RuleTasks     Rule = "tasks"     // no set, or more than MaxTasks
	RulePublic    Rule = "public"    // a key without revision or data digest, or the reverse, or a key that did not seal the set
	RuleBenchmark Rule = "benchmark" // a set of another benchmark or period
	RuleInclusion Rule = "inclusion" // a set that is not under the root
)

// A HeadError says which rule a benchmark's head, or a set under it, breaks.
type HeadError struct {
	Rule      Rule
	Where     string // field
	Got, Want string
}

func (e *HeadError) Error() string {
	return fmt.Sprintf("benchmark seal: %s: %s: got %s, want %s", e.Rule, e.Where, e.Got, e.Want)
}

func headBroken(rule Rule, where string, got any, want string) error {
	return &HeadError{Rule: rule, Where: where, Got: fmt.Sprint(got), Want: want}
}

// ParseHead decodes the head of a benchmark's seal and holds it to every rule.
// The error is a *HeadError.
func ParseHead(data []byte) (*Head, error) {
	if len(data) > MaxHeadSize {
		return nil, headBroken(RuleSize, "head", fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", MaxHeadSize))
	}
	h := new(Head)
	if err := dcbor.Unmarshal(data, h); err != nil {
		return nil, headBroken(RuleEncoding, "head", err, "the deterministic CBOR of spec/benchmark.md")
	}
	if err := h.check(); err != nil {
		return nil, err
	}
	return h, nil
}

// Marshal checks h as ParseHead does and encodes it. The error is a *HeadError.
func (h *Head) Marshal() ([]byte, error) {
	if err := h.check(); err != nil {
		return nil, err
	}
	data, err := dcbor.Marshal(h)
	if err != nil {
		return nil, headBroken(RuleEncoding, "head", err, "a value that CBOR can hold")
	}
	return data, nil
}

func (h *Head) check() error {
	if h.Version != BenchmarkVersion {
		return headBroken(RuleVersion, "version", fmt.Sprintf("%.80q", h.Version), fmt.Sprintf("%q", BenchmarkVersion))
	}
	for _, n := range []struct {
		what, name string
		empty      bool
	}{{"benchmark", h.Benchmark, false}, {"period", h.Period, true}, {"revision", h.Revision, true}} {
		if !CheckName(n.name) || n.name == "" && !n.empty {
			return headBroken(RuleName, n.what, fmt.Sprintf("%.80q", n.name), fmt.Sprintf("a printable name of at most %d bytes", maxName))
		}
	}
	if h.Tasks < 1 || h.Tasks > MaxTasks {
		return headBroken(RuleTasks, "tasks", h.Tasks, fmt.Sprintf("1 to %d", MaxTasks))
	}
	if h.Weak > MaxTasks {
		return headBroken(RuleTasks, "weak", h.Weak, fmt.Sprintf("at most %d", MaxTasks))
	}
	if len(h.Key) == 0 {
		if h.Data != [32]byte{} {
			return headBroken(RulePublic, "data", "a digest of the data without a public key", "both or neither")
		}
		return nil
	}
	if _, err := NewBenchmarkKey(h.Key); err != nil {
		return headBroken(RulePublic, "key", err, "a benchmark key of 32 bytes, or none")
	}
	if h.Revision == "" || h.Data == [32]byte{} {
		return headBroken(RulePublic, "key", "a public key without revision or data digest", "all three: a public set can be rebuilt from named data only")
	}
	return nil
}

// Public returns the benchmark's key if the owner published it.
func (h *Head) Public() (key BenchmarkKey, ok bool) {
	key, err := NewBenchmarkKey(h.Key)
	return key, err == nil
}

// Includes checks that payload, from which s was parsed, is the set at index
// under the head's root, and of its benchmark and period; where the key is
// public, also that it sealed s. The error is a *HeadError.
func (h *Head) Includes(s *Set, payload []byte, index uint64, path [][32]byte) error {
	if s.Benchmark != h.Benchmark || s.Period != h.Period {
		return headBroken(RuleBenchmark, "set", fmt.Sprintf("%.80q, period %.80q", s.Benchmark, s.Period), fmt.Sprintf("%.80q, period %.80q", h.Benchmark, h.Period))
	}
	if index >= h.Tasks {
		return headBroken(RuleInclusion, "index", index, fmt.Sprintf("less than the %d tasks of the head", h.Tasks))
	}
	hashes := make([][]byte, len(path))
	for i := range path {
		hashes[i] = path[i][:]
	}
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, h.Tasks, rfc6962.DefaultHasher.HashLeaf(payload), hashes, h.Root[:]); err != nil {
		return headBroken(RuleInclusion, fmt.Sprintf("set %d", index), err, "the set and proof that the owner's root covers")
	}
	if key, ok := h.Public(); ok {
		if _, err := key.TaskFor(s); err != nil {
			return headBroken(RulePublic, "key", err, "the public key to be the one that sealed the set")
		}
	}
	return nil
}
