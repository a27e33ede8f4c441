package receipt_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/veraison/go-cose"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// corpus is a folder of public test data, which is not part of this repository.
func corpus(t *testing.T, name string) string {
	t.Helper()
	root := os.Getenv("CLEANRUN_CORPORA")
	if root == "" {
		root = filepath.Join("..", "..", "shared", "corpora")
	}
	dir := filepath.Join(root, name)
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("public corpus %s is not there (%v); set CLEANRUN_CORPORA", name, err)
	}
	return dir
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// CCTV's edge cases of Ed25519. Which are accepted follows from their flags
// alone:
//
//	low_order_A, non_canonical_A   refused as keys: one signature fits many messages
//	low_order_R                    refused: no honest signer makes one
//	non_canonical_R, reencoded_k   refused: R has one spelling
//	low_order_residue              refused: only the cofactored equation holds
//	low_order_component_A, _R      accepted if nothing else is wrong: the
//	                               cofactorless equation of RFC 8032 holds, and
//	                               crypto/ed25519 accepts them as well
func TestRT72_CCTVEd25519(t *testing.T) {
	refused := []string{"low_order_A", "non_canonical_A", "low_order_R", "non_canonical_R", "reencoded_k", "low_order_residue"}
	var cases []struct {
		Number   int
		Key, Sig string
		Msg      string
		Flags    []string
	}
	readJSON(t, filepath.Join(corpus(t, "cctv"), "ed25519vectors.json"), &cases)
	if len(cases) < 914 {
		t.Fatalf("got %d cases, want at least 914", len(cases))
	}
	accepted, stricter := 0, 0
	for _, c := range cases {
		key, sig := unhex(t, c.Key), unhex(t, c.Sig)
		want := !slices.ContainsFunc(c.Flags, func(f string) bool { return slices.Contains(refused, f) })
		k, err := receipt.NewPublicKey("cctv.example", ed25519.PublicKey(key))
		if bad := slices.Contains(c.Flags, "low_order_A") || slices.Contains(c.Flags, "non_canonical_A"); bad != (err != nil) {
			t.Errorf("case %d %v: key gives %v", c.Number, c.Flags, err)
		}
		if err == nil {
			err = k.Verify([]byte(c.Msg), sig)
		}
		if (err == nil) != want {
			t.Errorf("case %d %v: got %v, want accepted %v", c.Number, c.Flags, err, want)
		}
		std := ed25519.Verify(key, []byte(c.Msg), sig)
		if err == nil && !std {
			t.Errorf("case %d: accepted, but crypto/ed25519 refuses", c.Number)
		}
		if err == nil {
			accepted++
		} else if std {
			stricter++
		}
	}
	t.Logf("%d cases: %d accepted, %d refused that crypto/ed25519 accepts", len(cases), accepted, stricter)
	if accepted == 0 || stricter == 0 {
		t.Errorf("got %d accepted and %d stricter, want some of both", accepted, stricter)
	}
}

type wycheproof struct {
	NumberOfTests int
	TestGroups    []struct {
		PublicKey struct{ Pk, Uncompressed string }
		Tests     []struct {
			TcID     int
			Msg, Sig string
			Result   string
			Flags    []string
		}
	}
}

func TestWycheproofEd25519(t *testing.T) {
	var w wycheproof
	readJSON(t, filepath.Join(corpus(t, "wycheproof"), "ed25519_test.json"), &w)
	n, valid := 0, 0
	for _, g := range w.TestGroups {
		k, err := receipt.NewPublicKey("wycheproof.example", ed25519.PublicKey(unhex(t, g.PublicKey.Pk)))
		if err != nil {
			t.Errorf("key %s: %v", g.PublicKey.Pk, err)
			continue
		}
		for _, c := range g.Tests {
			n++
			err := k.Verify(unhex(t, c.Msg), unhex(t, c.Sig))
			if (err == nil) != (c.Result == "valid") {
				t.Errorf("case %d %v: got %v, want %s", c.TcID, c.Flags, err, c.Result)
			}
			if err == nil {
				valid++
			}
		}
	}
	if n < 151 || valid < 80 {
		t.Errorf("got %d cases, %d valid, want at least 151 and 80", n, valid)
	}
}

// The one deviation from Wycheproof: a valid signature with s above n/2 is
// refused, and accepted once s is lowered.
func TestWycheproofP256(t *testing.T) {
	var w wycheproof
	readJSON(t, filepath.Join(corpus(t, "wycheproof"), "ecdsa_secp256r1_sha256_p1363_test.json"), &w)
	order := elliptic.P256().Params().N
	half := new(big.Int).Rsh(order, 1)
	n, valid, high := 0, 0, 0
	for _, g := range w.TestGroups {
		pub, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), unhex(t, g.PublicKey.Uncompressed))
		if err != nil {
			t.Fatal(err)
		}
		k, err := receipt.NewPublicKey("wycheproof.example", pub)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range g.Tests {
			n++
			msg, sig := unhex(t, c.Msg), unhex(t, c.Sig)
			err := k.Verify(msg, sig)
			want := c.Result == "valid"
			if want && new(big.Int).SetBytes(sig[32:]).Cmp(half) > 0 {
				high++
				if err == nil || !strings.Contains(err.Error(), "above n/2") {
					t.Errorf("case %d: high s gives %v", c.TcID, err)
				}
				s := new(big.Int).SetBytes(sig[32:])
				s.Sub(order, s).FillBytes(sig[32:])
				err = k.Verify(msg, sig)
			}
			if (err == nil) != want {
				t.Errorf("case %d %v: got %v, want %s", c.TcID, c.Flags, err, c.Result)
			}
			if err == nil {
				valid++
			}
		}
	}
	t.Logf("%d cases: %d valid, of them %d only after lowering s", n, valid, high)
	if n < 262 || valid < 170 || high < 20 {
		t.Errorf("got %d cases, %d valid, %d high, want at least 262, 170, 20", n, valid, high)
	}
}

// jwk is a key as the COSE corpora write it.
type jwk struct {
	Kty, Crv, X, Y string
	XHex           string `json:"x_hex"`
}

func (j jwk) key(t *testing.T) (receipt.PublicKey, bool) {
	t.Helper()
	var pub any
	switch j.Crv {
	case "P-256":
		x, err1 := base64.RawURLEncoding.DecodeString(j.X)
		y, err2 := base64.RawURLEncoding.DecodeString(j.Y)
		p, err3 := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), slices.Concat([]byte{4}, x, y))
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatal(err1, err2, err3)
		}
		pub = p
	case "Ed25519":
		pub = ed25519.PublicKey(unhex(t, j.XHex))
	default:
		return receipt.PublicKey{}, false
	}
	k, err := receipt.NewPublicKey("cose.example", pub)
	if err != nil {
		t.Fatal(err)
	}
	return k, true
}

// The COSE corpora hold no object of our kinds: their algorithms are the old
// polymorphic ones, their kid is unprotected and they have no claims. So two
// things are tested. ParseSign1 refuses each one, at the stage listed here. And
// our keys, under go-cose, accept the signatures that the corpora call good.
//
// Deviations, all of them refusals:
//   - every object: kid unprotected or missing, alg -7 or -8, no claims, no typ
//   - s above n/2: accepted only once lowered
//   - those in the table below
func TestCOSECorpora(t *testing.T) {
	tags := []string{"eddsa-01", "eddsa-02", "sign-fail-01", "sign-pass-03"} // COSE_Sign (98), tag 998, untagged
	deviations := map[string]string{
		"ecdsa-sig-04": "SHA-512 with P-256: ESP256 is SHA-256 alone",
		"sign-pass-01": "alg in the unprotected header alone (attack 66)",
	}
	files, err := filepath.Glob(filepath.Join(corpus(t, "cose"), "*.json"))
	if err != nil || len(files) < 31 {
		t.Fatalf("got %d files, want at least 31 (%v)", len(files), err)
	}
	good, bad, other := 0, 0, 0
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".json")
		c := readCOSE(t, path)
		wantStage := "unprotected"
		if slices.Contains(tags, name) {
			wantStage = "tag"
		}
		if _, err := receipt.ParseSign1(receipt.KindReceipt, c.object); stage(err) != wantStage {
			t.Errorf("%s: got %v, want stage %s", name, err, wantStage)
		}
		k, ok := c.key.key(t)
		if !ok || c.many {
			other++
			continue
		}
		_, deviates := deviations[name]
		want := c.good && !deviates
		if err := c.verify(k); (err == nil) != want {
			t.Errorf("%s: got %v, want good %v", name, err, want)
		}
		if want {
			good++
		} else {
			bad++
		}
	}
	t.Logf("%d good, %d bad, %d of other algorithms or COSE_Sign", good, bad, other)
	if good < 8 || bad < 6 {
		t.Errorf("got %d good and %d bad, want at least 8 and 6", good, bad)
	}
}

type coseCase struct {
	object, external []byte
	key              jwk
	good             bool
	many             bool // COSE_Sign
}

// readCOSE reads either corpus format.
func readCOSE(t *testing.T, path string) coseCase {
	t.Helper()
	type hexed struct{ CborHex string }
	var c struct {
		Fail  bool
		Key   jwk
		Input struct {
			Sign0 struct {
				Key      jwk
				External string
			}
			Sign *struct{}
		}
		Output struct{ Cbor string }
		Sign   struct {
			External       string
			ExpectedOutput hexed
		} `json:"sign1::sign"`
		Verify struct {
			TaggedCOSESign1 hexed
			External        string
			ShouldVerify    bool
		} `json:"sign1::verify"`
	}
	readJSON(t, path, &c)
	switch {
	case c.Output.Cbor != "":
		return coseCase{unhex(t, c.Output.Cbor), unhex(t, c.Input.Sign0.External), c.Input.Sign0.Key, !c.Fail, c.Input.Sign != nil}
	case c.Sign.ExpectedOutput.CborHex != "":
		return coseCase{unhex(t, c.Sign.ExpectedOutput.CborHex), unhex(t, c.Sign.External), c.Key, true, false}
	default:
		return coseCase{unhex(t, c.Verify.TaggedCOSESign1.CborHex), unhex(t, c.Verify.External), c.Key, c.Verify.ShouldVerify, false}
	}
}

func (c coseCase) verify(k receipt.PublicKey) error {
	var m cose.Sign1Message
	err := m.UnmarshalCBOR(c.object)
	if err != nil && c.object[0] == 0x84 {
		err = (*cose.UntaggedSign1Message)(&m).UnmarshalCBOR(c.object)
	}
	if err != nil {
		return err
	}
	return m.Verify(c.external, oldAlg{k})
}

// oldAlg verifies under the polymorphic number of a key's algorithm.
type oldAlg struct{ k receipt.PublicKey }

func (o oldAlg) Algorithm() cose.Algorithm {
	if o.k.Alg() == receipt.ESP256 {
		return cose.AlgorithmES256
	}
	return cose.AlgorithmEdDSA
}

func (o oldAlg) Verify(content, sig []byte) error {
	err := o.k.Verify(content, sig)
	if err != nil && strings.Contains(err.Error(), "above n/2") {
		s := new(big.Int).SetBytes(sig[32:])
		sig = bytes.Clone(sig)
		s.Sub(elliptic.P256().Params().N, s).FillBytes(sig[32:])
		err = o.k.Verify(content, sig)
	}
	return err
}
