package attest_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// The page that users read has every reason, rule and refusal of the code.
func TestSpecListsAreClosed(t *testing.T) {
	lines := func(page string, ids ...string) {
		t.Helper()
		text, err := os.ReadFile("../spec/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if !bytes.Contains(text, []byte("\n| `"+id+"` |")) {
				t.Errorf("spec/%s has no line for %s", page, id)
			}
		}
	}
	for _, id := range attest.ReasonIDs() {
		lines("statement.md", id)
		if !attest.Says(id) {
			t.Errorf("reason %s has no words", id)
		}
		if r := (attest.Reason{ID: id, Count: 3}); strings.Contains(attest.Explain(r), "%") || attest.Advice(id) == "" {
			t.Errorf("reason %s reads %q", id, attest.Explain(r))
		}
	}
	lines("statement.md",
		attest.RefusedNoTask, attest.RefusedSeal, attest.RefusedTask, attest.RefusedProfile, attest.RefusedBaseline, attest.RefusedMarker,
		attest.RefusedWorkspace, attest.RefusedScope, attest.RefusedChannels, attest.RefusedPhases, attest.RefusedScore, attest.RefusedStatement)
	lines("evidence.md",
		attest.RuleShape, attest.RuleVersion, attest.RuleEmpty, attest.RuleRows, attest.RuleJournal, attest.RuleHead, attest.RuleEntry,
		attest.RuleCoverage, attest.RuleDeclared, attest.RuleSame, attest.RuleDigests, attest.RuleRoot, attest.RuleNoDigests,
		attest.RuleTree, attest.RuleControls, attest.RuleOpenings)
}

// The example in spec/statement.md is this statement.
func TestSpecStatement(t *testing.T) {
	a := build(t, graded([]Step{
		{Do: "command"}, {Do: "read", Path: "/usr/bin/cat"}, {Do: "read", Path: "/hidden/solution", Items: "f2..f40 file-raw"},
	}, "text 1.0"), nil)
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, a.Bytes, "", "  "); err != nil {
		t.Fatal(err)
	}
	shows(t, "statement.md", "```json\n"+pretty.String()+"\n```")
}

func shows(t *testing.T, page, want string) {
	t.Helper()
	text, err := os.ReadFile("../spec/" + page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(text, []byte(want)) {
		t.Errorf("spec/%s shows another example; it should be\n%s", page, want)
	}
}

// The example in spec/evidence.md is this pack.
func TestSpecEvidence(t *testing.T) {
	set, err := fixture.Set(fixture.Groups(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := fixture.NewRun(set, sha256.Sum256([]byte("sealed")), nil)
	r.Open = func(c []string) []string { return c[:2] }
	r.Phase = journal.PhaseAgent
	first := r.Read("/work/a", fixture.Content{Items: []string{"f2", "f3"}, Size: 400, Canonical: 300})
	r.Read("/work/b", fixture.Content{Same: &first, Size: 400, Canonical: 300})
	r.Read("/usr/bin/cat", fixture.Content{Baseline: true, Size: 5000})
	r.Close(journal.Final{})
	p, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := attest.ReadEvidence(p.Bytes()); err != nil {
		t.Fatal(err)
	}
	shows(t, "evidence.md", "```\n"+diagnostic(p)+"```")
}

var opNames = map[journal.Op]string{
	journal.OpStart: "start", journal.OpFinal: "final", journal.OpDir: "dir", journal.OpOpen: "open", journal.OpFork: "fork", journal.OpExit: "exit",
}

// diagnostic writes a pack in the notation of RFC 8949, section 8, rows cut.
func diagnostic(p *fixture.Pack) string {
	var b strings.Builder
	fmt.Fprintf(&b, "{1: %q, 2: %d, 3: h'%x'}\n", p.Header.Version, p.Header.Rows, p.Header.Root)
	for seq, it := range p.Items {
		row, err := journal.ParseRow(it.Row)
		if err != nil {
			panic(err) // the writer made it
		}
		fmt.Fprintf(&b, "[h'%x...', ", it.Row[:8])
		e := it.Entry
		if e == nil {
			fmt.Fprintf(&b, "null]")
		} else {
			same := "null"
			if e.Same != nil {
				same = fmt.Sprint(*e.Same)
			}
			fmt.Fprintf(&b, "[%d, %d, %d, %d, %d, %d, %d, %s,\n  h'%x',\n  h'%s']]", e.Seen, e.Scanned, e.Baseline, e.Declared, e.Opaque, e.Canonical,
				e.Bounds, same, e.Root, hexLines(e.Digests, 16))
		}
		fmt.Fprintf(&b, "  / row %d, %s, %d bytes /\n", seq, opNames[row.Op], len(it.Row))
	}
	t := p.Trailer
	fmt.Fprintf(&b, "[h'%x', %d, %d,\n  h'%s']\n", t.Tree, t.Depth, t.Digests, hexLines(t.Controls, 32))
	return b.String()
}

func hexLines(data []byte, size int) string {
	var parts []string
	for d := range slices.Chunk(data, size) {
		parts = append(parts, fmt.Sprintf("%x", d))
	}
	return strings.Join(parts, "\n    ")
}
