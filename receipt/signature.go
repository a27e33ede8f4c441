package receipt

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"math/big"
)

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

// SignatureSize is the length of every signature in a COSE_Sign1: both
// algorithms have 64 bytes.
const SignatureSize = 64

// Encodings of the eight points of order 1, 2, 4 and 8, with every sign bit and
// every non-canonical spelling that decodes to them. All points with x = 0 are
// among them, so with checkEdPoint they cover "negative zero" as well.
var lowOrder = func() map[string]bool {
	m := make(map[string]bool)
	for _, y := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000", // y = 0, order 4
		"0100000000000000000000000000000000000000000000000000000000000000", // y = 1, order 1
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05", // order 8
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a", // order 8
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // y = -1, order 2
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // y = p, read as 0
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // y = p+1, read as 1
	} {
		b, err := hex.DecodeString(y)
		if err != nil {
			panic(err) // the table is constant
		}
		m[string(b)] = true
		b[31] |= 0x80
		m[string(b)] = true
	}
	return m
}()

// fieldPrime is p = 2^255-19, little endian as in RFC 8032, section 5.1.2.
var fieldPrime = func() []byte {
	b := bytes.Repeat([]byte{0xff}, 32)
	b[0], b[31] = 0xed, 0x7f
	return b
}()

// checkEdPoint says what is wrong with an encoded point, or "". It does not
// decode: a string that is no point at all fails later, in crypto/ed25519.
func checkEdPoint(p []byte) string {
	if lowOrder[string(p)] {
		return "a point of low order"
	}
	y := bytes.Clone(p)
	y[31] &= 0x7f
	for i := 31; i >= 0; i-- {
		if y[i] != fieldPrime[i] {
			if y[i] > fieldPrime[i] {
				return "not canonically encoded"
			}
			return ""
		}
	}
	return "not canonically encoded" // y = p
}

// verifyEd25519 is RFC 8032 with the cofactorless equation and S < L, as
// crypto/ed25519 does it, and refuses low-order and non-canonical R (A was held
// to the same when the key was parsed). crypto/ed25519 compares encodings of R,
// so R has one spelling in any case. Points with a low-order component are
// accepted where the equation holds: no honest signer makes them, and refusing
// them would need a scalar multiplication for nothing that a pinned key allows.
func verifyEd25519(key, message, sig []byte) error {
	if bad := checkEdPoint(sig[:32]); bad != "" {
		return refuse(StageSignature, "R that is "+bad, "a canonically encoded point of large order", "")
	}
	if !ed25519.Verify(key, message, sig) {
		return refuse(StageSignature, "a signature that does not verify", "an Ed25519 signature of these bytes by the pinned key", "the bytes were changed after signing, or another key signed them")
	}
	return nil
}

var (
	p256N     = elliptic.P256().Params().N
	p256HalfN = new(big.Int).Rsh(p256N, 1)
)

// verifyP256 refuses s above n/2. Both (r, s) and (r, n-s) verify, so without
// this rule anybody could make a second valid bundle out of a first one.
func verifyP256(point, message, sig []byte) error {
	s := new(big.Int).SetBytes(sig[32:])
	if s.Cmp(p256HalfN) > 0 {
		return refuse(StageSignature, "an ECDSA signature with s above n/2", "s in the lower half", "(r, n-s) signs the same bytes; signers must give out the lower one")
	}
	pub, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	if err != nil {
		return refuse(StageVKey, err.Error(), "an uncompressed point on P-256", "")
	}
	sum := sha256.Sum256(message)
	if !ecdsa.Verify(pub, sum[:], new(big.Int).SetBytes(sig[:32]), s) {
		return refuse(StageSignature, "a signature that does not verify", "an ECDSA signature of these bytes by the pinned key", "the bytes were changed after signing, or another key signed them")
	}
	return nil
}

type ecdsaDER struct{ R, S *big.Int }

// FromDER gives the 64-byte r || s of a DER ECDSA signature on P-256, with s in
// the lower half. Key services and the standard library speak DER.
func FromDER(der []byte) ([]byte, error) {
	var v ecdsaDER
	rest, err := asn1.Unmarshal(der, &v)
	if err != nil || len(rest) != 0 {
		return nil, refuse(StageSignature, fmt.Sprintf("%x", der), "the DER of one ECDSA signature", "")
	}
	for _, x := range []*big.Int{v.R, v.S} {
		if x.Sign() <= 0 || x.Cmp(p256N) >= 0 {
			return nil, refuse(StageSignature, "r or s out of range", "both from 1 to n-1", "")
		}
	}
	sig := make([]byte, SignatureSize)
	v.R.FillBytes(sig[:32])
	v.S.FillBytes(sig[32:])
	return lowerS(sig), nil
}

// lowerS gives the r || s with s in the lower half. Other bytes are returned as
// they are.
func lowerS(sig []byte) []byte {
	if len(sig) != SignatureSize {
		return sig
	}
	s := new(big.Int).SetBytes(sig[32:])
	if s.Cmp(p256HalfN) <= 0 || s.Cmp(p256N) >= 0 {
		return sig
	}
	low := bytes.Clone(sig)
	s.Sub(p256N, s).FillBytes(low[32:])
	return low
}

// toDER is the inverse of FromDER for a signature that verified.
func toDER(sig []byte) ([]byte, error) {
	return asn1.Marshal(ecdsaDER{new(big.Int).SetBytes(sig[:32]), new(big.Int).SetBytes(sig[32:])})
}
