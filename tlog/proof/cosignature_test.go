package proof_test

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

func TestCosign(t *testing.T) {
	log := newSigner(t, logName, "log")
	note := signNote(t, log, 11, mth(leaves(11)))
	by := []*proof.Cosigner{edCosigner(t, "w.example.org/ed", "ed"), pqCosigner(t, "w.example.org/pq", "pq"), pqCosigner(t, logName, "log pq")}
	at := []uint64{1700000000, 1700000001, 1<<63 - 1}
	note = cosign(t, note, log.Public(), by, at)
	v := verify(t, note, log.Public())
	for i, c := range by {
		if got, ok, err := c.Key().Verify(v); got != at[i] || !ok || err != nil {
			t.Errorf("%s: got %d, %v, %v, want %d", c.Key().Name(), got, ok, err, at[i])
		}
		k, err := proof.ParseWitnessKey(c.Key().String())
		if err != nil || !k.SameKey(c.Key()) || k.ID() != c.Key().ID() || k.Type() != c.Key().Type() {
			t.Errorf("%s: got %v, %v back", c.Key(), k, err)
		}
		line, ok, err := k.Line(v)
		if err != nil || !ok || strings.Count(string(note), string(line)) != 1 {
			t.Errorf("%s: got line %q, %v, %v", c.Key().Name(), line, ok, err)
		}
	}
	// Who did not sign: the same key under another name and type, and a stranger.
	for _, c := range []*proof.Cosigner{edCosigner(t, "w.example.org/other", "ed"), pqCosigner(t, "w.example.org/ed", "ed"), edCosigner(t, "w.example.org/ed", "x")} {
		if got, ok, err := c.Key().Verify(v); got != 0 || ok || err != nil {
			t.Errorf("%s: got %d, %v, %v, want none", c.Key(), got, ok, err)
		}
		if _, ok, err := c.Key().Line(v); ok || err != nil {
			t.Errorf("%s: got a line, %v", c.Key(), err)
		}
	}
	_, _, err := proof.WitnessKey{}.Verify(v)
	wantError(t, "the zero key", err, proof.StageKey, "no key")
	if (proof.WitnessKey{}).SameKey(proof.WitnessKey{}) || (proof.WitnessKey{}).String() != "" {
		t.Error("the zero key is a key")
	}
	_, err = by[0].Cosign(v, 0)
	wantError(t, "no time", err, proof.StageSignature, "timestamp 0")
	_, err = by[1].Cosign(v, 1<<63)
	wantError(t, "a time out of range", err, proof.StageSignature, "below 2^63")
}

// The time in a cosignature is what the witness signed, and a line that bears a
// known name and id and does not verify spoils the note.
func TestRT80_TimeOfACosignatureIsSigned(t *testing.T) {
	log := newSigner(t, logName, "log")
	base := signNote(t, log, 11, mth(leaves(11)))
	for name, c := range map[string]*proof.Cosigner{"Ed25519": edCosigner(t, "w.example.org", "ed"), "ML-DSA-44": pqCosigner(t, "w.example.org", "pq")} {
		line, err := c.Cosign(verify(t, base, log.Public()), 1700000000)
		if err != nil {
			t.Fatal(err)
		}
		prefix := "\u2014 w.example.org "
		blob, err := base64.StdEncoding.DecodeString(strings.TrimSpace(strings.TrimPrefix(string(line), prefix)))
		if err != nil {
			t.Fatal(err)
		}
		check := func(change func(b []byte) []byte, onto []byte) error {
			b := change(append([]byte(nil), blob...))
			note, err := proof.AddSignatures(onto, []byte(prefix+base64.StdEncoding.EncodeToString(b)+"\n"))
			if err != nil {
				t.Fatal(err)
			}
			_, ok, err := c.Key().Verify(verify(t, note, log.Public()))
			if err == nil && !ok {
				t.Fatalf("%s: the line was not found", name)
			}
			return err
		}
		same := func(b []byte) []byte { return b }
		if err := check(same, base); err != nil {
			t.Errorf("%s, the control: %v", name, err)
		}
		wantError(t, name+", an hour later", check(func(b []byte) []byte {
			binary.BigEndian.PutUint64(b[4:], 1700003600)
			return b
		}, base), proof.StageSignature, "does not verify")
		wantError(t, name+", time 0", check(func(b []byte) []byte {
			binary.BigEndian.PutUint64(b[4:], 0)
			return b
		}, base), proof.StageSignature, "does not verify")
		wantError(t, name+", time out of range", check(func(b []byte) []byte {
			b[4] = 0x80
			return b
		}, base), proof.StageSignature, "below 2^63")
		wantError(t, name+", a bit of the signature", check(func(b []byte) []byte {
			b[len(b)-1] ^= 1
			return b
		}, base), proof.StageSignature, "does not verify")
		wantError(t, name+", cut off", check(func(b []byte) []byte { return b[:len(b)-1] }, base), proof.StageSignature, "does not verify")
		wantError(t, name+", four bytes", check(func(b []byte) []byte { return b[:8] }, base), proof.StageSignature, "does not verify")
		wantError(t, name+", of another tree", check(same, signNote(t, log, 12, mth(leaves(12)))), proof.StageSignature, "does not verify")
	}
}

// A signature of a log is no cosignature, even by the same key under the name of
// the witness: type and text differ.
func TestRT79_LogSignatureIsNoCosignature(t *testing.T) {
	log := newSigner(t, logName, "log")
	note := signNote(t, log, 11, mth(leaves(11)))
	k := edCosigner(t, logName, "log").Key()
	if _, ok, err := k.Verify(verify(t, note, log.Public())); ok || err != nil {
		t.Errorf("got %v, %v, want no cosignature", ok, err)
	}
	if k.ID() == log.Public().ID() {
		t.Error("both types have one key id")
	}
}

func TestParseWitnessKeyRefuses(t *testing.T) {
	log := newSigner(t, logName, "log")
	ed, pq := edCosigner(t, "w.example.org", "ed").Key().String(), pqCosigner(t, "w.example.org", "pq").Key().String()
	for _, k := range []string{ed, pq} {
		if _, err := proof.ParseWitnessKey(k); err != nil {
			t.Fatal(err)
		}
	}
	parts := strings.SplitN(ed, "+", 3)
	raw := func(typ byte, key []byte) string {
		return "w.example.org+00000000+" + base64.StdEncoding.EncodeToString(append([]byte{typ}, key...))
	}
	for _, c := range []struct{ name, vkey, says string }{
		{"nothing", "", "want NAME"},
		{"a name alone", parts[0], "want NAME"},
		{"a log's key", log.Public().String(), "key type 0x01"},
		{"an RFC 6962 key", raw(5, make([]byte, 32)), "key type 0x05"},
		{"another key id", parts[0] + "+00000000+" + parts[2], "another spelling"},
		{"another name", "x.example.org+" + parts[1] + "+" + parts[2], "another spelling"},
		{"upper-case hex", parts[0] + "+" + strings.ToUpper(parts[1]) + "+" + parts[2], "another spelling"},
		{"loose base64", strings.TrimRight(pq, "="), "want NAME"},
		{"other bits in the padding", spoil(pq), "want NAME"},
		{"a newline", ed + "\n", ""},
		{"a space", " " + ed, ""},
		{"a short Ed25519 key", raw(4, make([]byte, 31)), "want 32 bytes"},
		{"a low-order Ed25519 key", raw(4, make([]byte, 32)), "low order"},
		{"a short ML-DSA key", raw(6, make([]byte, 1311)), "1,312"},
		{"a key of ML-DSA-65", raw(6, make([]byte, 1952)), ""},
		{"no key", raw(4, nil), "want NAME"},
		{"too long", pq + strings.Repeat("A", 4096), "at most"},
		{"a name of 129 bytes", strings.Repeat("x", 129) + pq[strings.Index(pq, "+"):], "1 to 128"},
		{"a name in another alphabet", "\u0430.example.org" + pq[strings.Index(pq, "+"):], "printable ASCII"},
	} {
		k, err := proof.ParseWitnessKey(c.vkey)
		wantError(t, c.name, err, proof.StageKey, c.says)
		if k.String() != "" {
			t.Errorf("%s: got a key with the error", c.name)
		}
	}
	_, err := proof.NewMLDSA44Cosigner("w.example.org", make([]byte, 31))
	wantError(t, "a short seed", err, proof.StageKey, "31 bytes")
	_, err = proof.NewMLDSA44Cosigner("a name", make([]byte, 32))
	wantError(t, "a name with a space", err, proof.StageKey, "printable ASCII")
}

// The longest names that keys can have.
func TestLongestNames(t *testing.T) {
	name := strings.Repeat("l", 128)
	log := newSigner(t, name, "log")
	w := pqCosigner(t, strings.Repeat("w", 128), "pq")
	note := cosign(t, signNote(t, log, 11, mth(leaves(11))), log.Public(), []*proof.Cosigner{w}, []uint64{5})
	if got, ok, err := w.Key().Verify(verify(t, note, log.Public())); got != 5 || !ok || err != nil {
		t.Errorf("got %d, %v, %v", got, ok, err)
	}
	if len(w.Key().String()) > 2048 {
		t.Errorf("the longest vkey has %d characters: more than are taken", len(w.Key().String()))
	}
	if _, err := proof.ParseWitnessKey(w.Key().String()); err != nil {
		t.Error(err)
	}
}
