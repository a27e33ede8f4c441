package receipt_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// partSigner signs heads; the payload is opaque to this package.
type partSigner struct{ key ed25519.PrivateKey }

func newPartSigner() partSigner {
	return partSigner{ed25519.NewKeyFromSeed([]byte("0123456789abcdefghijklmnopqrstuv"))}
}

func (s partSigner) Public() receipt.PublicKey {
	key, err := receipt.NewPublicKey("bench.example/owner", s.key.Public())
	if err != nil {
		panic(err) // the name is a good one
	}
	return key
}
func (s partSigner) Sign(m []byte) ([]byte, error) { return ed25519.Sign(s.key, m), nil }

func goodPart(t testing.TB) *receipt.Part {
	t.Helper()
	head := must(receipt.Sign1(receipt.KindBenchmark, newPartSigner(), "bench", []byte{0xa0}))(t)
	return &receipt.Part{Head: head, Index: 2, Path: [][32]byte{{1}, {2}}, Set: []byte{0xa0}}
}

func TestPartRoundTrip(t *testing.T) {
	p := goodPart(t)
	data := must(receipt.FormatPart(p))(t)
	s := must(receipt.ParseSealed(data))(t)
	if s.Part == nil || s.Part.Index != 2 || len(s.Part.Path) != 2 || !bytes.Equal(s.Set(), p.Set) || !bytes.Equal(s.Part.Head, p.Head) {
		t.Errorf("got %+v", s.Part)
	}
	if _, err := s.Signed.Verify(newPartSigner().Public()); err != nil {
		t.Error(err)
	}
	// A set that is signed by itself.
	alone := must(receipt.Sign1(receipt.KindSealedSet, newPartSigner(), "bench/task", []byte{0xa1, 1, 1}))(t)
	s = must(receipt.ParseSealed(alone))(t)
	if s.Part != nil || !bytes.Equal(s.Set(), []byte{0xa1, 1, 1}) {
		t.Errorf("got %+v", s)
	}
	if _, err := s.Signed.Verify(newPartSigner().Public()); err != nil {
		t.Error(err)
	}
}

// Each file has one thing wrong.
func TestPartRefused(t *testing.T) {
	p := goodPart(t)
	good := must(receipt.FormatPart(p))(t)
	encode := func(v ...any) []byte { return must(dcbor.Marshal(v))(t) }
	path := [][]byte{make([]byte, 32)}
	long := make([][]byte, 65)
	for i := range long {
		long[i] = make([]byte, 32)
	}
	receiptOfRun := must(receipt.Sign1(receipt.KindReceipt, newPartSigner(), "run", []byte("{}")))(t)
	setAlone := must(receipt.Sign1(receipt.KindSealedSet, newPartSigner(), "bench/task", []byte{0xa0}))(t)
	for name, c := range map[string]struct {
		data []byte
		want receipt.Stage
	}{
		"empty":                  {nil, receipt.StageSize},
		"a head alone":           {p.Head, receipt.StageType},
		"cut":                    {good[:len(good)-1], receipt.StageCBOR},
		"a byte more":            {append(bytes.Clone(good), 0), receipt.StageCBOR},
		"four elements":          {encode(receipt.PartVersion, p.Head, 2, path), receipt.StageTag},
		"another version":        {encode("cleanrun/part/v2", p.Head, 2, path, p.Set), receipt.StageType},
		"a hash of 31 bytes":     {encode(receipt.PartVersion, p.Head, 2, [][]byte{make([]byte, 31)}, p.Set), receipt.StageCanonical},
		"a hash of 33 bytes":     {encode(receipt.PartVersion, p.Head, 2, [][]byte{make([]byte, 33)}, p.Set), receipt.StageCanonical},
		"65 hashes":              {encode(receipt.PartVersion, p.Head, 2, long, p.Set), receipt.StageSize},
		"a negative index":       {encode(receipt.PartVersion, p.Head, -1, path, p.Set), receipt.StageCBOR},
		"no set":                 {encode(receipt.PartVersion, p.Head, 2, path, []byte{}), receipt.StagePayload},
		"a receipt as head":      {encode(receipt.PartVersion, receiptOfRun, 2, path, p.Set), receipt.StageType},
		"a single set as head":   {encode(receipt.PartVersion, setAlone, 2, path, p.Set), receipt.StageType},
		"an index in nine bytes": {bytes.Replace(good, append(bytes.Clone(p.Head[len(p.Head)-4:]), 2), append(bytes.Clone(p.Head[len(p.Head)-4:]), 0x1b, 0, 0, 0, 0, 0, 0, 0, 2), 1), receipt.StageCanonical},
	} {
		_, err := receipt.ParseSealed(c.data)
		var e *receipt.Error
		if !errors.As(err, &e) || e.Stage != c.want {
			t.Errorf("%s: got %v, want stage %s", name, err, c.want)
		}
	}
	// A head is not a set that is signed by itself, nor the reverse.
	if _, err := receipt.ParseSign1(receipt.KindSealedSet, p.Head); err == nil {
		t.Error("a head is read as a sealed set")
	}
	if _, err := receipt.ParseSign1(receipt.KindBenchmark, setAlone); err == nil {
		t.Error("a sealed set is read as a head")
	}
}

// A signature over one kind is never one over another.
func TestKindsAreApart(t *testing.T) {
	kinds := []receipt.Kind{receipt.KindReceipt, receipt.KindSealedSet, receipt.KindBenchmark, receipt.KindSubmission}
	for _, made := range kinds {
		data := must(receipt.Sign1(made, newPartSigner(), "sub", []byte("{}")))(t)
		for _, read := range kinds {
			_, err := receipt.ParseSign1(read, data)
			var e *receipt.Error
			if read == made && err != nil || read != made && (!errors.As(err, &e) || e.Stage != receipt.StageType) {
				t.Errorf("%v read as %v: got %v", made, read, err)
			}
		}
	}
}

func FuzzParseSealed(f *testing.F) {
	p := goodPart(f)
	f.Add(must(receipt.FormatPart(p))(f))
	f.Add(must(receipt.Sign1(receipt.KindSealedSet, newPartSigner(), "bench/task", []byte{0xa0}))(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := receipt.ParseSealed(data)
		var e *receipt.Error
		if err != nil {
			if s != nil || !errors.As(err, &e) {
				t.Fatalf("got %v, %T", s, err)
			}
			return
		}
		if s.Part == nil {
			return
		}
		if again, err := receipt.FormatPart(s.Part); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("another encoding is accepted: %v", err)
		}
	})
}
