package keys

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// FromSigstore makes a receipt.Signer of a sigstore signer: a key in a file, in
// memory or in a management service. The service must sign with Ed25519, or with
// ECDSA P-256 over SHA-256 as DER; s is lowered. Every signature is verified
// before it is given out.
//
// Services draw a new nonce for each ECDSA signature, so two bundles of one run
// differ in their signatures. Their statements do not.
func FromSigstore(name string, s signature.Signer) (receipt.Signer, error) {
	pub, err := s.PublicKey()
	if err != nil {
		return nil, fmt.Errorf("public key of %s: %w", name, err)
	}
	key, err := receipt.NewPublicKey(name, pub)
	if err != nil {
		return nil, err
	}
	return &signer{key, s}, nil
}

type signer struct {
	key     receipt.PublicKey
	backend signature.Signer
}

func (s *signer) Public() receipt.PublicKey { return s.key }

func (s *signer) Sign(message []byte) ([]byte, error) {
	sig, err := s.backend.SignMessage(bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	if s.key.Alg() == receipt.ESP256 {
		if sig, err = receipt.FromDER(sig); err != nil {
			return nil, err
		}
	}
	// A fault in a deterministic signature can give the private key away, and a
	// service may answer with another key than it named.
	if err := s.key.Verify(message, sig); err != nil {
		return nil, fmt.Errorf("the signer's answer does not verify under its own key %s: %w", s.key.Name(), err)
	}
	return sig, nil
}

// load gives the sigstore signer of a private key in memory. For P-256 that is
// one of ours, since sigstore's is random and bundles are to be reproducible.
func load(priv crypto.PrivateKey) (signature.Signer, error) {
	switch priv := priv.(type) {
	case ed25519.PrivateKey:
		return signature.LoadED25519Signer(priv)
	case *ecdsa.PrivateKey:
		return deterministicECDSA{priv}, nil
	}
	return nil, fmt.Errorf("got a private key of type %T, want Ed25519 or ECDSA P-256; make one with cleanrun keygen", priv)
}

// deterministicECDSA signs with the nonce of RFC 6979.
type deterministicECDSA struct{ priv *ecdsa.PrivateKey }

func (d deterministicECDSA) PublicKey(...signature.PublicKeyOption) (crypto.PublicKey, error) {
	return d.priv.Public(), nil
}

func (d deterministicECDSA) SignMessage(message io.Reader, opts ...signature.SignOption) ([]byte, error) {
	if len(opts) != 0 {
		return nil, errors.New("got sign options, want none: hash and nonce are fixed")
	}
	h := sha256.New()
	if _, err := io.Copy(h, message); err != nil {
		return nil, err
	}
	// A nil reader asks crypto/ecdsa for RFC 6979.
	return d.priv.Sign(nil, h.Sum(nil), crypto.SHA256)
}
