package proof_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

const logName = "log.example.org/2026"

// A signer is an Ed25519 key.
type signer struct {
	private ed25519.PrivateKey
	public  receipt.PublicKey
}

func (s signer) Public() receipt.PublicKey           { return s.public }
func (s signer) Sign(message []byte) ([]byte, error) { return ed25519.Sign(s.private, message), nil }

// newSigner makes a key from a text, under a name.
func newSigner(t testing.TB, name, from string) signer {
	t.Helper()
	private := ed25519.NewKeyFromSeed(seed(from))
	public, err := receipt.NewPublicKey(name, private.Public())
	if err != nil {
		t.Fatal(err)
	}
	return signer{private, public}
}

func seed(from string) []byte {
	h := sha256.Sum256([]byte(from))
	return h[:]
}

func edCosigner(t testing.TB, name, from string) *proof.Cosigner {
	t.Helper()
	c, err := proof.NewEd25519Cosigner(newSigner(t, name, from))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func pqCosigner(t testing.TB, name, from string) *proof.Cosigner {
	t.Helper()
	c, err := proof.NewMLDSA44Cosigner(name, seed(from))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// signNote signs a checkpoint of the log.
func signNote(t testing.TB, s receipt.Signer, size uint64, root [32]byte) []byte {
	t.Helper()
	note, err := proof.SignCheckpoint(s, proof.Checkpoint{Origin: s.Public().Name(), Size: size, Root: root})
	if err != nil {
		t.Fatal(err)
	}
	return note
}

func verify(t testing.TB, note []byte, log receipt.PublicKey) *proof.Verified {
	t.Helper()
	u, err := proof.ParseCheckpoint(note)
	if err != nil {
		t.Fatal(err)
	}
	v, err := u.Verify(log)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// cosign adds the cosignature of each at a time; 0 leaves one out.
func cosign(t testing.TB, note []byte, log receipt.PublicKey, by []*proof.Cosigner, at []uint64) []byte {
	t.Helper()
	v := verify(t, note, log)
	for i, c := range by {
		if at[i] == 0 {
			continue
		}
		line, err := c.Cosign(v, at[i])
		if err != nil {
			t.Fatal(err)
		}
		if note, err = proof.AddSignatures(note, line); err != nil {
			t.Fatal(err)
		}
	}
	return note
}

// policy reads lines as verify does.
func policy(text string) (*proof.Policy, error) {
	p := new(proof.Policy)
	for l := range strings.Lines(text) {
		words := strings.Fields(l)
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		if err := p.Line(words); err != nil {
			return nil, err
		}
	}
	return p, p.Done()
}

func mustPolicy(t testing.TB, text string) *proof.Policy {
	t.Helper()
	p, err := policy(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return p
}

// wantError holds an error to its stage, and to what it must say.
func wantError(t *testing.T, name string, err error, stage proof.Stage, says string) {
	t.Helper()
	var e *proof.Error
	switch {
	case err == nil:
		t.Errorf("%s: taken, want an error of stage %s", name, stage)
	case !errors.As(err, &e) || e.Stage != stage || !strings.Contains(e.Error(), says):
		t.Errorf("%s: got %v, want stage %s and %q", name, err, stage, says)
	case e.Got == "" || e.Want == "":
		t.Errorf("%s: got %v, want it to say got and want", name, err)
	}
}

// The definitions of RFC 9162, sections 2.1.1, 2.1.3.1 and 2.1.4.1.

func mth(d [][32]byte) [32]byte {
	switch len(d) {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return d[0]
	}
	k := half(len(d))
	left, right := mth(d[:k]), mth(d[k:])
	return sha256.Sum256(slices.Concat([]byte{1}, left[:], right[:]))
}

func half(n int) int {
	k := 1
	for k*2 < n {
		k *= 2
	}
	return k
}

func inclusionPath(m int, d [][32]byte) [][32]byte {
	if len(d) == 1 {
		return nil
	}
	k := half(len(d))
	if m < k {
		return append(inclusionPath(m, d[:k]), mth(d[k:]))
	}
	return append(inclusionPath(m-k, d[k:]), mth(d[:k]))
}

func consistencyPath(m int, d [][32]byte, known bool) [][32]byte {
	if m == len(d) {
		if known {
			return nil
		}
		return [][32]byte{mth(d)}
	}
	k := half(len(d))
	if m <= k {
		return append(consistencyPath(m, d[:k], known), mth(d[k:]))
	}
	return append(consistencyPath(m-k, d[k:], false), mth(d[:k]))
}

func leaves(n int) [][32]byte {
	d := make([][32]byte, n)
	for i := range d {
		d[i] = sha256.Sum256(fmt.Appendf([]byte{0}, "entry %d", i))
	}
	return d
}
