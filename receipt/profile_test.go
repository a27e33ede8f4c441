package receipt_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// Profile rfc9943 reads more than cleanrun. What it accepts of our one-failure
// vectors is listed here: spellings, and what RFC 9943 allows and we do not.
func TestProfileRFC9943(t *testing.T) {
	wider := []string{
		"alg-eddsa-8", "es256-high-s", // deprecated numbers, malleable signatures
		"kid-of-attacker-renamed", "kid-short", // kid is a hint
		"key-embedded-x5chain", "label-extra", "label-text", // other labels
		"protected-unsorted", "vds-non-shortest", "unprotected-non-shortest", "proof-size-non-shortest", // second spellings
		"sub-of-other-run", // the sub of a receipt is not fixed
	}
	accepted := 0
	for _, v := range readVectors(t, "logreceipt", 80) {
		if v.head["entry"] == "" {
			continue
		}
		err := func() error {
			r, err := receipt.ParseLogReceiptAs(receipt.ProfileRFC9943, v.data)
			if err == nil {
				_, err = r.VerifyInclusion(v.key(t, "log"), unhex(t, v.head["entry"]))
			}
			return err
		}()
		want := v.head["stage"] == "ok" || slices.Contains(wider, v.name)
		if (err == nil) != want || strings.HasPrefix(stage(err), "no stage") {
			t.Errorf("%s: got %v, want accepted %v", v.name, err, want)
		}
		if err == nil {
			accepted++
		}
	}
	if accepted < 12 {
		t.Errorf("%d accepted, want the list and the positive controls", accepted)
	}
	if _, err := receipt.ParseLogReceiptAs(0, nil); stage(err) != "type" {
		t.Errorf("no profile: got %v", err)
	}
	for _, p := range []receipt.Profile{receipt.ProfileCleanrun, receipt.ProfileRFC9943, receipt.ProfileDigestLeaf, receipt.ProfileCCF, 9} {
		if p.String() == "" {
			t.Errorf("profile %d has no name", uint8(p))
		}
	}
}

func fuzzSeeds(f *testing.F) {
	for _, v := range readVectors(f, "logreceipt", 80) {
		f.Add(v.data)
	}
}

// What profile cleanrun accepts is what would be signed again, byte for byte.
func FuzzParseLogReceipt(f *testing.F) {
	fuzzSeeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, p := range []receipt.Profile{receipt.ProfileRFC9943, receipt.ProfileDigestLeaf, receipt.ProfileCCF} {
			if r, err := receipt.ParseLogReceiptAs(p, data); (r == nil) == (err == nil) {
				t.Errorf("%v: got %v and %v", p, r, err)
			}
		}
		r, err := receipt.ParseLogReceipt(data)
		if err != nil {
			if r != nil || strings.HasPrefix(stage(err), "no stage") {
				t.Errorf("got %v with %v", r, err)
			}
			return
		}
		said := r.Unauthenticated()
		head := must(cbor.CoreDetEncOptions().EncMode())(t)
		proof, sort := []any{}, int64(-1)
		if in := said.Inclusion; in != nil {
			proof = []any{in.Size, in.Index, bytesOf(in.Path)}
		} else {
			proof, sort = []any{said.Consistency.Older, said.Consistency.Newer, bytesOf(said.Consistency.Path)}, -2
		}
		protected := must(head.Marshal(map[int64]any{1: int64(said.Alg), 4: said.Kid[:], 15: map[int64]any{1: said.Issuer, 2: said.Subject}, 395: 1}))(t)
		unprotected := map[int64]any{396: map[int64]any{sort: [][]byte{must(head.Marshal(proof))(t)}}}
		again := must(head.Marshal(cbor.Tag{Number: 18, Content: []any{protected, unprotected, nil, data[len(data)-64:]}}))(t)
		if !bytes.Equal(again, data) {
			t.Errorf("accepted %x, which is written %x", data, again)
		}
	})
}

func bytesOf(path [][32]byte) [][]byte {
	out := [][]byte{}
	for i := range path {
		out = append(out, path[i][:])
	}
	return out
}
