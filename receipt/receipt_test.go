package receipt_test

import (
	"bytes"
	"crypto/elliptic"
	"crypto/sha256"
	"errors"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

func sum(b []byte) [32]byte { return sha256.Sum256(b) }

func TestSign1RoundTrip(t *testing.T) {
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		for _, kind := range []receipt.Kind{receipt.KindReceipt, receipt.KindSealedSet} {
			data := must(receipt.Sign1(kind, s, "bench/täsk", []byte(testStatement)))(t)
			u := must(receipt.ParseSign1(kind, data))(t)
			said := u.Unauthenticated()
			if said.Alg != s.key.Alg() || said.Kid != s.key.Thumbprint() || said.Issuer != s.key.Name() || said.Subject != "bench/täsk" || string(said.Payload) != testStatement {
				t.Errorf("%v: got %+v", kind, said)
			}
			v := must(u.Verify(s.key))(t)
			if v.Key() != s.key || v.Kind() != kind || v.Subject() != "bench/täsk" || string(v.Payload()) != testStatement {
				t.Errorf("%v: got %v %v %q %q", kind, v.Key(), v.Kind(), v.Subject(), v.Payload())
			}
		}
	})
}

// Two builds of one run are byte-identical.
func TestRT95_SigningIsDeterministic(t *testing.T) {
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		a := smallBundle(t, s, newSigner(t, "owner.example", receipt.Ed25519), newSigner(t, "second.example", receipt.ESP256))
		b := smallBundle(t, s, newSigner(t, "owner.example", receipt.Ed25519), newSigner(t, "second.example", receipt.ESP256))
		if !bytes.Equal(a, b) {
			t.Error("two builds differ")
		}
	})
}

// The zero key, which a forgotten policy line leaves behind, verifies nothing.
func TestZeroKeyVerifiesNothing(t *testing.T) {
	s := newSigner(t, "runner.example", receipt.Ed25519)
	u := must(receipt.ParseSign1(receipt.KindReceipt, must(receipt.Sign1(receipt.KindReceipt, s, "r", []byte("{}")))(t)))(t)
	if _, err := u.Verify(receipt.PublicKey{}); stage(err) != "alg" {
		t.Errorf("COSE: got %v", err)
	}
	e := must(receipt.ParseDSSE(must(receipt.SignDSSE(s, []byte("{}")))(t)))(t)
	if _, err := e.Verify(receipt.PublicKey{}); stage(err) != "kid" {
		t.Errorf("DSSE: got %v", err)
	}
	var zero receipt.PublicKey
	if err := zero.Verify([]byte("m"), make([]byte, 64)); stage(err) != "signature" {
		t.Errorf("key: got %v", err)
	}
	if zero.SameKey(zero) || zero.String() != "" || zero.Thumbprint() != [32]byte{} {
		t.Error("the zero key is a key")
	}
}

// A key under another name is the same key, and is refused as issuer.
func TestSameKeyOtherName(t *testing.T) {
	s := newSigner(t, "runner.example", receipt.Ed25519)
	other := must(receipt.NewPublicKey("other.example", s.priv.Public()))(t)
	if !other.SameKey(s.key) || other == s.key || other.Thumbprint() != s.key.Thumbprint() {
		t.Error("a name changes the key")
	}
	data := must(receipt.Sign1(receipt.KindReceipt, s, "r", []byte("{}")))(t)
	if _, err := must(receipt.ParseSign1(receipt.KindReceipt, data))(t).Verify(other); stage(err) != "issuer" {
		t.Errorf("got %v", err)
	}
}

func TestSign1RefusesBadInput(t *testing.T) {
	s := newSigner(t, "runner.example", receipt.Ed25519)
	for name, c := range map[string]struct {
		sub     string
		payload []byte
		want    string
	}{
		"positive control": {"r", []byte("{}"), "ok"},
		"no subject":       {"", []byte("{}"), "header"},
		"long subject":     {strings.Repeat("s", receipt.MaxSubject+1), []byte("{}"), "header"},
		"newline":          {"a\nb", []byte("{}"), "header"},
		"empty payload":    {"r", []byte{}, "payload"},
		"large payload":    {"r", make([]byte, receipt.MaxReceipt), "size"},
	} {
		if _, err := receipt.Sign1(receipt.KindReceipt, s, c.sub, c.payload); stage(err) != c.want {
			t.Errorf("%s: got %v, want stage %s", name, err, c.want)
		}
	}
	if _, err := receipt.Sign1(0, s, "r", []byte("{}")); stage(err) != "type" {
		t.Errorf("unknown kind: got %v", err)
	}
	if _, err := receipt.ParseSign1(0, []byte{0xd2}); stage(err) != "type" {
		t.Errorf("unknown kind: got %v", err)
	}
	if _, err := receipt.SignDSSE(s, make([]byte, receipt.MaxStatement+1)); stage(err) != "payload" {
		t.Errorf("large statement: got %v", err)
	}
	if _, err := receipt.SignDSSE(s, make([]byte, receipt.MaxStatement)); err != nil {
		t.Errorf("largest statement: got %v", err)
	}
}

// A signer that errs, or that answers with another key or a high s, signs
// nothing.
func TestFaultySigner(t *testing.T) {
	good := newSigner(t, "runner.example", receipt.ESP256)
	boom := errors.New("boom")
	faults := map[string]func([]byte) ([]byte, error){
		"error":       func([]byte) ([]byte, error) { return nil, boom },
		"nothing":     func([]byte) ([]byte, error) { return nil, nil },
		"other bytes": func(m []byte) ([]byte, error) { return good.sign(append(slices.Clone(m), 0)) },
		"high s": func(m []byte) ([]byte, error) {
			sig, err := good.sign(m)
			s := new(big.Int).SetBytes(sig[32:])
			s.Sub(elliptic.P256().Params().N, s).FillBytes(sig[32:])
			return sig, err
		},
	}
	for name, sign := range faults {
		s := &testSigner{good.key, good.priv, sign}
		if out, err := receipt.Sign1(receipt.KindReceipt, s, "r", []byte("{}")); err == nil || out != nil {
			t.Errorf("%s: COSE signed", name)
		} else if name == "error" && !errors.Is(err, boom) {
			t.Errorf("the cause is lost: %v", err)
		}
		if out, err := receipt.SignDSSE(s, []byte("{}")); err == nil || out != nil {
			t.Errorf("%s: DSSE signed", name)
		}
	}
	if _, err := receipt.Sign1(receipt.KindReceipt, good, "r", []byte("{}")); err != nil {
		t.Errorf("positive control: %v", err)
	}
}

func TestRT74_SamePayload(t *testing.T) {
	if err := receipt.SamePayload([]byte("abc"), []byte("abc")); err != nil {
		t.Errorf("positive control: %v", err)
	}
	for _, other := range []string{"", "ab", "abd", "abcd"} {
		if err := receipt.SamePayload([]byte("abc"), []byte(other)); stage(err) != "payload" {
			t.Errorf("%q: got %v", other, err)
		}
	}
}

func TestRT73_SecondSignature(t *testing.T) {
	s1, s2 := newSigner(t, "runner.example", receipt.Ed25519), newSigner(t, "second.example", receipt.ESP256)
	payload := []byte(testStatement)
	parse := func(s *testSigner, kind receipt.Kind, sub string, payload []byte) *receipt.Unverified {
		return must(receipt.ParseSign1(kind, must(receipt.Sign1(kind, s, sub, payload))(t)))(t)
	}
	first := must(parse(s1, receipt.KindReceipt, "r", payload).Verify(s1.key))(t)
	if _, err := parse(s2, receipt.KindReceipt, "r", payload).VerifySecond(first, s2.key); err != nil {
		t.Errorf("positive control: %v", err)
	}
	renamed := must(receipt.NewPublicKey("second.example", s1.priv.Public()))(t)
	for name, c := range map[string]struct {
		u   *receipt.Unverified
		key receipt.PublicKey
	}{
		"same key":      {parse(s1, receipt.KindReceipt, "r", payload), s1.key},
		"renamed key":   {parse(s1, receipt.KindReceipt, "r", payload), renamed},
		"other payload": {parse(s2, receipt.KindReceipt, "r", []byte("{}")), s2.key},
		"other subject": {parse(s2, receipt.KindReceipt, "q", payload), s2.key},
		"another kind":  {parse(s2, receipt.KindSealedSet, "r", payload), s2.key},
	} {
		if _, err := c.u.VerifySecond(first, c.key); stage(err) != "second" {
			t.Errorf("%s: got %v", name, err)
		}
	}
	s3 := newSigner(t, "third.example", receipt.ESP256)
	if _, err := parse(s3, receipt.KindReceipt, "r", payload).VerifySecond(first, s2.key); stage(err) != "kid" {
		t.Errorf("unpinned key: got %v", err)
	}
}

// Length prefixes and nesting cost neither memory nor time.
func TestRT63_BoundedMemory(t *testing.T) {
	nested := append([]byte{0xd2, 0x84}, bytes.Repeat([]byte{0x81}, receipt.MaxSealedSet/8)...)
	inputs := map[string]func() error{
		"2 GB byte string": func() error {
			_, err := receipt.ParseSign1(receipt.KindSealedSet, []byte{0xd2, 0x84, 0x40, 0xa0, 0x5a, 0x7f, 0xff, 0xff, 0xff})
			return err
		},
		"2^62 pairs": func() error {
			_, err := receipt.ParseSign1(receipt.KindSealedSet, []byte{0xd2, 0x84, 0x49, 0xbb, 0x40, 0, 0, 0, 0, 0, 0, 0, 0xa0, 0x41, 0, 0x41, 0})
			return err
		},
		"8 million arrays": func() error { _, err := receipt.ParseSign1(receipt.KindSealedSet, nested); return err },
		"JSON arrays": func() error {
			_, err := receipt.ParseDSSE([]byte(`{"signatures":` + strings.Repeat("[", receipt.MaxEnvelope-20)))
			return err
		},
	}
	for name, parse := range inputs {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := parse()
		runtime.ReadMemStats(&after)
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%s: %d bytes allocated, want at most 1 MiB", name, got)
		}
	}
}

// Every single-byte change of a bundle, by every one of three masks, is refused.
func TestFlipEveryByte(t *testing.T) {
	runner, owner := newSigner(t, "runner.example", receipt.Ed25519), newSigner(t, "owner.example", receipt.Ed25519)
	second := newSigner(t, "second.example", receipt.ESP256)
	data := smallBundle(t, runner, owner, second)
	if err := openBundle(data, runner.key, owner.key, &second.key); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	stages := make(map[string]int)
	for i := range data {
		for _, mask := range []byte{0x01, 0x20, 0xff} {
			data[i] ^= mask
			got := stage(openBundle(data, runner.key, owner.key, &second.key))
			data[i] ^= mask
			stages[got]++
			if got == "ok" || strings.HasPrefix(got, "no stage") {
				t.Errorf("byte %d ^ %02x: %s", i, mask, got)
			}
			if got == "not-a-bundle" && i >= 512 {
				t.Errorf("byte %d ^ %02x: no bundle any more, but the first header is whole", i, mask)
			}
		}
	}
	t.Logf("%d bytes: %v", len(data), stages)
	for _, want := range []receipt.Stage{receipt.StageTar, receipt.StageSignature, receipt.StageKid, receipt.StageCBOR, receipt.StageJSON} {
		if stages[string(want)] == 0 {
			t.Errorf("no change was refused at stage %s", want)
		}
	}
}

// smallBundle holds the signed members alone.
func smallBundle(t testing.TB, runner, owner, second receipt.Signer) []byte {
	t.Helper()
	return must(receipt.FormatBundle(&receipt.Bundle{
		Receipt:   must(receipt.Sign1(receipt.KindReceipt, runner, "run", []byte(testStatement)))(t),
		Statement: must(receipt.SignDSSE(runner, []byte(testStatement)))(t),
		Sealed:    must(receipt.Sign1(receipt.KindSealedSet, owner, "bench/task", []byte{0xa0}))(t),
		Receipt2:  must(receipt.Sign1(receipt.KindReceipt, second, "run", []byte(testStatement)))(t),
	}))(t)
}

// What is shown of an unverified receipt is fit for a screen: the parser refuses
// a bad issuer, not only Verify.
func TestParseHoldsUnauthenticatedNames(t *testing.T) {
	n := 0
	for _, v := range readVectors(t, "cose", 80) {
		if v.name == "iss-with-space" || v.name == "sub-control" {
			n++
			if _, err := receipt.ParseSign1(receipt.KindReceipt, v.data); stage(err) != v.head["stage"] {
				t.Errorf("%s: got %v", v.name, err)
			}
		}
	}
	if n != 2 {
		t.Errorf("got %d vectors, want 2", n)
	}
}

func TestErrorText(t *testing.T) {
	_, err := receipt.ParseSign1(receipt.KindSealedSet, nil)
	if got, want := err.Error(), "sealed set: size: got 0 bytes, want 1 to 67108864"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
