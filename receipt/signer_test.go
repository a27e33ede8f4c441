package receipt_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"testing"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// testSigner is a receipt.Signer over a key in memory.
type testSigner struct {
	key  receipt.PublicKey
	priv crypto.Signer
	sign func(message []byte) ([]byte, error)
}

func (s *testSigner) Public() receipt.PublicKey           { return s.key }
func (s *testSigner) Sign(message []byte) ([]byte, error) { return s.sign(message) }

func newSigner(t testing.TB, name string, alg receipt.Alg) *testSigner {
	t.Helper()
	seed := sha256.Sum256([]byte("test signer " + name))
	s := new(testSigner)
	if alg == receipt.Ed25519 {
		priv := ed25519.NewKeyFromSeed(seed[:])
		s.priv, s.sign = priv, func(m []byte) ([]byte, error) { return ed25519.Sign(priv, m), nil }
	} else {
		priv, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seed[:])
		if err != nil {
			t.Fatal(err)
		}
		s.priv, s.sign = priv, func(m []byte) ([]byte, error) {
			h := sha256.Sum256(m)
			der, err := priv.Sign(nil, h[:], crypto.SHA256)
			if err != nil {
				return nil, err
			}
			return receipt.FromDER(der)
		}
	}
	key, err := receipt.NewPublicKey(name, s.priv.Public())
	if err != nil {
		t.Fatal(err)
	}
	s.key = key
	return s
}

// bothAlgs runs a test with a signer of each algorithm.
func bothAlgs(t *testing.T, test func(t *testing.T, s *testSigner)) {
	for _, alg := range []receipt.Alg{receipt.Ed25519, receipt.ESP256} {
		t.Run(alg.String(), func(t *testing.T) { test(t, newSigner(t, "runner.example/ci", alg)) })
	}
}

// must(f())(t) is the value of f, or the end of the test.
func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
