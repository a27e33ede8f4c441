package proof_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/transparency-dev/formats/log"
	fnote "github.com/transparency-dev/formats/note"
	fproof "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/formats/witness"
	"golang.org/x/mod/sumdb/note"

	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// refused holds an error to its form: a reason that fits on a screen.
func refused(t *testing.T, err error) {
	t.Helper()
	var e *proof.Error
	if !errors.As(err, &e) || e.Got == "" || e.Want == "" || len(e.Error()) > 4096 {
		t.Fatalf("got error %v", err)
	}
}

// What we take, x/mod and formats read in the same way.
func FuzzParseCheckpoint(f *testing.F) {
	s := newSigner(f, logName, "log")
	n := signNote(f, s, 11, mth(leaves(11)))
	f.Add(n)
	f.Add(cosign(f, n, s.Public(), []*proof.Cosigner{edCosigner(f, "w1.example.org", "w1"), pqCosigner(f, "w2.example.org", "w2")}, []uint64{1700000001, 1700000002}))
	f.Add([]byte(proof.Checkpoint{Origin: "a b", Size: 1 << 63}.Text() + "x\n\n\u2014 y AAAAAAA=\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		u, err := proof.ParseCheckpoint(data)
		if err != nil {
			refused(t, err)
			return
		}
		if string(u.Note()) != string(data) {
			t.Fatalf("got the note %q from %q", u.Note(), data)
		}
		var unverified *note.UnverifiedNoteError
		if _, err := note.Open(data, note.VerifierList()); !errors.As(err, &unverified) {
			t.Fatalf("x/mod: %v, of %q", err, data)
		}
		c, text := u.Checkpoint(), unverified.Note.Text
		var theirs log.Checkpoint
		rest, err := theirs.Unmarshal([]byte(text))
		if err != nil || theirs.Origin != c.Origin || theirs.Size != c.Size || [32]byte(theirs.Hash) != c.Root || c.Text()+string(rest) != text {
			t.Fatalf("got %+v, formats says %+v and %q, %v", c, theirs, rest, err)
		}
		if _, err := u.Verify(s.Public()); err != nil {
			refused(t, err)
		} else if _, err := note.Open(data, note.VerifierList(verifier(t, s.Public().String()))); err != nil {
			t.Fatalf("we verify it, x/mod says %v", err)
		}
	})
}

func verifier(t testing.TB, vkey string) note.Verifier {
	t.Helper()
	v, err := fnote.NewVerifier(vkey)
	if err != nil {
		t.Fatalf("formats: %v, of %q", err, vkey)
	}
	return v
}

// What we take has one spelling, and formats reads it in the same way.
func FuzzParseLogProof(f *testing.F) {
	d := leaves(11)
	n := signNote(f, newSigner(f, logName, "log"), 11, mth(d))
	for _, i := range []int{0, 5, 10} {
		f.Add(proof.FormatLogProof(&proof.LogProof{Index: uint64(i), Path: inclusionPath(i, d), Checkpoint: n}))
	}
	f.Add(proof.FormatLogProof(&proof.LogProof{Index: 1<<64 - 1, Checkpoint: n}))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := proof.ParseLogProof(data)
		if err != nil {
			refused(t, err)
			return
		}
		if again := proof.FormatLogProof(p); string(again) != string(data) {
			t.Fatalf("got %q from %q", again, data)
		}
		var theirs fproof.TLogProof
		err = theirs.Unmarshal(data)
		if len(data) > 60<<10 { // their scanner ends at lines of 64 KiB
			return
		}
		if err != nil || theirs.Index != p.Index || string(theirs.Checkpoint) != string(p.Checkpoint) || theirs.ExtraData != nil ||
			len(theirs.Hashes) != len(p.Path) || len(p.Path) > 0 && !reflect.DeepEqual(theirs.Hashes, p.Path) {
			t.Fatalf("got %+v, formats says %+v, %v", p, theirs, err)
		}
		var tree proof.Checkpoint
		if u, err := proof.ParseCheckpoint(p.Checkpoint); err != nil {
			t.Fatal(err)
		} else {
			tree = u.Checkpoint()
		}
		if err := proof.Inclusion(p.Index, tree.Size, d[0], p.Path, tree.Root); err != nil {
			refused(t, err)
		}
	})
}

// What we take comes back from its own lines, and formats takes those, if witnesses
// have URLs: it asks for them. Checking is total.
func FuzzPolicy(f *testing.F) {
	keys := []string{vkey(f, "log"), vkey(f, "w1"), vkey(f, "w2"), vkey(f, "w3"), pqCosigner(f, "w4.example.org", "w4").Key().String()}
	// In the place of keys the input has numbers, so that it need not find keys.
	f.Add("log $0 https://log.example.org/x\nwitness a $1 http://w1/\nwitness b $2 https://w2\nwitness c $3 https://w3\ngroup g 2 a b c\ngroup h all g\nquorum h\n")
	f.Add("witness a $4\nwitness b $1\ngroup g any a b\nquorum g\n")
	f.Add("log $0\nquorum none\n")
	f.Add("quorum none\nlog $1\n")
	s := newSigner(f, logName, "log")
	signed := cosign(f, signNote(f, s, 11, mth(leaves(11))), s.Public(), []*proof.Cosigner{edCosigner(f, "w1.example.org", "w1"), edCosigner(f, "w2.example.org", "w2"), pqCosigner(f, "w4.example.org", "w4")}, []uint64{7, 8, 9})
	f.Fuzz(func(t *testing.T, text string) {
		for i, k := range keys {
			text = strings.ReplaceAll(text, fmt.Sprint("$", i), k)
		}
		p, err := policy(text)
		if err != nil {
			refused(t, err)
			return
		}
		again, err := policy(p.String())
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Fatalf("got %+v back, %v, want %+v", again, err, p)
		}
		v := verify(t, signed, s.Public())
		q, err := p.Check(v)
		if err != nil {
			refused(t, err)
			return
		}
		for _, w := range p.Witnesses {
			if w.URL == "" {
				return
			}
		}
		theirs, err := witness.ParsePolicy([]byte(p.String()))
		if err != nil {
			t.Fatalf("formats: %v\n%s", err, p)
		}
		if got := theirs.Satisfied(signed); got != q.Met {
			t.Fatalf("got met %v, formats says %v\n%s", q.Met, got, p)
		}
	})
}

// What we take has one spelling, and formats knows the key by the same id.
func FuzzParseWitnessKey(f *testing.F) {
	f.Add(vkey(f, "w1"))
	f.Add(pqCosigner(f, "w4.example.org", "w4").Key().String())
	f.Add(vkey(f, "log"))
	f.Fuzz(func(t *testing.T, text string) {
		k, err := proof.ParseWitnessKey(text)
		if err != nil {
			refused(t, err)
			return
		}
		if k.String() != text {
			t.Fatalf("got %q from %q", k, text)
		}
		if v := verifier(t, text); v.KeyHash() != k.ID() || v.Name() != k.Name() {
			t.Fatalf("formats: %s %08x, want %s %08x", v.Name(), v.KeyHash(), k.Name(), k.ID())
		}
	})
}
