package proof_test

import (
	"encoding/base64"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/formats/log"
	fnote "github.com/transparency-dev/formats/note"
	fproof "github.com/transparency-dev/formats/proof"
	"github.com/transparency-dev/formats/witness"
	mproof "github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"

	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// skey is the private key as x/mod and formats read it. They take the key id for a
// hint, except x/mod for type 0x01.
func skey(k fmt.Stringer, typ byte, from string) string {
	parts := strings.SplitN(k.String(), "+", 3)
	return "PRIVATE+KEY+" + parts[0] + "+" + parts[1] + "+" + base64.StdEncoding.EncodeToString(append([]byte{typ}, seed(from)...))
}

// x/mod and formats open our checkpoints and verify our cosignatures, of both
// types, and formats our proof files.
func TestOthersReadOurs(t *testing.T) {
	signer := newSigner(t, logName, "log")
	logVerifier, err := note.NewVerifier(signer.Public().String())
	if err != nil {
		t.Fatal(err)
	}
	by := []*proof.Cosigner{edCosigner(t, "w1.example.org", "w1"), pqCosigner(t, "w2.example.org", "w2"), pqCosigner(t, logName, "log pq")}
	at := []uint64{1700000001, 1700000002, 1700000003}
	d := leaves(11)
	signed := cosign(t, signNote(t, signer, 11, mth(d)), signer.Public(), by, at)
	var witnesses []note.Verifier
	for _, c := range by {
		v, err := fnote.NewVerifier(c.Key().String())
		if err != nil {
			t.Fatal(err)
		}
		if v.Name() != c.Key().Name() || v.KeyHash() != c.Key().ID() {
			t.Errorf("got %s %08x, want %s %08x", v.Name(), v.KeyHash(), c.Key().Name(), c.Key().ID())
		}
		witnesses = append(witnesses, v)
	}
	cp, rest, n, err := log.ParseCheckpoint(signed, logName, logVerifier, witnesses...)
	if err != nil {
		t.Fatal(err)
	}
	if cp.Origin != logName || cp.Size != 11 || [32]byte(cp.Hash) != mth(d) || len(rest) != 0 {
		t.Errorf("got %+v and %q", cp, rest)
	}
	if len(n.Sigs) != 4 || len(n.UnverifiedSigs) != 0 {
		t.Fatalf("got %d signatures that verify and %d that do not, want 4 and 0", len(n.Sigs), len(n.UnverifiedSigs))
	}
	for i := range by {
		got, err := fnote.CoSigV1Timestamp(n.Sigs[i+1])
		if err != nil || got.Unix() != int64(at[i]) {
			t.Errorf("got time %v, %v, want %d", got, err, at[i])
		}
	}

	data := proof.FormatLogProof(&proof.LogProof{Index: 5, Path: inclusionPath(5, d), Checkpoint: signed})
	var p fproof.TLogProof
	if err := p.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	if p.Index != 5 || string(p.Checkpoint) != string(signed) || string(p.Marshal()) != string(data) || p.ExtraData != nil {
		t.Errorf("got %+v", p)
	}
	var hashes [][]byte
	for _, h := range p.Hashes {
		hashes = append(hashes, h[:])
	}
	if err := mproof.VerifyInclusion(rfc6962.DefaultHasher, p.Index, cp.Size, d[5][:], hashes, cp.Hash); err != nil {
		t.Error(err)
	}
}

// We read the checkpoints of x/mod and the cosignatures and proof files of formats.
func TestWeReadOthers(t *testing.T) {
	ours := newSigner(t, logName, "log")
	logSigner, err := note.NewSigner(skey(ours.Public(), 1, "log"))
	if err != nil {
		t.Fatal(err)
	}
	w1, w2 := edCosigner(t, "w1.example.org", "w1").Key(), pqCosigner(t, "w2.example.org", "w2").Key()
	signers := []note.Signer{logSigner}
	for _, k := range []string{skey(w1, proof.TypeEd25519, "w1"), skey(w2, proof.TypeMLDSA44, "w2")} {
		s, err := fnote.NewSignerForCosignatureV1(k)
		if err != nil {
			t.Fatal(err)
		}
		signers = append(signers, s)
	}
	d := leaves(11)
	root := mth(d)
	before := uint64(time.Now().Unix())
	signed, err := note.Sign(&note.Note{Text: string(log.Checkpoint{Origin: logName, Size: 11, Hash: root[:]}.Marshal())}, signers...)
	if err != nil {
		t.Fatal(err)
	}
	var p fproof.TLogProof
	p.Index, p.Checkpoint = 5, signed
	for _, h := range inclusionPath(5, d) {
		p.Hashes = append(p.Hashes, h)
	}
	got, err := proof.ParseLogProof(p.Marshal())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, &proof.LogProof{Index: 5, Path: inclusionPath(5, d), Checkpoint: signed}) {
		t.Errorf("got %+v", got)
	}
	v := verify(t, got.Checkpoint, ours.Public())
	if err := proof.Inclusion(got.Index, v.Checkpoint().Size, d[5], got.Path, v.Checkpoint().Root); err != nil {
		t.Error(err)
	}
	for _, k := range []proof.WitnessKey{w1, w2} {
		if at, ok, err := k.Verify(v); err != nil || !ok || at < before {
			t.Errorf("%s: got %d, %v, %v, want a time from %d on", k.Name(), at, ok, err, before)
		}
	}
	policy := mustPolicy(t, fmt.Sprintf("log %s\nwitness w1 %s\nwitness w2 %s\ngroup g all w1 w2\nquorum g\n", ours.Public(), w1, w2))
	if q, err := policy.Check(v); err != nil || !q.Met || q.Got != 2 {
		t.Errorf("got %+v, %v", q, err)
	}
	// A cosigner of formats may sign without a time. That counts for no quorum.
	s, err := fnote.NewMLDSASigner(skey(w2, proof.TypeMLDSA44, "w2"))
	if err != nil {
		t.Fatal(err)
	}
	sig, err := s.SignSubtree(0, logName, 0, 11, root[:])
	if err != nil {
		t.Fatal(err)
	}
	id := w2.ID()
	line := fmt.Sprintf("\u2014 w2.example.org %s\n", base64.StdEncoding.EncodeToString(append([]byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}, sig...)))
	untimed, err := proof.AddSignatures(signNote(t, ours, 11, root), []byte(line))
	if err != nil {
		t.Fatal(err)
	}
	v = verify(t, untimed, ours.Public())
	if at, ok, err := w2.Verify(v); at != 0 || !ok || err != nil {
		t.Errorf("without a time: got %d, %v, %v, want 0, true", at, ok, err)
	}
	alone := mustPolicy(t, fmt.Sprintf("witness w2 %s\nquorum w2\n", w2))
	if q, err := alone.Check(v); err != nil || q.Met || q.Got != 0 || len(q.Untimed) != 1 {
		t.Errorf("without a time: got %+v, %v, want a witness that does not count", q, err)
	}
}

// formats reads the C2SP part of our policies, and finds the same checkpoints good.
func TestOthersReadOurPolicy(t *testing.T) {
	logSigner := newSigner(t, logName, "log")
	var by []*proof.Cosigner
	text := "log " + logSigner.Public().String() + " https://log.example.org\n"
	for i := range 5 {
		name := fmt.Sprintf("w%d", i)
		c := edCosigner(t, name+".example.org", name)
		if i == 4 {
			c = pqCosigner(t, name+".example.org", name)
		}
		by = append(by, c)
		text += fmt.Sprintf("witness %s %s https://%s.example.org/\n", name, c.Key(), name)
	}
	text += "group X 2 w0 w1 w2\ngroup Y any w3 w4\ngroup both all X Y\nquorum both\n"
	p := mustPolicy(t, text)
	theirs, err := witness.ParsePolicy([]byte(p.String()))
	if err != nil {
		t.Fatalf("%v\n%s", err, p)
	}
	met := 0
	for signed := range 1 << len(by) {
		at := make([]uint64, len(by))
		for i := range at {
			if signed>>i&1 == 1 {
				at[i] = 1700000000
			}
		}
		n := cosign(t, signNote(t, logSigner, 11, mth(leaves(11))), logSigner.Public(), by, at)
		q, err := p.Check(verify(t, n, logSigner.Public()))
		if err != nil || q.Met != theirs.Satisfied(n) {
			t.Errorf("%05b: got %+v, %v, formats says %v", signed, q, err, theirs.Satisfied(n))
		}
		if q.Met {
			met++
		}
	}
	if met != 4*3 { // 4 sets of 2 or 3 of the first three, 3 of the last two
		t.Errorf("got %d sets that are enough, want 12", met)
	}
	none := mustPolicy(t, "log "+logSigner.Public().String()+"\nquorum none\n")
	if _, err := witness.ParsePolicy([]byte(none.String())); err != nil {
		t.Error(err)
	}
}
