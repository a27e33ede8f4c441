package receipt_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// typed is a vkey for any type byte and key, with the right id.
func typed(name string, typ byte, key []byte) string {
	blob := append([]byte{typ}, key...)
	id := sha256.Sum256(append([]byte(name+"\n"), blob...))
	if typ == 2 {
		id = sha256.Sum256(key)
	}
	return fmt.Sprintf("%s+%x+%s", name, id[:4], base64.StdEncoding.EncodeToString(blob))
}

func TestVKeyRoundTrip(t *testing.T) {
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		text := s.key.String()
		got := must(receipt.ParseVKey(text))(t)
		if got != s.key || got.String() != text {
			t.Errorf("got %v, want %s", got, text)
		}
	})
}

// The example in the documentation of transparency-dev/formats, with the right
// id: for ECDSA it is the hash of the DER alone.
func TestVKeyECDSA(t *testing.T) {
	const key = "AjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNhtmPtrWm3U1eQXBogSMdGvXwBcK5AW5i0hrZLOC96l+smGNM7nwZ4QvFK/4sueRoVj//QP22Ni4Qt9DPfkWLc="
	k := must(receipt.ParseVKey("rekor.sigstore.dev+c0d23d6a+" + key))(t)
	if k.Alg() != receipt.ESP256 || k.Name() != "rekor.sigstore.dev" {
		t.Errorf("got %v %s", k.Alg(), k.Name())
	}
	pub := newSigner(t, "x", receipt.ESP256).priv.Public()
	der := must(x509.MarshalPKIXPublicKey(pub))(t)
	if got, want := must(receipt.NewPublicKey("x", pub))(t).String(), typed("x", 2, der); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// RFC 8032's first test key, with a thumbprint from an independent encoding.
func TestThumbprintValue(t *testing.T) {
	raw := must(hex.DecodeString("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"))(t)
	k := must(receipt.NewPublicKey("a", ed25519.PublicKey(raw)))(t)
	want := sha256.Sum256(append(must(hex.DecodeString("a301012006215820"))(t), raw...))
	if k.Thumbprint() != want {
		t.Errorf("got %x, want %x", k.Thumbprint(), want)
	}
	if got := receipt.Fingerprint(want); len(got) != 39 || strings.ReplaceAll(got, "-", "") != hex.EncodeToString(want[:16]) {
		t.Errorf("got %s", got)
	}
}

func TestVKeyRefused(t *testing.T) {
	s := newSigner(t, "runner.example", receipt.Ed25519)
	raw := []byte(s.priv.Public().(ed25519.PublicKey))
	good := typed("runner.example", 1, raw)
	if _, err := receipt.ParseVKey(good); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	name, rest, _ := strings.Cut(good, "+")
	id, key, _ := strings.Cut(rest, "+")
	p256 := newSigner(t, "e", receipt.ESP256).priv.Public().(*ecdsa.PublicKey)
	spki := must(x509.MarshalPKIXPublicKey(p256))(t)
	off := append([]byte(nil), spki...)
	off[len(off)-1] ^= 1
	p384 := must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))(t)
	spki384 := must(x509.MarshalPKIXPublicKey(&p384.PublicKey))(t)
	compressed := append(append([]byte(nil), spki[:26]...), elliptic.MarshalCompressed(elliptic.P256(), p256.X, p256.Y)...)

	for title, text := range map[string]string{
		"empty":                      "",
		"name only":                  name,
		"no id":                      name + "+" + key,
		"empty name":                 "+" + id + "+" + key,
		"another name":               "runner.exampl+" + id + "+" + key,
		"id in upper case":           typedUpper(raw),
		"id of seven digits":         name + "+" + id[:7] + "+" + key,
		"id with sign":               name + "++" + id[1:] + "+" + key,
		"newline at end":             good + "\n",
		"space before":               " " + good,
		"stray bits":                 strings.TrimSuffix(good, good[len(good)-1:]) + "5",
		"base64 without padding":     strings.TrimSuffix(typed("e", 2, spki), "="),
		"base64 with line break":     good[:len(good)-4] + "\r\n" + good[len(good)-4:],
		"space in name":              typed("runner example", 1, raw),
		"non-breaking space in name": typed("runner\u00a0example", 1, raw),
		"cyrillic name":              typed("runn\u0435r.example", 1, raw),
		"right-to-left name":         typed("runner\u202eexample", 1, raw),
		"long name":                  typed(strings.Repeat("n", 129), 1, raw),
		"very long":                  typed(strings.Repeat("n", 1000), 1, raw),
		"31 bytes":                   typed("runner.example", 1, raw[:31]),
		"33 bytes":                   typed("runner.example", 1, append(append([]byte(nil), raw...), 0)),
		"type 0":                     typed("runner.example", 0, raw),
		"type 4, cosignature":        typed("runner.example", 4, raw),
		"no key":                     typed("runner.example", 1, nil),
		"P-256 off the curve":        typed("e", 2, off),
		"P-384":                      typed("e", 2, spki384),
		"P-256 compressed":           typed("e", 2, compressed),
		"P-256 trailing":             typed("e", 2, append(append([]byte(nil), spki...), 0)),
		"P-256 id over name":         "e+" + id + "+" + base64.StdEncoding.EncodeToString(append([]byte{2}, spki...)),
	} {
		if k, err := receipt.ParseVKey(text); stage(err) != "vkey" || k != (receipt.PublicKey{}) {
			t.Errorf("%s: got %v, %v", title, k, err)
		}
	}
	if _, err := receipt.ParseVKey("runner.exampl+" + id + "+" + key); err == nil || !strings.Contains(err.Error(), "key id") {
		t.Errorf("another name: got %v, want the key id named", err)
	}
	if _, err := receipt.ParseVKey(typed("e", 2, spki)); err != nil {
		t.Errorf("positive control P-256: %v", err)
	}
	if _, err := receipt.ParseVKey(typed(strings.Repeat("n", 128), 1, raw)); err != nil {
		t.Errorf("positive control long name: %v", err)
	}
	for _, pub := range []any{nil, (*ecdsa.PublicKey)(nil), &p384.PublicKey, "key", ed25519.PublicKey(raw[:31])} {
		if _, err := receipt.NewPublicKey("a", pub); stage(err) != "vkey" {
			t.Errorf("%T: got %v", pub, err)
		}
	}
}

// typedUpper is a vkey whose id has a letter, in upper case.
func typedUpper(raw []byte) string {
	for i := 0; ; i++ {
		text := typed(fmt.Sprint("n", i), 1, raw)
		id := strings.Split(text, "+")[1]
		if up := strings.ToUpper(id); up != id {
			return strings.Replace(text, id, up, 1)
		}
	}
}

// Low-order and non-canonical keys are no keys: all 8 points of the small
// subgroup, in all spellings.
func TestRT72_LowOrderKeys(t *testing.T) {
	n := 0
	for _, y := range []string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // y = 3 + p
		"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	} {
		for _, sign := range []byte{0, 0x80} {
			raw := must(hex.DecodeString(y))(t)
			raw[31] |= sign
			if _, err := receipt.ParseVKey(typed("a", 1, raw)); stage(err) != "vkey" || !(strings.Contains(err.Error(), "low order") || strings.Contains(err.Error(), "canonically")) {
				t.Errorf("%x: got %v", raw, err)
			}
			n++
		}
	}
	if n != 18 {
		t.Error(n)
	}
	// The largest canonical y is p-1, which has low order; p-2 is a key.
	raw := must(hex.DecodeString("ebffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f"))(t)
	if _, err := receipt.ParseVKey(typed("a", 1, raw)); err != nil {
		t.Errorf("positive control: %v", err)
	}
}

func FuzzParseVKey(f *testing.F) {
	for _, alg := range []receipt.Alg{receipt.Ed25519, receipt.ESP256} {
		f.Add(newSigner(f, "runner.example/ci", alg).key.String())
	}
	f.Add("a+00000000+AQ==")
	f.Fuzz(func(t *testing.T, text string) {
		k, err := receipt.ParseVKey(text)
		if err == nil && k.String() != text {
			t.Errorf("accepted %q, writes %q", text, k.String())
		}
		if err != nil && k != (receipt.PublicKey{}) {
			t.Error("a partial key with an error")
		}
	})
}

func FuzzParseSign1(f *testing.F) {
	for _, v := range readVectors(f, "cose", 80) {
		f.Add(v.data)
	}
	s := newSigner(f, "runner.example/ci", receipt.Ed25519)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, kind := range []receipt.Kind{receipt.KindReceipt, receipt.KindSealedSet} {
			u, err := receipt.ParseSign1(kind, data)
			if err != nil {
				continue
			}
			// What is accepted has the only encoding: signing its content again
			// gives the same bytes up to what depends on the key.
			said := u.Unauthenticated()
			again := must(receipt.Sign1(kind, s, said.Subject, said.Payload))(t)
			if got, want := len(again)-len(s.key.Name()), len(data)-len(said.Issuer); got > want+4 || got < want-4 {
				t.Errorf("accepted %d bytes, writes %d", want, got)
			}
			if _, err := u.Verify(s.key); err == nil {
				t.Error("a forgery verifies")
			}
		}
	})
}

func FuzzParseDSSE(f *testing.F) {
	for _, v := range readVectors(f, "dsse", 45) {
		f.Add(v.data)
	}
	s := newSigner(f, "runner.example/ci", receipt.Ed25519)
	f.Fuzz(func(t *testing.T, data []byte) {
		u, err := receipt.ParseDSSE(data)
		if err != nil {
			return
		}
		again := must(receipt.SignDSSE(s, u.Unauthenticated().Payload))(t)
		cut := strings.Index(string(again), `"keyid"`)
		if len(data) < cut || string(data[:cut]) != string(again[:cut]) {
			t.Errorf("accepted %q, writes %q", data[:min(cut, len(data))], again[:cut])
		}
		if _, err := u.Verify(s.key); err == nil {
			t.Error("a forgery verifies")
		}
	})
}
