package receipt_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/veraison/go-cose"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// transparent is a statement with n receipts of two logs.
func transparent(t testing.TB, n int) (entry []byte, receipts [][]byte, whole []byte) {
	t.Helper()
	entries, tree := logOf(t, 4)
	for i := range n {
		s := newSigner(t, "log.example", []receipt.Alg{receipt.Ed25519, receipt.ESP256}[i%2])
		receipts = append(receipts, must(receipt.SignInclusion(s, "run 1", inclusion(tree, 1), tree.root()))(t))
	}
	return entries[1], receipts, must(receipt.Attach(entries[1], receipts...))(t)
}

func TestTransparentStatement(t *testing.T) {
	for _, n := range []int{1, 2, 30} {
		entry, receipts, whole := transparent(t, n)
		gotEntry, got, err := receipt.Detach(whole)
		if err != nil || !bytes.Equal(gotEntry, entry) || len(got) != n {
			t.Fatalf("%d receipts: got %d, %v", n, len(got), err)
		}
		for i := range got {
			if !bytes.Equal(got[i], receipts[i]) {
				t.Errorf("receipt %d differs", i)
			}
		}
		// The issuer's signature does not cover the receipts: the whole verifies
		// as what it is, and is no statement of ours as it stands.
		var m cose.Sign1Message
		if err := m.UnmarshalCBOR(whole); err != nil {
			t.Fatal(err)
		}
		if err := m.Verify(nil, stdVerifier{newSigner(t, "runner.example", receipt.Ed25519)}); err != nil {
			t.Error(err)
		}
		if list, _ := m.Headers.Unprotected[int64(394)].([]any); len(list) != n {
			t.Errorf("go-cose reads %d receipts in label 394, want %d", len(list), n)
		}
		if _, err := receipt.ParseSign1(receipt.KindCheckpoint, whole); stage(err) != "unprotected" {
			t.Errorf("as an entry: got %v", err)
		}
	}
}

func TestAttachRefuses(t *testing.T) {
	entry, receipts, whole := transparent(t, 1)
	r := receipts[0]
	for name, c := range map[string]struct {
		entry    []byte
		receipts [][]byte
		want     string
	}{
		"positive control": {entry, receipts, "ok"},
		"no receipt":       {entry, nil, "unprotected"},
		"too many":         {entry, make([][]byte, 65), "unprotected"},
		"empty receipt":    {entry, [][]byte{r, {}}, "tag"},
		"long receipt":     {entry, [][]byte{make([]byte, 64<<10+1)}, "size"},
		"cut receipt":      {entry, [][]byte{r[:len(r)-1]}, "cbor"},
		"attached already": {whole, receipts, "unprotected"},
		"no entry":         {nil, receipts, "size"},
		"receipt as entry": {r, receipts, "unprotected"},
		"long entry":       {make([]byte, receipt.MaxEntry+1), receipts, "size"},
		"cut entry":        {entry[:len(entry)-1], receipts, "cbor"},
	} {
		if out, err := receipt.Attach(c.entry, c.receipts...); stage(err) != c.want || (out == nil) == (err == nil) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestDetachRefuses(t *testing.T) {
	entry, receipts, whole := transparent(t, 1)
	// The unprotected header stands between the protected one and the payload.
	label := []byte{0xa1, 0x19, 0x01, 0x8a, 0x81}
	at := bytes.Index(whole, label)
	if at < 0 {
		t.Fatal("no label 394 in the bytes")
	}
	replace := func(with []byte) []byte {
		return append(append(bytes.Clone(whole[:at]), with...), whole[at+len(label):]...)
	}
	cut := func(from, to string) []byte { return bytes.Replace(whole, []byte(from), []byte(to), 1) }
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"positive control": {whole, "ok"},
		"bare statement":   {entry, "unprotected"},
		"bare receipt":     {receipts[0], "unprotected"},
		"nothing":          {nil, "size"},
		"text":             {[]byte("x"), "tag"},
		"after the end":    {append(bytes.Clone(whole), 0), "cbor"},
		"cut":              {whole[:len(whole)-1], "cbor"},
		"other label":      {replace([]byte{0xa1, 0x19, 0x01, 0x8b, 0x81}), "unprotected"},
		"long label":       {replace([]byte{0xa1, 0x1a, 0, 0, 0x01, 0x8a, 0x81}), "canonical"},
		"label twice":      {cut("\xa1\x19\x01\x8a", "\xa2\x19\x01\x8a\x80\x19\x01\x8a"), "cbor"},
		"label beside":     {cut("\xa1\x19\x01\x8a", "\xa2\x04\x40\x19\x01\x8a"), "unprotected"},
		"payload null":     {bytes.Replace(whole, []byte{0x41, 0xa0, 0x58, 0x40}, []byte{0xf6, 0x58, 0x40}, 1), "payload"},
	} {
		e, r, err := receipt.Detach(c.data)
		if stage(err) != c.want || err != nil && (e != nil || r != nil) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// What Detach accepts, Attach writes.
func FuzzDetach(f *testing.F) {
	_, _, one := transparent(f, 1)
	_, _, two := transparent(f, 2)
	f.Add(one)
	f.Add(two)
	f.Fuzz(func(t *testing.T, data []byte) {
		entry, receipts, err := receipt.Detach(data)
		if err != nil {
			if strings.HasPrefix(stage(err), "no stage") || entry != nil || receipts != nil {
				t.Errorf("got %x with %v", entry, err)
			}
			return
		}
		if again := must(receipt.Attach(entry, receipts...))(t); !bytes.Equal(again, data) {
			t.Errorf("accepted %x, which is written %x", data, again)
		}
	})
}
