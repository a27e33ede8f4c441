package receipt

import "fmt"

// A Signer holds a private key. Package keys has signers for key files and for
// key management services.
type Signer interface {
	// Public is the key under which signatures verify, with its name.
	Public() PublicKey
	// Sign signs the message itself, not a digest of it. The signature has 64
	// bytes: R || S of Ed25519 (RFC 8032), or big-endian r || s of ECDSA over
	// SHA-256 with s in the lower half (see PublicKey.Verify).
	Sign(message []byte) ([]byte, error)
}

// signChecked signs and verifies before it lets the signature out: a faulted
// deterministic signature can give the private key away.
func signChecked(s Signer, message []byte) ([]byte, error) {
	sig, err := s.Sign(message)
	if err != nil {
		return nil, fmt.Errorf("signing with %s: %w", s.Public().Name(), err)
	}
	if err := s.Public().Verify(message, sig); err != nil {
		return nil, fmt.Errorf("signer %s made a signature that its own key refuses: %w", s.Public().Name(), err)
	}
	return sig, nil
}
