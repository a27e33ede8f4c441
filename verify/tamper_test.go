package verify_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// part is a stretch of a bundle and the checks that guard it. One of them must
// be the one that fails, so that no check hides that another is missing.
type part struct {
	name     string
	from, to int
	pinned   []string // with a policy
	free     []string // without; nil if only a signature guards it
}

// parts finds the members in the bundle; what lies between them is the frame.
func parts(t testing.TB, data []byte) (list []part) {
	t.Helper()
	b, err := receipt.ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	at := 0
	for _, m := range []struct {
		name         string
		data         []byte
		pinned, free []string
	}{
		{"receipt.cose", b.Receipt,
			[]string{verify.CheckReceipt, verify.CheckRunnerKey, verify.CheckSignature},
			[]string{verify.CheckReceipt, verify.CheckEnvelope}},
		{"statement.dsse.json", b.Statement,
			[]string{verify.CheckEnvelope, verify.CheckEnvelopeSig},
			[]string{verify.CheckEnvelope}},
		{"task.sealed", b.Sealed,
			[]string{verify.CheckSealed, verify.CheckOwnerKey, verify.CheckOwnerSig},
			[]string{verify.CheckSealed, verify.CheckSeal}},
		{"evidence.cbor", b.Evidence,
			[]string{verify.CheckEvidenceSum},
			[]string{verify.CheckEvidenceSum}},
		{"receipt2.cose", b.Receipt2,
			[]string{verify.CheckSecond},
			[]string{verify.CheckSecond}},
	} {
		if m.data == nil {
			continue
		}
		from := bytes.Index(data[at:], m.data) + at
		frame := []string{verify.CheckBundle}
		list = append(list, part{"frame before " + m.name, at, from, frame, frame})
		at = from + len(m.data)
		list = append(list, part{m.name, from, at, m.pinned, m.free})
	}
	frame := []string{verify.CheckBundle}
	return append(list, part{"end", at, len(data), frame, frame})
}

// Any changed byte gives exit 1, or 2 where the file no longer looks like a
// bundle, and the check that fails is one that guards the place.
func TestTamperEveryByte(t *testing.T) {
	for _, two := range []bool{false, true} {
		k := newKit()
		k.record, k.two = cheat, two
		policy := k.policy()
		if two {
			policy = twoPolicy(k)
		}
		data := k.make(t)
		if r := verify.Verify(data, policy, now); r.Exit != verify.ExitDirty {
			t.Fatalf("control: %s", r.Text("x"))
		}
		const looks = 512 // the first header is what a bundle looks like
		flips := 0
		for _, p := range parts(t, data) {
			step := 1
			switch {
			case strings.HasPrefix(p.name, "evidence"), strings.HasPrefix(p.name, "task"):
				step = 1 + (p.to-p.from)/400
			}
			if two && step == 1 {
				step = 7
			}
			if testing.Short() {
				step *= 10
			}
			for at := p.from; at < p.to; at += step {
				broken := bytes.Clone(data)
				broken[at] ^= 1 << (at % 8)
				flips++
				got := of(verify.Verify(broken, policy, now))
				unusable := at < looks && got == result{verify.ExitUnusable, verify.CheckBundle}
				if !unusable && (got.exit != verify.ExitInvalid || !slices.Contains(p.pinned, got.check)) {
					t.Fatalf("byte %d of %s: got %v, want exit 1 by %v", at-p.from, p.name, got, p.pinned)
				}
				got = of(verify.Verify(broken, nil, now))
				switch {
				case unusable && got.exit == verify.ExitUnusable:
				case got.exit == verify.ExitInvalid && slices.Contains(p.free, got.check):
				case got.exit == verify.ExitInvalid && got.check == verify.CheckSubject && strings.HasPrefix(p.name, "receipt.cose"):
					// the sub claim, which the rows give too
				case got == result{verify.ExitUndecided, ""} && onlySigned(p.name):
					// Nobody's key is known, and all that changed is what a key would check.
				default:
					t.Fatalf("byte %d of %s without a policy: got %v, want exit 1 by %v", at-p.from, p.name, got, p.free)
				}
			}
		}
		if want := 3000; !testing.Short() && !two && flips < want {
			t.Errorf("got %d flips, want at least %d", flips, want)
		}
	}
}

// onlySigned names the members of which some bytes (a signature, a key id, a
// name) mean nothing without a key.
func onlySigned(member string) bool {
	return member == "receipt.cose" || member == "statement.dsse.json" || member == "receipt2.cose"
}

// Cut, lengthened and mixed bundles.
func TestTamperWhole(t *testing.T) {
	k := newKit()
	data := k.make(t)
	other := newKit()
	other.record = cheat
	foreign := other.make(t)
	a, err := receipt.ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	b, err := receipt.ParseBundle(foreign)
	if err != nil {
		t.Fatal(err)
	}
	mix := func(change func(x *receipt.Bundle)) []byte {
		x := *a
		change(&x)
		out, err := receipt.FormatBundle(&x)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	cases := map[string]struct {
		data []byte
		want result
	}{
		"cut":               {data[:len(data)-1], result{verify.ExitInvalid, verify.CheckBundle}},
		"cut to half":       {data[:len(data)/2], result{verify.ExitInvalid, verify.CheckBundle}},
		"one byte more":     {append(bytes.Clone(data), 0), result{verify.ExitInvalid, verify.CheckBundle}},
		"twice":             {append(bytes.Clone(data), data...), result{verify.ExitInvalid, verify.CheckBundle}},
		"foreign evidence":  {mix(func(x *receipt.Bundle) { x.Evidence = b.Evidence }), result{verify.ExitInvalid, verify.CheckEvidenceSum}},
		"foreign receipt":   {mix(func(x *receipt.Bundle) { x.Receipt = b.Receipt }), result{verify.ExitInvalid, verify.CheckEnvelope}},
		"foreign envelope":  {mix(func(x *receipt.Bundle) { x.Statement = b.Statement }), result{verify.ExitInvalid, verify.CheckEnvelope}},
		"receipt as second": {mix(func(x *receipt.Bundle) { x.Receipt2 = x.Receipt }), result{verify.ExitInvalid, verify.CheckSecond}},
		"sealed as receipt": {mix(func(x *receipt.Bundle) { x.Receipt = x.Sealed }), result{verify.ExitInvalid, verify.CheckReceipt}},
		"receipt as sealed": {mix(func(x *receipt.Bundle) { x.Sealed = x.Receipt }), result{verify.ExitInvalid, verify.CheckSealed}},
	}
	for name, c := range cases {
		if got := of(verify.Verify(c.data, k.policy(), now)); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
	if r := verify.Verify(data, k.policy(), now); r.Exit != verify.ExitClean {
		t.Errorf("control: %s", r.Text("x"))
	}
}

func FuzzVerify(f *testing.F) {
	k := newKit()
	good := k.make(f)
	f.Add(good)
	f.Add(good[:600])
	policy := k.policy()
	f.Fuzz(func(t *testing.T, data []byte) {
		r := verify.Verify(data, policy, now)
		if r.Exit != verify.ExitInvalid && r.Exit != verify.ExitUnusable && !bytes.Equal(data, good) {
			t.Fatalf("exit %d for bytes that nobody signed", r.Exit)
		}
		_ = r.Text("x")
		if r := verify.Verify(data, nil, now); r.Exit == verify.ExitClean || r.Exit == verify.ExitDirty {
			t.Fatalf("exit %d without a policy", r.Exit)
		}
	})
}
