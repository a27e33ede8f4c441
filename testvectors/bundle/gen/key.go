package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"fmt"
	"math/big"
	"slices"
)

const (
	ed25519Alg = -19
	es256Alg   = -9
)

// A key signs as the specification says, and in other ways.
type key struct {
	name string
	alg  int64
	ed   ed25519.PrivateKey
	ec   *ecdsa.PrivateKey
}

func seed(name string) []byte {
	h := sha256.Sum256([]byte("cleanrun test vector key: " + name))
	return h[:]
}

func edKey(name string) *key {
	return &key{name: name, alg: ed25519Alg, ed: ed25519.NewKeyFromSeed(seed(name))}
}

func ecKey(name string) *key {
	return &key{name: name, alg: es256Alg, ec: check(ecdsa.ParseRawPrivateKey(elliptic.P256(), seed(name)))}
}

var (
	runner   = edKey("evals.example/runner")
	runnerEC = ecKey("evals.example/runner-p256")
	owner    = edKey("bench.example/owner")
	ownerEC  = ecKey("bench.example/owner-p256")
	attacker = edKey("attacker.example/key")
)

func (k *key) pub() []byte {
	if k.ed != nil {
		return k.ed.Public().(ed25519.PublicKey)
	}
	return check(k.ec.PublicKey.Bytes())
}

// vkey is the verifier key of c2sp.org/signed-note.
func (k *key) vkey() string {
	var typed, hashed []byte
	if k.ed != nil {
		typed = append([]byte{1}, k.pub()...)
		hashed = append([]byte(k.name+"\n"), typed...)
	} else {
		hashed = check(x509.MarshalPKIXPublicKey(&k.ec.PublicKey))
		typed = append([]byte{2}, hashed...)
	}
	id := sha256.Sum256(hashed)
	return fmt.Sprintf("%s+%x+%s", k.name, id[:4], base64.StdEncoding.EncodeToString(typed))
}

// kid is the COSE key thumbprint of RFC 9679.
func (k *key) kid() []byte {
	p := k.pub()
	m := cat(head(5, 3), num(1), num(1), num(-1), num(6), num(-2), bstr(p))
	if k.ec != nil {
		m = cat(head(5, 4), num(1), num(2), num(-1), num(1), num(-2), bstr(p[1:33]), num(-3), bstr(p[33:]))
	}
	h := sha256.Sum256(m)
	return h[:]
}

var curveN = elliptic.P256().Params().N

// rs signs with ECDSA and RFC 6979; high picks s above n/2.
func (k *key) rs(msg []byte, high bool) (r, s *big.Int) {
	h := sha256.Sum256(msg)
	var v struct{ R, S *big.Int }
	check(asn1.Unmarshal(check(k.ec.Sign(nil, h[:], crypto.SHA256)), &v))
	if other := new(big.Int).Sub(curveN, v.S); (v.S.Cmp(other) > 0) != high {
		v.S = other
	}
	return v.R, v.S
}

func raw(r, s *big.Int) []byte {
	out := make([]byte, 64)
	r.FillBytes(out[:32])
	s.FillBytes(out[32:])
	return out
}

func der(r, s *big.Int) []byte { return check(asn1.Marshal(struct{ R, S *big.Int }{r, s})) }

// sign gives the 64-byte signature.
func (k *key) sign(msg []byte) []byte {
	if k.ed != nil {
		return ed25519.Sign(k.ed, msg)
	}
	return raw(k.rs(msg, false))
}

// signDER is sign, with ECDSA as DER.
func (k *key) signDER(msg []byte) []byte {
	if k.ed != nil {
		return k.sign(msg)
	}
	return der(k.rs(msg, false))
}

// edOrder is L of RFC 8032, section 5.1.
var edOrder, _ = new(big.Int).SetString("7237005577332262213973186563042994240857116359379907606001950938285454250989", 10)

func little(b []byte) *big.Int {
	b = slices.Clone(b)
	slices.Reverse(b)
	return new(big.Int).SetBytes(b)
}

func littleBytes(n *big.Int) []byte {
	b := n.FillBytes(make([]byte, 32))
	slices.Reverse(b)
	return b
}

// sPlusL adds L to S: the same signature for a verifier that reduces.
func sPlusL(sig []byte) []byte {
	s := little(sig[32:])
	return append(slices.Clone(sig[:32]), littleBytes(s.Add(s, edOrder))...)
}

// nonceZero is an Ed25519 signature with the nonce 0, so that R is the neutral
// element. The equation of RFC 8032 holds for it.
func (k *key) nonceZero(msg, encodedR []byte) []byte {
	h := sha512.Sum512(k.ed.Seed())
	h[0] &= 248
	h[31] = h[31]&127 | 64
	a := little(h[:32])
	c := sha512.Sum512(cat(encodedR, k.pub(), msg))
	s := new(big.Int).Mul(little(c[:]), a)
	return append(slices.Clone(encodedR), littleBytes(s.Mod(s, edOrder))...)
}
