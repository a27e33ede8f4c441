package receipt_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

func fullBundle() *receipt.Bundle {
	return &receipt.Bundle{
		Receipt:   []byte("r"),
		Statement: []byte("st"),
		Sealed:    bytes.Repeat([]byte("s"), 512),
		Evidence:  bytes.Repeat([]byte("e"), 513),
		Proof:     bytes.Repeat([]byte("p"), 511),
		LogProof:  []byte("l"),
		Log:       []byte("lo"),
		Timestamp: []byte("t"),
		Receipt2:  []byte("r2"),
	}
}

// The standard library reads our frame, with the members and nothing of a time,
// an owner or a mode that is not ours.
func TestBundleIsTar(t *testing.T) {
	data := must(receipt.FormatBundle(fullBundle()))(t)
	r := tar.NewReader(bytes.NewReader(data))
	var names []string
	for {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, h.Name)
		if h.Mode != 0o644 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" || h.ModTime.Unix() != 0 || h.Typeflag != tar.TypeReg || h.Format&tar.FormatUSTAR == 0 {
			t.Errorf("%s: %+v", h.Name, h)
		}
		if body := must(io.ReadAll(r))(t); int64(len(body)) != h.Size {
			t.Errorf("%s: %d bytes, want %d", h.Name, len(body), h.Size)
		}
	}
	if got, want := strings.Join(names, " "), "receipt.cose statement.dsse.json task.sealed evidence.cbor proof.cbor log.tlog-proof log.cbor timestamp.tsr receipt2.cose"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// Each choice of optional members gives another file, and comes back as it was.
func TestBundleRoundTrip(t *testing.T) {
	seen := make(map[string]bool)
	for bits := range 1 << 6 {
		b := fullBundle()
		for i, m := range []*[]byte{&b.Evidence, &b.Proof, &b.LogProof, &b.Log, &b.Timestamp, &b.Receipt2} {
			if bits>>i&1 == 0 {
				*m = nil
			}
		}
		data := must(receipt.FormatBundle(b))(t)
		if len(data)%512 != 0 || seen[string(data)] {
			t.Errorf("choice %06b: %d bytes, seen %v", bits, len(data), seen[string(data)])
		}
		seen[string(data)] = true
		got := must(receipt.ParseBundle(data))(t)
		for _, p := range [][2][]byte{
			{got.Receipt, b.Receipt}, {got.Statement, b.Statement}, {got.Sealed, b.Sealed}, {got.Evidence, b.Evidence},
			{got.Proof, b.Proof}, {got.LogProof, b.LogProof}, {got.Log, b.Log}, {got.Timestamp, b.Timestamp}, {got.Receipt2, b.Receipt2},
		} {
			if !bytes.Equal(p[0], p[1]) || (p[0] == nil) != (p[1] == nil) {
				t.Errorf("choice %06b: got %q, want %q", bits, p[0], p[1])
			}
		}
	}
}

func TestBundleCutAnywhere(t *testing.T) {
	data := must(receipt.FormatBundle(fullBundle()))(t)
	for n := range data {
		_, err := receipt.ParseBundle(data[:n:n])
		if got := stage(err); n < 512 && got != "not-a-bundle" || n >= 512 && got != "tar" && got != "member" {
			t.Fatalf("cut at %d: %v", n, err)
		}
	}
}

func TestBundleCaps(t *testing.T) {
	b := fullBundle()
	b.Receipt = make([]byte, receipt.MaxReceipt)
	if _, err := receipt.FormatBundle(b); err != nil {
		t.Errorf("largest receipt: %v", err)
	}
	b.Receipt = make([]byte, receipt.MaxReceipt+1)
	if _, err := receipt.FormatBundle(b); stage(err) != "member" {
		t.Errorf("too large: %v", err)
	}
}

type failing struct{ after int }

func (f *failing) Write(p []byte) (int, error) {
	if f.after -= len(p); f.after < 0 {
		return 0, errors.New("disk full")
	}
	return len(p), nil
}

func TestBundleWriter(t *testing.T) {
	add := func(w *receipt.BundleWriter, m receipt.Member, size int64, body string) error {
		return w.Add(m, size, strings.NewReader(body))
	}
	var out bytes.Buffer
	w := receipt.NewBundleWriter(&out)
	if err := errors.Join(add(w, receipt.MemberReceipt, 1, "a"), add(w, receipt.MemberStatement, 1, "b"), add(w, receipt.MemberSealed, 1, "c"), w.Close()); err != nil {
		t.Fatal(err)
	}
	if want := must(receipt.FormatBundle(&receipt.Bundle{Receipt: []byte("a"), Statement: []byte("b"), Sealed: []byte("c")}))(t); !bytes.Equal(out.Bytes(), want) {
		t.Error("streamed and formatted bundles differ")
	}
	if w.Close() == nil || add(w, receipt.MemberReceipt2, 1, "d") == nil {
		t.Error("a closed writer goes on")
	}

	for name, f := range map[string]func(w *receipt.BundleWriter) error{
		"source too short": func(w *receipt.BundleWriter) error { return add(w, receipt.MemberReceipt, 3, "ab") },
		"source too long":  func(w *receipt.BundleWriter) error { return add(w, receipt.MemberReceipt, 1, "ab") },
		"out of order":     func(w *receipt.BundleWriter) error { return add(w, receipt.MemberSealed, 1, "c") },
		"unknown":          func(w *receipt.BundleWriter) error { return add(w, "x", 1, "c") },
		"empty":            func(w *receipt.BundleWriter) error { return add(w, receipt.MemberReceipt, 0, "") },
		"nothing":          func(w *receipt.BundleWriter) error { return w.Close() },
	} {
		w := receipt.NewBundleWriter(io.Discard)
		if err := f(w); stage(err) != "member" {
			t.Errorf("%s: got %v", name, err)
		}
		if w.Close() == nil {
			t.Errorf("%s: closed all the same", name)
		}
	}
	whole := out.Len()
	for after := range whole {
		w := receipt.NewBundleWriter(&failing{after})
		err := errors.Join(add(w, receipt.MemberReceipt, 1, "a"), add(w, receipt.MemberStatement, 1, "b"), add(w, receipt.MemberSealed, 1, "c"), w.Close())
		if err == nil || !strings.Contains(err.Error(), "disk full") {
			t.Fatalf("disk full after %d bytes: %v", after, err)
		}
	}
}

func FuzzParseBundle(f *testing.F) {
	for _, v := range readVectors(f, "bundle", 40) {
		f.Add(v.data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := receipt.ParseBundle(data)
		if err != nil {
			if b != nil {
				t.Error("a partial bundle with an error")
			}
			return
		}
		if again := must(receipt.FormatBundle(b))(t); !bytes.Equal(again, data) {
			t.Error("accepted, but not what FormatBundle writes")
		}
	})
}
