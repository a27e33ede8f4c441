package attest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cleanrun-dev/cleanrun/attest"
)

// A vector is a file of testvectors/verdict: one run, what Derive must say of
// it, and a positive control that differs in the one thing that matters.
type vector struct {
	About   string   `json:"about"`
	RedTeam []string `json:"redteam"`
	// Incidents are numbers of things that happened to public benchmarks.
	Incidents []string `json:"incidents,omitempty"`
	Run       Script   `json:"run"`
	Want      want     `json:"want"`
	Control   struct {
		Because string `json:"because"`
		Run     Script `json:"run"`
		Want    want   `json:"want"`
	} `json:"control"`
}

type want struct {
	Verdict attest.Verdict    `json:"verdict"`
	Reasons []string          `json:"reasons"`
	Matches []string          `json:"matches"` // "ROW CLASS REASON"; ROW is a name, or +N for step N
	Counts  map[string]uint64 `json:"counts"`
}

const minVectors = 90

func TestVerdictVectors(t *testing.T) {
	files, err := filepath.Glob("../testvectors/verdict/*.json")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < minVectors {
		t.Fatalf("got %d vectors, want at least %d", len(files), minVectors)
	}
	seen, happened := map[string]bool{}, map[string]bool{}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var v vector
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&v); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, n := range v.RedTeam {
			seen[n] = true
		}
		label := name
		if len(v.RedTeam) > 0 {
			label = "RT" + strings.Join(v.RedTeam, "_") + "_" + name
		}
		for _, n := range v.Incidents {
			happened[n] = true
			label = "Incident" + n + "_" + name
		}
		t.Run(label, func(t *testing.T) { v.Want.check(t, v.Run) })
		t.Run(label+"/control", func(t *testing.T) { v.Control.Want.check(t, v.Control.Run) })
	}
	for _, n := range []string{"8", "16", "24", "28", "28b", "44", "44b", "44c", "44d", "44e", "45", "47", "48", "49", "50", "58f", "93"} {
		if !seen[n] {
			t.Errorf("no vector of red-team row %s", n)
		}
	}
	for _, n := range []string{"9", "13", "14", "15", "20"} {
		if !happened[n] {
			t.Errorf("no vector of incident %s", n)
		}
	}
}

func (w want) check(t *testing.T, s Script) {
	t.Helper()
	p := play(t, s)
	d := attest.Derive(p.set, p.evidence)
	if d.Verdict != w.Verdict {
		t.Errorf("got %s for %v, want %s", d.Verdict, d.Reasons, w.Verdict)
	}
	if diff := cmp.Diff(w.Reasons, reasonIDs(d)); diff != "" && len(w.Reasons)+len(d.Reasons) > 0 {
		t.Errorf("reasons (-want +got):\n%s", diff)
	}
	if got, want := matchWords(d), w.matches(t, p); !slices.Equal(got, want) {
		t.Errorf("matches (-want +got):\n%s", cmp.Diff(want, got))
	}
	data, err := json.Marshal(d.Counts)
	if err != nil {
		t.Fatal(err)
	}
	var counts map[string]uint64
	if err := json.Unmarshal(data, &counts); err != nil {
		t.Fatal(err)
	}
	for name, n := range w.Counts {
		got, ok := counts[name]
		if !ok {
			t.Fatalf("no count %q", name)
		}
		if got != n {
			t.Errorf("%s: got %d, want %d", name, got, n)
		}
	}
}

func reasonIDs(d *attest.Derivation) (ids []string) {
	for _, r := range d.Reasons {
		ids = append(ids, r.ID)
	}
	return ids
}

func matchWords(d *attest.Derivation) (words []string) {
	for _, m := range d.Matches {
		words = append(words, fmt.Sprintf("%d %s %s", m.Event, m.Class, m.Reason))
	}
	slices.Sort(words)
	return words
}

func (w want) matches(t *testing.T, p *played) (words []string) {
	for _, m := range w.Matches {
		name, rest, _ := strings.Cut(m, " ")
		seq, ok := p.rows[name]
		if step, isStep := strings.CutPrefix(name, "+"); isStep {
			var n int
			if _, err := fmt.Sscan(step, &n); err != nil || n >= len(p.seqs) {
				t.Fatalf("match %q", m)
			}
			seq, ok = p.seqs[n], true
		}
		if !ok {
			t.Fatalf("match %q names no row", m)
		}
		words = append(words, fmt.Sprintf("%d %s", seq, rest))
	}
	slices.Sort(words)
	return words
}
