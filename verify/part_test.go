package verify_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// partOf makes a kit whose task.sealed is a part.
func partOf() *kit {
	k := newKit()
	k.head = func(*contraband.Head) {}
	return k
}

func TestPart(t *testing.T) {
	k := partOf()
	r := verify.Verify(k.make(t), k.policy(), now)
	if r.Exit != verify.ExitClean {
		t.Fatalf("got %s", r.Text("x"))
	}
	if b := r.Benchmark; b == nil || b.Tasks != 5 || b.Weak != 1 || b.Revision != "v7" || b.Index != 2 || b.Public {
		t.Errorf("got %+v", b)
	}
	if got := r.Text("x"); !strings.Contains(got, "bench.example/owner   (pinned owner)   (benchmark of 5 tasks, 1 left out as too weak to seal)") {
		t.Errorf("got %s", got)
	}
	if r := verify.Verify(k.make(t), nil, now); r.Exit != verify.ExitUndecided || r.Derived != "CLEAN" {
		t.Errorf("without a policy: got %s", r.Text("x"))
	}
}

// Each part has one thing wrong, though the statement binds its bytes and the
// owner or runner signed it so.
func TestPartRefused(t *testing.T) {
	other := func(s *contraband.Set) []byte {
		s.Task = "task-9"
		data, err := s.Marshal()
		if err != nil {
			panic(err)
		}
		return data
	}
	for name, c := range map[string]struct {
		head func(*contraband.Head)
		part func(*receipt.Part)
		kit  func(*kit)
		want string
	}{
		"RT18 another task's set beside the owner's head": {part: func(p *receipt.Part) {
			s, err := contraband.ParseSet(p.Set)
			if err != nil {
				t.Fatal(err)
			}
			p.Set = other(s)
		}, want: verify.CheckInclusion},
		"another root":               {head: func(h *contraband.Head) { h.Root[31] ^= 1 }, want: verify.CheckInclusion},
		"fewer tasks":                {head: func(h *contraband.Head) { h.Tasks = 4 }, want: verify.CheckInclusion},
		"index of another set":       {part: func(p *receipt.Part) { p.Index = 3 }, want: verify.CheckInclusion},
		"index outside":              {part: func(p *receipt.Part) { p.Index = 5 }, want: verify.CheckInclusion},
		"RT11 proof one hash short":  {part: func(p *receipt.Part) { p.Path = p.Path[:2] }, want: verify.CheckInclusion},
		"RT11 proof one hash longer": {part: func(p *receipt.Part) { p.Path = append(p.Path, p.Path[0]) }, want: verify.CheckInclusion},
		"no proof":                   {part: func(p *receipt.Part) { p.Path = nil }, want: verify.CheckInclusion},
		"head of another benchmark":  {head: func(h *contraband.Head) { h.Benchmark = "other" }, want: verify.CheckInclusion},
		"head of another period":     {head: func(h *contraband.Head) { h.Period = "2099" }, want: verify.CheckInclusion},
		"RT25 a public key that did not seal the set": {head: func(h *contraband.Head) {
			h.Key, h.Data = []byte("0123456789abcdefghijklmnopqrstuv"), [32]byte{1}
		}, want: verify.CheckInclusion},
		"sub is another benchmark":                   {kit: func(k *kit) { k.sealedSub = "other" }, want: verify.CheckSealed},
		"head by another key":                        {kit: func(k *kit) { s := newSigner("evil.example/owner"); k.sealedBy = &s }, want: verify.CheckOwnerKey},
		"head by another key under the owner's name": {kit: func(k *kit) { s := namedSigner("bench.example/owner", "evil"); k.sealedBy = &s }, want: verify.CheckOwnerKey},
	} {
		k := partOf()
		if c.head != nil {
			k.head = c.head
		}
		k.part = c.part
		if c.kit != nil {
			c.kit(k)
		}
		if r := verify.Verify(k.make(t), k.policy(), now); r.Exit != verify.ExitInvalid || of(r).check != c.want {
			t.Errorf("%s: got %s, want it refused by %s", name, r.Text("x"), c.want)
		}
	}
}

// Any changed byte of a part is noticed by a check that guards it.
func TestTamperEveryByteOfPart(t *testing.T) {
	k := partOf()
	data := k.make(t)
	b, err := receipt.ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	s, err := receipt.ParseSealed(b.Sealed)
	if err != nil || s.Part == nil {
		t.Fatalf("got %v", err)
	}
	from := bytes.Index(data, b.Sealed)
	set := bytes.Index(b.Sealed, s.Part.Set)
	pinned := []string{verify.CheckSealed, verify.CheckOwnerKey, verify.CheckOwnerSig, verify.CheckInclusion}
	free := []string{verify.CheckSealed, verify.CheckInclusion, verify.CheckSeal}
	flips := 0
	for at := 0; at < len(b.Sealed); at++ {
		if at > set { // the set's own encoding has tests of its own
			at += (len(b.Sealed) - set) / 500
		}
		if at >= len(b.Sealed) {
			break
		}
		flips++
		broken := bytes.Clone(data)
		broken[from+at] ^= 1 << (at % 8)
		if got := of(verify.Verify(broken, k.policy(), now)); got.exit != verify.ExitInvalid || !slices.Contains(pinned, got.check) {
			t.Fatalf("byte %d of the part: got %v, want exit 1 by %v", at, got, pinned)
		}
		if got := of(verify.Verify(broken, nil, now)); got.exit != verify.ExitInvalid || !slices.Contains(free, got.check) {
			t.Fatalf("byte %d of the part without a policy: got %v, want exit 1 by %v", at, got, free)
		}
	}
	if flips < 800 {
		t.Errorf("got %d flips, want at least 800", flips)
	}
}
