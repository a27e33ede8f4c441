package contraband

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func secret(seed string) []byte {
	s := sha256.Sum256([]byte(seed))
	return s[:]
}

func audit(t testing.TB, seed string) AuditKey {
	t.Helper()
	a, err := NewAuditKey(secret(seed))
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// RT26: a key with 00 appended is the same HMAC key, so only 32 bytes pass.
func TestRT26_KeyLength(t *testing.T) {
	good := secret("key")
	if _, err := NewAuditKey(good); err != nil {
		t.Fatalf("control: %v", err)
	}
	a, b := hmac.New(sha256.New, good), hmac.New(sha256.New, append(slices.Clone(good), 0))
	if !hmac.Equal(a.Sum(nil), b.Sum(nil)) {
		t.Fatal("the attack does not exist: HMAC tells k and k||00 apart")
	}
	for _, key := range [][]byte{nil, good[:31], append(slices.Clone(good), 0), bytes.Repeat(good, 2)} {
		for what, err := range map[string]error{
			"audit": second(NewAuditKey(key)), "task": second(NewTaskKey(key)),
			"audit file": second(ParseAuditKey([]byte("cleanrun-audit-key-v1 " + hex.EncodeToString(key) + "\n"))),
			"task file":  second(ParseTaskKey([]byte("cleanrun-task-key-v1 " + hex.EncodeToString(key) + "\n"))),
		} {
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("got %d bytes, want exactly 32", len(key))) {
				t.Errorf("%s of %d bytes: got %v, want the length refused", what, len(key), err)
			}
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestWeakKeys(t *testing.T) {
	for _, key := range [][]byte{make([]byte, 32), bytes.Repeat([]byte{0xaa}, 32), bytes.Repeat([]byte("abcd"), 8), []byte("passwordpasswordpasswordpassword")} {
		if _, err := NewAuditKey(key); err == nil || !strings.Contains(err.Error(), "weak") {
			t.Errorf("%q: got %v, want it refused as weak", key, err)
		}
	}
}

func TestKeyFiles(t *testing.T) {
	a := audit(t, "a")
	if got, err := ParseAuditKey(a.Format()); err != nil || got != a {
		t.Errorf("audit key: got %v, want the same key back", err)
	}
	k := a.Task("b", "", "t", [32]byte{1}, [32]byte{2})
	if got, err := ParseTaskKey(k.Format()); err != nil || got != k {
		t.Errorf("task key: got %v, want the same key back", err)
	}
	line := string(a.Format())
	for name, file := range map[string]string{
		"empty": "", "no newline": strings.TrimSuffix(line, "\n"), "two newlines": line + "\n", "CR": strings.Replace(line, "\n", "\r\n", 1),
		"upper case": strings.ToUpper(line), "upper hex": "cleanrun-audit-key-v1 " + strings.ToUpper(strings.Fields(line)[1]) + "\n", "byte order mark": "\ufeff" + line,
		"two spaces": strings.Replace(line, " ", "  ", 1), "task key": string(k.Format()), "no hex": "cleanrun-audit-key-v1 " + strings.Repeat("zz", 32) + "\n",
	} {
		_, err := ParseAuditKey([]byte(file))
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), strings.Fields(line)[1][:16]) {
			t.Errorf("%s: the error shows the key: %v", name, err)
		}
	}
	for _, s := range []string{fmt.Sprint(a), fmt.Sprintf("%v %+v %#v %s", a, a, a, a), fmt.Sprintf("%v %+v %#v %s", k, k, k, k)} {
		if !strings.Contains(s, "secret") || len(s) > 100 {
			t.Errorf("printing a key gives %q", s)
		}
	}
}

// RT90: no two tasks share a key, whatever their names are.
func TestRT90_TasksHaveDifferentKeys(t *testing.T) {
	a := audit(t, "a")
	base := func() TaskKey { return a.Task("bench", "1", "task", [32]byte{1}, [32]byte{2}) }
	if base() != base() {
		t.Fatal("control: the same task must have the same key")
	}
	seen := map[TaskKey]string{base(): "base"}
	for name, k := range map[string]TaskKey{
		"benchmark":        a.Task("bench2", "1", "task", [32]byte{1}, [32]byte{2}),
		"period":           a.Task("bench", "2", "task", [32]byte{1}, [32]byte{2}),
		"task":             a.Task("bench", "1", "task2", [32]byte{1}, [32]byte{2}),
		"prompt":           a.Task("bench", "1", "task", [32]byte{3}, [32]byte{2}),
		"baseline":         a.Task("bench", "1", "task", [32]byte{1}, [32]byte{3}),
		"border moved":     a.Task("bench1", "", "task", [32]byte{1}, [32]byte{2}),
		"border moved too": a.Task("bench", "1t", "ask", [32]byte{1}, [32]byte{2}),
		"audit key":        audit(t, "b").Task("bench", "1", "task", [32]byte{1}, [32]byte{2}),
	} {
		if old, ok := seen[k]; ok {
			t.Errorf("another %s: got the key of %s", name, old)
		}
		seen[k] = name
	}
}

func TestDerivedKeysDiffer(t *testing.T) {
	k := audit(t, "a").Task("b", "", "t", [32]byte{}, [32]byte{})
	d := k.Digester()
	seen := map[[32]byte]string{k.Select(): "select", k.TaskCommitment(nil): "open", k.Dummy("", 0): "dummy", k.Commit([32]byte{}, ""): "commit"}
	for c := ClassCanary; c <= ClassAtom; c++ {
		s := d.Digest(c, []byte("x"))
		if old, ok := seen[s]; ok {
			t.Errorf("class %d: got the value of %s", c, old)
		}
		seen[s] = fmt.Sprint("class ", c)
	}
}

// Dummies are the HMAC of the list's name and a number, however long the name is
// and whatever list came before.
func TestDummiesEqualHMAC(t *testing.T) {
	k := audit(t, "a").Task("b", "", "t", [32]byte{}, [32]byte{})
	pad := k.Padding()
	for _, n := range []int{0, 11, 46, 47, 48, 300, 5} {
		list := strings.Repeat("n", n)
		dummy := pad.Of(list)
		for _, i := range []uint32{0, 1, 256, 1<<32 - 1} {
			msg := append(binary.BigEndian.AppendUint32(nil, uint32(n)), list...)
			want := mac(expand(k.k, "cleanrun/v1", "pad"), binary.BigEndian.AppendUint32(msg, i))
			if got := dummy(i); got != want || k.Dummy(list, i) != want {
				t.Errorf("list of %d letters, number %d: got %x, want %x", n, i, got, want)
			}
		}
	}
}

// The one-block MAC and crypto/hmac agree at every length around the limit.
func TestDigestEqualsHMAC(t *testing.T) {
	k := audit(t, "a").Task("b", "", "t", [32]byte{}, [32]byte{})
	d := k.Digester()
	short := 0
	for c := ClassCanary; c <= ClassAtom; c++ {
		if d.short[c] != nil {
			short++
		}
		key := expand(k.k, "cleanrun/v1", "class", Profile, string([]byte{byte(c)}))
		for _, n := range []int{300, 0, 1, 48, 49, 50, 24, 64, 47, 1000} {
			item := bytes.Repeat([]byte{0xa5, byte(n)}, n)[:n]
			msg := binary.BigEndian.AppendUint32([]byte{1, byte(c)}, uint32(n))
			want := mac(key, append(msg, item...))
			if got := d.Digest(c, item); got != want {
				t.Errorf("class %d, %d bytes: got %x, want %x", c, n, got, want)
			}
		}
	}
	if short == 0 {
		t.Error("no class has the one-block MAC: the test compares crypto/hmac with itself")
	}
}

func TestCommitmentBinds(t *testing.T) {
	a := audit(t, "a")
	s := &Set{Benchmark: "b", Task: "t"}
	k := a.Task("b", "", "t", s.Prompt, s.Baseline)
	s.Commitment = k.TaskCommitment([]byte("source"))
	s.KeyCommit = k.Commit(s.Commitment, "")
	if got, err := a.TaskFor(s); err != nil || got != k {
		t.Fatalf("control: %v", err)
	}
	var bad *KeyError
	if _, err := audit(t, "b").TaskFor(s); !errors.As(err, &bad) || bad.Task != "t" {
		t.Errorf("another audit key: got %v, want a KeyError", err)
	}
	s.Period = "2"
	if _, err := a.TaskFor(s); !errors.As(err, &bad) {
		t.Errorf("another period: got %v, want a KeyError", err)
	}
}

func TestRunDigestIsOneLabelledBlock(t *testing.T) {
	salt, s := RunSalt([]byte("start row")), [32]byte{7}
	want := sha256.Sum256(append(append([]byte("run-d/1"), salt[:]...), s[:]...))
	if got := RunDigest(salt, s); got != [16]byte(want[:16]) {
		t.Errorf("got %x, want %x", got, want[:16])
	}
	if RunDigest(RunSalt([]byte("other row")), s) == RunDigest(salt, s) {
		t.Error("two runs have one digest")
	}
	if c := Control(s); RunDigest(salt, c) == RunDigest(salt, s) || c == s {
		t.Error("what the set shows of a control gives its run digest")
	}
}

func TestChallengeControls(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 64, 1000} {
		got := ChallengeControls([]byte("head"), n)
		if len(got) != min(16, n) || !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("n=%d: got %v, want min(16, n) indexes, ascending, each once", n, got)
		}
		if n > 0 && (got[0] < 0 || got[len(got)-1] >= n) {
			t.Errorf("n=%d: got %v, out of range", n, got)
		}
		if !slices.Equal(got, ChallengeControls([]byte("head"), n)) {
			t.Errorf("n=%d: not the same twice", n)
		}
	}
	seen := map[int]int{}
	for i := range 4000 {
		for _, c := range ChallengeControls(fmt.Append(nil, i), 64) {
			seen[c]++
		}
	}
	for c := range 64 {
		if n := seen[c]; n < 800 || n > 1200 { // 1000 expected
			t.Errorf("control %d was picked %d times of 1000 expected", c, n)
		}
	}
}

// Vectors of the reference implementation (Aumasson, Bernstein): key and input
// are 00 01 02 ...
func TestSipHash(t *testing.T) {
	var key, in [64]byte
	for i := range key {
		key[i], in[i] = byte(i), byte(i)
	}
	k0, k1 := binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])
	for n, want := range map[int]uint64{0: 0x726fdb47dd0e0e31, 1: 0x74f839c593dc67fd, 7: 0xab0200f58b01d137, 8: 0x93f5f5799a932462, 15: 0xa129ca6149be45e5} {
		if got := siphash(k0, k1, in[:n]); got != want {
			t.Errorf("%d bytes: got %016x, want %016x", n, got, want)
		}
	}
}
