package keys_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/asn1"
	"errors"
	"io"
	"math/big"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/sigstore/sigstore/pkg/signature/kms/fake"

	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// A key service behind sigstore's interface signs receipts, though not the same
// bytes twice.
func TestFromSigstoreKMS(t *testing.T) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.WithValue(context.Background(), fake.KmsCtxKey{}, priv)
	kms, err := fake.LoadSignerVerifier(ctx, crypto.SHA256)
	if err != nil {
		t.Fatal(err)
	}
	s, err := keys.FromSigstore("kms.example", kms)
	if err != nil {
		t.Fatal(err)
	}
	// Half of all random signatures have a high s; 32 hold some of both.
	seen := make(map[string]bool)
	for range 32 {
		sig, err := s.Sign([]byte("message"))
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Public().Verify([]byte("message"), sig); err != nil {
			t.Error(err)
		}
		seen[string(sig)] = true
	}
	if len(seen) < 2 {
		t.Error("the service is deterministic: this test no longer says what it should")
	}
	if _, err := receipt.SignDSSE(s, []byte("{}")); err != nil {
		t.Error(err)
	}
}

// badSigner answers as a broken or hostile service would.
type badSigner struct {
	pub  crypto.PublicKey
	err  error
	sign func(message []byte) ([]byte, error)
}

func (b badSigner) PublicKey(...signature.PublicKeyOption) (crypto.PublicKey, error) {
	return b.pub, b.err
}

func (b badSigner) SignMessage(r io.Reader, _ ...signature.SignOption) ([]byte, error) {
	m, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return b.sign(m)
}

func TestFromSigstoreRefuses(t *testing.T) {
	priv, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der := func(k *ecdsa.PrivateKey, m []byte) ([]byte, error) {
		h := sha256.Sum256(m)
		return ecdsa.SignASN1(rand.Reader, k, h[:])
	}
	if _, err := keys.FromSigstore("kms.example", badSigner{err: errors.New("offline")}); err == nil || !strings.Contains(err.Error(), "offline") {
		t.Errorf("no public key: got %v", err)
	}
	if _, err := keys.FromSigstore("kms.example", badSigner{pub: &rsa.PublicKey{}}); err == nil {
		t.Error("an RSA key was accepted")
	}
	for name, c := range map[string]struct {
		sign func([]byte) ([]byte, error)
		want string
	}{
		"positive control": {func(m []byte) ([]byte, error) { return der(priv, m) }, ""},
		"another key":      {func(m []byte) ([]byte, error) { return der(other, m) }, "does not verify"},
		"other message":    {func(m []byte) ([]byte, error) { return der(priv, append(m, 0)) }, "does not verify"},
		"error":            {func(m []byte) ([]byte, error) { return nil, errors.New("offline") }, "offline"},
		"no DER":           {func(m []byte) ([]byte, error) { return make([]byte, 64), nil }, "DER"},
		"zero": {func(m []byte) ([]byte, error) {
			return asn1.Marshal(struct{ R, S *big.Int }{new(big.Int), new(big.Int)})
		}, "range"},
		"trailing": {func(m []byte) ([]byte, error) { d, err := der(priv, m); return append(d, 0), err }, "DER"},
	} {
		s, err := keys.FromSigstore("kms.example", badSigner{pub: priv.Public(), sign: c.sign})
		if err != nil {
			t.Fatal(err)
		}
		sig, err := s.Sign([]byte("message"))
		if c.want == "" && err != nil || c.want != "" && (err == nil || sig != nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %x, %v, want %q", name, sig, err, c.want)
		}
	}
}
