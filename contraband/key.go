package contraband

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
)

// KeySize of every key in this package, in bytes. HMAC pads a shorter key with
// zeros, so a key and the same key with 00 appended would be one key: other
// lengths are refused.
const KeySize = 32

// First words of the key files. A key file is one line: the word, a space, 64
// lower-case hex digits, a newline.
const (
	auditKeyWord     = "cleanrun-audit-key-v1"
	benchmarkKeyWord = "cleanrun-benchmark-key-v1"
	taskKeyWord      = "cleanrun-task-key-v1"
)

// An AuditKey is the owner's secret. All task keys come from it; none leads
// back to it or to another task's.
type AuditKey struct{ k [KeySize]byte }

// A BenchmarkKey opens all tasks of one benchmark in one key period. It does not
// lead back to the audit key. A public benchmark publishes it.
type BenchmarkKey struct{ k [KeySize]byte }

// A TaskKey opens one task: whoever has it derives all digests of that task.
type TaskKey struct{ k [KeySize]byte }

// NewAuditKey makes an audit key of exactly 32 bytes that the caller drew.
func NewAuditKey(secret []byte) (AuditKey, error) {
	k, err := checkKey("audit", secret)
	return AuditKey{k}, err
}

// NewBenchmarkKey makes a benchmark key of exactly 32 bytes.
func NewBenchmarkKey(secret []byte) (BenchmarkKey, error) {
	k, err := checkKey("benchmark", secret)
	return BenchmarkKey{k}, err
}

// NewTaskKey makes a task key of exactly 32 bytes.
func NewTaskKey(secret []byte) (TaskKey, error) {
	k, err := checkKey("task", secret)
	return TaskKey{k}, err
}

// ParseAuditKey reads an audit key file.
func ParseAuditKey(file []byte) (AuditKey, error) {
	raw, err := parseKey(auditKeyWord, file)
	if err != nil {
		return AuditKey{}, err
	}
	return NewAuditKey(raw)
}

// ParseBenchmarkKey reads the file of one exported benchmark key.
func ParseBenchmarkKey(file []byte) (BenchmarkKey, error) {
	raw, err := parseKey(benchmarkKeyWord, file)
	if err != nil {
		return BenchmarkKey{}, err
	}
	return NewBenchmarkKey(raw)
}

// ParseTaskKey reads the file of one exported task key.
func ParseTaskKey(file []byte) (TaskKey, error) {
	raw, err := parseKey(taskKeyWord, file)
	if err != nil {
		return TaskKey{}, err
	}
	return NewTaskKey(raw)
}

// Format returns the key file's bytes. They are secret.
func (a AuditKey) Format() []byte { return formatKey(auditKeyWord, a.k) }

// Format returns the key file's bytes. They are secret.
func (b BenchmarkKey) Format() []byte { return formatKey(benchmarkKeyWord, b.k) }

// Format returns the key file's bytes. They are secret.
func (k TaskKey) Format() []byte { return formatKey(taskKeyWord, k.k) }

// Publish returns the key's bytes for the head of a public benchmark.
func (b BenchmarkKey) Publish() []byte { return append([]byte(nil), b.k[:]...) }

// String never shows the key.
func (a AuditKey) String() string { return "audit key (secret)" }

// GoString never shows the key.
func (a AuditKey) GoString() string { return a.String() }

// String never shows the key.
func (b BenchmarkKey) String() string { return "benchmark key (secret)" }

// GoString never shows the key.
func (b BenchmarkKey) GoString() string { return b.String() }

// String never shows the key.
func (k TaskKey) String() string { return "task key (secret)" }

// GoString never shows the key.
func (k TaskKey) GoString() string { return k.String() }

func formatKey(word string, k [KeySize]byte) []byte {
	return []byte(word + " " + hex.EncodeToString(k[:]) + "\n")
}

// parseKey never repeats the input in an error: it may be a damaged key.
func parseKey(word string, file []byte) ([]byte, error) {
	text, ok := strings.CutPrefix(string(file), word+" ")
	if !ok {
		return nil, fmt.Errorf("key file: got another first word, want %q (cleanrun keygen -audit writes audit keys)", word)
	}
	text, ok = strings.CutSuffix(text, "\n")
	if !ok || strings.ToLower(text) != text {
		return nil, fmt.Errorf("key file: want one line %q, a space, %d lower-case hex digits and a newline", word, 2*KeySize)
	}
	raw, err := hex.DecodeString(text)
	if err != nil {
		return nil, fmt.Errorf("key file: the key is not hex, want %d lower-case hex digits", 2*KeySize)
	}
	return raw, nil
}

// checkKey refuses what no generator draws: few distinct bytes are a
// placeholder, a pad or a text.
func checkKey(what string, secret []byte) (k [KeySize]byte, err error) {
	if len(secret) != KeySize {
		return k, fmt.Errorf("%s key: got %d bytes, want exactly %d (make one with cleanrun keygen -audit)", what, len(secret), KeySize)
	}
	var seen [256]bool
	distinct := 0
	for _, b := range secret {
		if !seen[b] {
			seen[b], distinct = true, distinct+1
		}
	}
	// 32 random bytes have fewer than 16 distinct values less than once in 2^60.
	if distinct < 16 {
		return k, fmt.Errorf("%s key: weak, got %d distinct bytes, want at least 16 (make one with cleanrun keygen -audit)", what, distinct)
	}
	return [KeySize]byte(secret), nil
}

// fields joins byte strings so that no two lists give the same bytes: each is
// preceded by its length, 4 bytes big-endian.
func fields(list ...string) []byte {
	var out []byte
	for _, f := range list {
		out = binary.BigEndian.AppendUint32(out, uint32(len(f)))
		out = append(out, f...)
	}
	return out
}

// expand is HKDF-Expand (RFC 5869, section 2.3) with SHA-256 to 32 bytes.
func expand(key [KeySize]byte, info ...string) [KeySize]byte {
	out, err := hkdf.Expand(sha256.New, key[:], string(fields(info...)), KeySize)
	if err != nil {
		panic(err) // the length is a constant
	}
	return [KeySize]byte(out)
}

// Benchmark derives the key of one benchmark in one key period.
func (a AuditKey) Benchmark(benchmark, period string) BenchmarkKey {
	return BenchmarkKey{expand(a.k, "cleanrun/v1", "benchmark", benchmark, period)}
}

// Task derives the key of one task, through the benchmark's key of one period.
func (a AuditKey) Task(benchmark, period, task string, prompt, baseline [32]byte) TaskKey {
	return a.Benchmark(benchmark, period).Task(task, prompt, baseline)
}

// Task derives the key of one task. The prompt's digest and the baseline root
// are part of it, so two tasks that differ in either have different keys even if
// somebody gives them one name: a run of one can never serve to test guesses
// about the other.
func (b BenchmarkKey) Task(task string, prompt, baseline [32]byte) TaskKey {
	return TaskKey{expand(b.k, "cleanrun/v1", "task", task, string(prompt[:]), string(baseline[:]))}
}

// TaskFor derives the key of the task that s seals and checks it against the
// set's key commitment. The error is a *KeyError if it is another key.
func (a AuditKey) TaskFor(s *Set) (TaskKey, error) {
	return a.Benchmark(s.Benchmark, s.Period).TaskFor(s)
}

// TaskFor derives the key of the task that s seals and checks it against the
// set's key commitment. The error is a *KeyError if it is another key, or that
// of another benchmark or period.
func (b BenchmarkKey) TaskFor(s *Set) (TaskKey, error) {
	k := b.Task(s.Task, s.Prompt, s.Baseline)
	return k, k.Check(s)
}

// A KeyError says that a task key is not the one that sealed a set.
type KeyError struct {
	Task      string // of the set
	Got, Want [32]byte
}

func (e *KeyError) Error() string {
	return fmt.Sprintf("task key: got commitment %x, want %x as in the sealed set of task %q (use the key that sealed it)", e.Got[:8], e.Want[:8], e.Task)
}

// Check tells whether k is the key that sealed s: a *KeyError if not.
func (k TaskKey) Check(s *Set) error {
	if got := k.Commit(s.Commitment, s.Period); !hmac.Equal(got[:], s.KeyCommit[:]) {
		return &KeyError{Task: s.Task, Got: got, Want: s.KeyCommit}
	}
	return nil
}

// Commit is the key commitment of a set with this task commitment and period.
func (k TaskKey) Commit(commitment [32]byte, period string) [32]byte {
	return mac(k.k, fields("key-commit", string(commitment[:]), period, Profile))
}

// TaskCommitment binds the ground truth: HMAC(K_open, source).
func (k TaskKey) TaskCommitment(source []byte) [32]byte {
	return mac(expand(k.k, "cleanrun/v1", "open"), source)
}

// Select is the key of the winnowing order (internal/canon).
func (k TaskKey) Select() [KeySize]byte { return expand(k.k, "cleanrun/v1", "select", Profile) }

// Dummy is the i-th dummy digest of one padded list. The list's name keeps the
// dummies of two lists apart.
func (k TaskKey) Dummy(list string, i uint32) [32]byte { return k.Padding().Of(list)(i) }

// Padding makes the dummies of all lists of one task: HMAC(K_pad, list || u32 i).
// It is for one goroutine.
type Padding struct {
	short *shortMAC // nil where the platform's SHA-256 state is not ours to read
	h     hash.Hash
	sum   []byte
}

// Padding returns the maker of dummies under k.
func (k TaskKey) Padding() *Padding {
	key := expand(k.k, "cleanrun/v1", "pad")
	return &Padding{short: newShortMAC(0, key), h: hmac.New(sha256.New, key[:])}
}

// Of returns Dummy of one list. The function holds until the next call of Of.
func (p *Padding) Of(list string) func(i uint32) [32]byte {
	msg := fields(list)
	n := len(msg)
	msg = append(msg, 0, 0, 0, 0)
	if m := p.short; m != nil && len(msg) <= headSize+maxShort {
		m.message(msg)
		return func(i uint32) (d [32]byte) {
			binary.BigEndian.PutUint32(m.block[n:], i)
			m.of(&d)
			return d
		}
	}
	return func(i uint32) [32]byte {
		binary.BigEndian.PutUint32(msg[n:], i)
		p.h.Reset()
		p.h.Write(msg)
		p.sum = p.h.Sum(p.sum[:0])
		return [32]byte(p.sum)
	}
}

func mac(key [KeySize]byte, msg []byte) [32]byte {
	h := hmac.New(sha256.New, key[:])
	h.Write(msg)
	return [32]byte(h.Sum(nil))
}
