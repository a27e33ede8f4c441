package proof_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// witnessed is c2sp.org/tlog-policy as it stands there, from the text of a policy:
// whether a name has witnessed, given who has cosigned.
func witnessed(name string, lines [][]string, signed map[string]bool) bool {
	for _, l := range lines {
		if l[0] == "witness" && l[1] == name {
			return signed[name]
		}
		if l[0] != "group" || l[1] != name {
			continue
		}
		n := 0
		for _, m := range l[3:] {
			if witnessed(m, lines, signed) {
				n++
			}
		}
		switch l[2] {
		case "any":
			return n >= 1
		case "all":
			return n == len(l[3:])
		}
		k, err := strconv.Atoi(l[2])
		return err == nil && n >= k
	}
	return false
}

// randomPolicy groups witnesses, and then what is left, until one is left.
func randomPolicy(r *rand.Rand, witnesses []string) (lines []string, quorum string) {
	open := slices.Clone(witnesses)
	for i := 0; len(open) > 1 && r.IntN(8) > 0; i++ {
		r.Shuffle(len(open), func(a, b int) { open[a], open[b] = open[b], open[a] })
		n := 1 + r.IntN(min(4, len(open)))
		k := []string{"any", "all", strconv.Itoa(1 + r.IntN(n))}[r.IntN(3)]
		name := fmt.Sprintf("g%d", i)
		lines = append(lines, "group "+name+" "+k+" "+strings.Join(open[:n], " "))
		open = append(open[n:], name)
	}
	return lines, open[len(open)-1]
}

// Met and Time are what trying each moment gives.
func TestQuorumIsThatOfTheDefinition(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	log := newSigner(t, logName, "log")
	note := signNote(t, log, 11, mth(leaves(11)))
	const n = 7
	var by []*proof.Cosigner
	var names, base []string
	for i := range n {
		c := edCosigner(t, fmt.Sprintf("w%d.example.org", i), fmt.Sprint("w", i))
		by, names = append(by, c), append(names, fmt.Sprint("w", i))
		base = append(base, fmt.Sprintf("witness w%d %s", i, c.Key()))
	}
	met, unmet := 0, 0
	for range 150 {
		at := make([]uint64, n)
		for i := range at {
			if r.IntN(3) > 0 {
				at[i] = 1700000000 + uint64(r.IntN(5))
			}
		}
		v := verify(t, cosign(t, note, log.Public(), by, at), log.Public())
		for range 4 {
			groups, quorum := randomPolicy(r, names)
			text := strings.Join(slices.Concat(base, groups, []string{"quorum " + quorum}), "\n")
			var lines [][]string
			for l := range strings.Lines(text) {
				lines = append(lines, strings.Fields(l))
			}
			want := proof.Quorum{Want: n}
			for i, a := range at {
				if a > 0 {
					want.Signed = append(want.Signed, names[i])
				}
			}
			want.Got = len(want.Signed)
			for moment := uint64(1700000000); moment < 1700000005 && !want.Met; moment++ {
				signed := map[string]bool{}
				for i, a := range at {
					signed[names[i]] = a > 0 && a <= moment
				}
				if witnessed(quorum, lines, signed) {
					want.Met, want.Time = true, moment
				}
			}
			got, err := mustPolicy(t, text).Check(v)
			if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("got %+v, %v, want %+v, at %v of\n%s", got, err, want, at, text)
			}
			if want.Met {
				met++
			} else {
				unmet++
			}
		}
	}
	if met < 100 || unmet < 100 {
		t.Errorf("got %d met and %d not, want 100 of each", met, unmet)
	}
}

func TestRT79_QuorumMissed(t *testing.T) {
	log := newSigner(t, logName, "log")
	note := signNote(t, log, 11, mth(leaves(11)))
	by := []*proof.Cosigner{edCosigner(t, "w1.example.org", "w1"), edCosigner(t, "w2.example.org", "w2"), pqCosigner(t, "w3.example.org", "w3")}
	lines := "log " + vkey(t, "log") + "\n"
	for i, c := range by {
		lines += fmt.Sprintf("witness w%d %s\n", i+1, c.Key())
	}
	two := mustPolicy(t, lines+"group g 2 w1 w2 w3\nquorum g\n")
	for _, c := range []struct {
		at   []uint64
		want proof.Quorum
	}{
		{[]uint64{0, 0, 0}, proof.Quorum{Want: 3}},
		{[]uint64{0, 70, 0}, proof.Quorum{Signed: []string{"w2"}, Got: 1, Want: 3}},
		{[]uint64{90, 70, 0}, proof.Quorum{Met: true, Time: 90, Signed: []string{"w1", "w2"}, Got: 2, Want: 3}},
		{[]uint64{90, 70, 80}, proof.Quorum{Met: true, Time: 80, Signed: []string{"w1", "w2", "w3"}, Got: 3, Want: 3}},
	} {
		v := verify(t, cosign(t, note, log.Public(), by, c.at), log.Public())
		if got, err := two.Check(v); err != nil || fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%v: got %+v, %v, want %+v", c.at, got, err, c.want)
		}
		none := c.want
		none.Met, none.Time = true, 0
		if got, err := mustPolicy(t, lines+"quorum none\n").Check(v); err != nil || fmt.Sprint(got) != fmt.Sprint(none) {
			t.Errorf("%v, quorum none: got %+v, %v, want %+v", c.at, got, err, none)
		}
	}
	// Somebody else's cosignatures, any number of them, count for nothing.
	for i := range 10 {
		note = cosign(t, note, log.Public(), []*proof.Cosigner{edCosigner(t, fmt.Sprintf("s%d.example.org", i), "s")}, []uint64{70})
	}
	if got, err := two.Check(verify(t, note, log.Public())); err != nil || got.Met || got.Got != 0 {
		t.Errorf("strangers: got %+v, %v, want no witness", got, err)
	}
}

// Check refuses what it cannot judge; it never calls it met.
func TestCheckRefuses(t *testing.T) {
	log := newSigner(t, logName, "log")
	note := signNote(t, log, 11, mth(leaves(11)))
	w := edCosigner(t, "w1.example.org", "w1")
	good := verify(t, cosign(t, note, log.Public(), []*proof.Cosigner{w}, []uint64{70}), log.Public())
	line, err := w.Cosign(verify(t, signNote(t, log, 12, mth(leaves(12))), log.Public()), 70)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := proof.AddSignatures(note, line)
	if err != nil {
		t.Fatal(err)
	}
	lines := "log " + vkey(t, "log") + "\nwitness w1 " + w.Key().String() + "\n"
	if q, err := mustPolicy(t, lines+"quorum w1\n").Check(good); err != nil || !q.Met {
		t.Fatalf("the control: got %+v, %v", q, err)
	}
	_, err = mustPolicy(t, lines+"quorum none\n").Check(verify(t, moved, log.Public()))
	wantError(t, "a cosignature of another checkpoint, under a quorum of none", err, proof.StageSignature, "w1.example.org")

	other := newSigner(t, "other.example.org", "other")
	_, err = mustPolicy(t, "log "+other.Public().String()+"\nquorum none\n").Check(good)
	wantError(t, "a log that is not pinned", err, proof.StageOrigin, "does not pin")
	_, err = mustPolicy(t, "log "+newSigner(t, logName, "other").Public().String()+"\nquorum none\n").Check(good)
	wantError(t, "a pinned log's name with another key", err, proof.StageOrigin, "does not pin")

	// Policies that no file gives.
	witnesses := []proof.Witness{{Name: "w1", Key: w.Key()}}
	for name, p := range map[string]*proof.Policy{
		"no quorum":           {Witnesses: witnesses},
		"an unknown quorum":   {Witnesses: witnesses, Quorum: "w2"},
		"a group in itself":   {Witnesses: witnesses, Groups: []proof.Group{{"g", 1, []string{"g"}}}, Quorum: "g"},
		"groups in a circle":  {Witnesses: witnesses, Groups: []proof.Group{{"g", 1, []string{"h"}}, {"h", 1, []string{"g"}}}, Quorum: "g"},
		"a group of none":     {Witnesses: witnesses, Groups: []proof.Group{{"g", 0, []string{"w1"}}}, Quorum: "g"},
		"a group of too many": {Witnesses: witnesses, Groups: []proof.Group{{"g", 2, []string{"w1"}}}, Quorum: "g"},
	} {
		q, err := p.Check(good)
		wantError(t, name, err, proof.StagePolicy, "")
		if q.Met {
			t.Errorf("%s: met", name)
		}
	}
}
