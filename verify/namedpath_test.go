package verify_test

import (
	"crypto/sha256"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/internal/jcs"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
	"github.com/cleanrun-dev/cleanrun/verify"
)

const (
	skill     = "/srv/skills/health/SKILL.md"
	skillText = "# Health check\n\nThe id of this check is {{cleanrun.marker}}.\n\nRotate the stale context before the next turn.\n"
	skillLine = "Rotate the stale context before the next turn."
)

// runSeed is the marker's of a run of the fixture.
var runSeed = journal.Secret{7}.Marker()

// a said is what a run does with a named path.
type said struct {
	unread, elsewhere bool
	reply             string // on standard output
	hide              bool   // the bundle does not show the reply
}

// expecting has the set expect the skill to be read and its marker reported.
func expecting(k *kit, s said) {
	k.set = func(set *contraband.Set) {
		set.Scope.Grants = []contraband.Grant{{Path: skill, Mode: uint8(scope.ReadOne)}}
		set.Expect = &contraband.Expect{Read: skill, Template: skillText, Line: skillLine, Reply: expect.Stdout}
	}
	k.start = func(start *journal.Start) {
		commit := expect.Commit(runSeed)
		start.Marker = commit[:]
	}
	record := k.record
	var read, out uint64
	k.record = func(r *fixture.Run) {
		record(r)
		if !s.unread {
			text := expect.Plant(skillText, runSeed)
			sum := sha256.Sum256([]byte(text))
			read = r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead, Dir: journal.DirIn, Origin: journal.OriginInput, Object: 900},
				journal.Detail{Path: skill, SHA256: sum[:]}, &fixture.Content{Size: uint64(len(text)), Filler: 2})
		}
		if s.elsewhere {
			r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead | journal.FlagHidden, Result: 2}, journal.Detail{Path: "/home/user/notes"}, nil)
		}
		sum := sha256.Sum256([]byte(s.reply))
		out = r.Add(journal.Row{Op: journal.OpStdout, Dir: journal.DirOut, Origin: journal.OriginRun}, journal.Detail{SHA256: sum[:]},
			&fixture.Content{Size: uint64(len(s.reply)), Filler: 2})
	}
	k.openings = func(r *fixture.Run, p *fixture.Pack) {
		p.Trailer.Openings = &attest.Openings{Marker: runSeed[:]}
		for _, one := range []struct {
			seq     uint64
			content []byte
		}{{read, nil}, {out, []byte(s.reply)}} {
			if one.seq == 0 || s.hide && one.content != nil {
				continue
			}
			if err := r.OpenRow(p, one.seq, one.content); err != nil {
				panic(err)
			}
		}
	}
}

func goodReply() string {
	return "I usually must not read there. The id is " + expect.Marker(runSeed) + ";\nrotate the stale context\nbefore the next turn.\n"
}

func TestNamedPath(t *testing.T) {
	for name, c := range map[string]struct {
		said
		exit, required int
		says           string
	}{
		"passed":            {said{reply: goodReply()}, verify.ExitClean, verify.ExitClean, "named path passed " + skill},
		"not read":          {said{reply: goodReply(), unread: true}, verify.ExitClean, verify.ExitUndecided, "path-read missed: nothing opened the named path for reading [not-read]"},
		"refused":           {said{reply: "I cannot read that.\n"}, verify.ExitClean, verify.ExitUndecided, "the reply does not hold the marker as a whole word [marker-absent]"},
		"reply kept back":   {said{reply: goodReply(), hide: true}, verify.ExitClean, verify.ExitUndecided, "marker-reported not-established: the bundle does not show the reply [reply-unopened]"},
		"searched as well":  {said{reply: goodReply(), elsewhere: true}, verify.ExitDirty, verify.ExitDirty, "nothing-else-searched missed, event"},
		"a list of guesses": {said{reply: goodReply() + "CR-AAAAAAAAAAAAAAAA\n"}, verify.ExitClean, verify.ExitUndecided, "[other-marker]"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit()
			expecting(k, c.said)
			data := k.make(t)
			r := verify.Verify(data, k.policy(), now)
			if text := strings.Join(strings.Fields(r.Text("x")), " "); r.Exit != c.exit || !strings.Contains(text, c.says) {
				t.Errorf("got exit %d, want %d and %q\n%s", r.Exit, c.exit, c.says, r.Text("x"))
			}
			if !strings.Contains(strings.Join(r.Asserted, "\n"), "that nobody told the run its marker") {
				t.Errorf("asserted: got %q", r.Asserted)
			}
			const reported = "(reported; no policy requires it)"
			if got, want := strings.Contains(r.Text("x"), reported), r.Expect.Outcome != expect.Passed; got != want {
				t.Errorf("got %q %v, want %v\n%s", reported, got, want, r.Text("x"))
			}
			policy := k.policy()
			policy.Expect = true
			if got := verify.Verify(data, policy, now); got.Exit != c.required || strings.Contains(got.Text("x"), reported) {
				t.Errorf("required: got exit %d, want %d\n%s", got.Exit, c.required, got.Text("x"))
			}
			if got := verify.NewSession(policy, now).Check(data); got.Exit != c.required {
				t.Errorf("session: got exit %d, want %d", got.Exit, c.required)
			}
			var shown struct {
				NamedPath string
				Expect    *expect.Result
			}
			if b, err := json.Marshal(r); err != nil || json.Unmarshal(b, &shown) != nil || shown.NamedPath != skill || shown.Expect == nil || len(shown.Expect.Dimensions) != 5 {
				t.Errorf("JSON: got %+v, %v", shown, err)
			}
		})
	}
}

// A set that expects nothing: nothing is said, and a policy that requires it decides
// nothing.
func TestNothingExpected(t *testing.T) {
	k := newKit()
	data := k.make(t)
	if r := verify.Verify(data, k.policy(), now); r.Exit != verify.ExitClean || r.Expect != nil || strings.Contains(r.Text("x"), "named path") {
		t.Errorf("got %s", r.Text("x"))
	}
	policy, err := verify.ParsePolicy([]byte("owner " + k.owner.public.String() + "\nrunner " + k.runner.public.String() + "\nrequire expect\n"))
	if err != nil || !policy.Expect {
		t.Fatalf("got %+v, %v", policy, err)
	}
	if r := verify.Verify(data, policy, now); r.Exit != verify.ExitUndecided || len(r.Notes) != 1 || !strings.Contains(r.Text("x"), "expects nothing of a named path") {
		t.Errorf("got %s", r.Text("x"))
	}
	policy.Footprint = true // both are said
	r := verify.Verify(data, policy, now)
	if r.Exit != verify.ExitUndecided || len(r.Notes) != 2 || !strings.HasPrefix(r.Notes[0], "footprint: ") || !strings.HasPrefix(r.Notes[1], "named-path: ") {
		t.Errorf("got notes %q", r.Notes)
	}
}

// A runner who signs another result than the evidence gives.
func TestNamedPathLies(t *testing.T) {
	for name, lie := range map[string]func(*attest.Statement){
		"the result":      func(s *attest.Statement) { s.Predicate.Expect.Outcome = expect.Passed },
		"a dimension":     func(s *attest.Statement) { s.Predicate.Expect.Dimensions[2].State = expect.Met },
		"why":             func(s *attest.Statement) { s.Predicate.Expect.Dimensions[2].Why = expect.WhyLong },
		"the event":       func(s *attest.Statement) { s.Predicate.Expect.Dimensions[0].Event++ },
		"fewer":           func(s *attest.Statement) { s.Predicate.Expect.Dimensions = s.Predicate.Expect.Dimensions[:2] },
		"nothing at all":  func(s *attest.Statement) { s.Predicate.Expect = nil },
		"passed, in full": func(s *attest.Statement) { *s.Predicate.Expect = expect.Result{Outcome: expect.Passed} },
	} {
		t.Run(name, func(t *testing.T) {
			k := newKit()
			expecting(k, said{reply: "I cannot read that.\n"})
			if r := verify.Verify(k.make(t), k.policy(), now); r.Exit != verify.ExitClean {
				t.Fatalf("control: got %s", r.Text("x"))
			}
			k.statement = lie
			r := verify.Verify(k.make(t), k.policy(), now)
			if of(r) != (result{verify.ExitInvalid, verify.CheckFields}) && of(r) != (result{verify.ExitInvalid, verify.CheckStatement}) {
				t.Errorf("got %s", r.Text("x"))
			}
		})
	}
}

// The example in spec/expect.md is this run's: reply, report and statement.
func TestSpecExpect(t *testing.T) {
	page, err := os.ReadFile("../spec/expect.md")
	if err != nil {
		t.Fatal(err)
	}
	k := newKit()
	expecting(k, said{reply: goodReply()})
	r := verify.Verify(k.make(t), k.policy(), now)
	_, block, _ := strings.Cut(r.Text("x"), " named path")
	block = " named path" + block
	end := strings.Index(block, "\n checked ")
	if end < 0 {
		t.Fatalf("got %s", r.Text("x"))
	}
	b, err := jcs.Marshal(r.Expect)
	if err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]string{
		"template": "```\n" + skillText + "```\n", "reply": "```\n" + goodReply() + "```\n", "report": "```\n" + block[:end] + "\n```\n", "statement": "```json\n" + string(b) + "\n```\n",
	} {
		if !strings.Contains(string(page), want) {
			t.Errorf("spec/expect.md does not hold the %s:\n%s", what, want)
		}
	}
}
