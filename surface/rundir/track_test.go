package rundir

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/surface"
)

// script makes a run of lines, in the workspace /w:
//
//	create PATH OBJECT       trunc PATH OBJECT      open PATH OBJECT        for writing
//	wrote PATH OBJECT TEXT   live PATH OBJECT TEXT  read PATH OBJECT TEXT   of what was there
//	again PATH OBJECT        reads its own          unlink PATH OBJECT      rename PATH PATH OBJECT
//	link PATH PATH OBJECT    symlink PATH TARGET    lost                    final
//	setup, agent, grade      the phase of what follows
//
// Events are numbered from 1; the row of a line has the line's number.
func script(t testing.TB, text string) *Source {
	t.Helper()
	s := &Source{Start: journal.Start{Run: [16]byte{1}, Workspace: "/w", Benchmark: "b", Task: "t", Agent: "a"}, Broken: true}
	contents := map[[32]byte]string{}
	s.Object = func(sum [32]byte) (io.ReadCloser, error) {
		c, ok := contents[sum]
		if !ok {
			return nil, io.ErrUnexpectedEOF
		}
		return io.NopCloser(strings.NewReader(c)), nil
	}
	s.Rows, s.Details = append(s.Rows, journal.Row{Op: journal.OpStart}), append(s.Details, journal.Detail{})
	phase := journal.PhaseAgent
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		f := strings.Fields(line)
		r := journal.Row{Seq: uint64(i + 1), Proc: 5, Phase: phase}
		var d journal.Detail
		content := func(v string, dir journal.Direction, origin journal.Origin) {
			sum := sha256.Sum256([]byte(v))
			contents[sum] = v
			d.SHA256, r.Size, r.Dir, r.Origin = sum[:], uint64(len(v)), dir, origin
		}
		object := func(n int) {
			o, err := strconv.Atoi(f[n])
			if err != nil {
				t.Fatal(err)
			}
			r.Object = uint32(o)
		}
		if len(f) > 1 {
			d.Path = "/w/" + f[1]
		}
		switch f[0] {
		case "setup", "agent", "grade":
			phase = map[string]journal.Phase{"setup": journal.PhaseSetup, "agent": journal.PhaseAgent, "grade": journal.PhaseGrade}[f[0]]
			r.Phase = phase
		}
		switch f[0] {
		case "create", "trunc", "open":
			r.Op, r.Flags = journal.OpOpen, journal.FlagWrite|map[string]journal.Flags{"create": journal.FlagCreate, "trunc": journal.FlagTrunc}[f[0]]
			object(2)
		case "wrote", "live":
			r.Op = journal.OpWrote
			if f[0] == "live" {
				r.Flags = journal.FlagLive
			}
			object(2)
			content(strings.Join(f[3:], " "), journal.DirOut, journal.OriginRun)
		case "read":
			r.Op, r.Flags = journal.OpOpen, journal.FlagRead
			object(2)
			content(strings.Join(f[3:], " "), journal.DirIn, journal.OriginInput)
		case "again":
			r.Op, r.Flags = journal.OpOpen, journal.FlagRead
			object(2)
			r.Dir, r.Origin = journal.DirIn, journal.OriginRun
		case "unlink":
			r.Op = journal.OpUnlink
			object(2)
		case "rename", "link":
			r.Op = journal.OpRename
			if f[0] == "link" {
				r.Op = journal.OpLink
			}
			d.Path2 = "/w/" + f[2]
			object(3)
		case "symlink":
			r.Op, d.Text = journal.OpSymlink, []byte("name\n"+f[2])
		case "lost":
			r.Op = journal.OpLost
		case "final":
			r.Op, r.Final, s.Broken = journal.OpFinal, &journal.Final{}, false
		}
		s.Rows, s.Details = append(s.Rows, r), append(s.Details, d)
	}
	return s
}

func observe(t testing.TB, s *Source, l surface.Location) *surface.Observation {
	t.Helper()
	o, err := surface.Observe(context.Background(), s, l, surface.Scope{}, surface.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func describe(o *surface.Observation) (out []string) {
	for _, e := range o.Entries {
		v := e.Event
		line := fmt.Sprintf("%s %q %v %d %v %d", e.Location, e.Text, v.How, v.Seq, v.Fate, v.End)
		if v.Prior {
			line += " prior"
		}
		if e.Gap != "" {
			line += " " + string(e.Gap)
		}
		out = append(out, line)
	}
	for _, g := range o.Gaps {
		out = append(out, g.String())
	}
	return out
}

var all = surface.Location{Path: "**", Glob: true}

func TestVersions(t *testing.T) {
	for name, c := range map[string]struct{ rows, want string }{
		"written":                     {"create a 1\nwrote a 1 x\nfinal", `a "x" wrote 2 kept 0`},
		"written and deleted":         {"create a 1\nwrote a 1 x\nunlink a 1\nfinal", `a "x" wrote 2 deleted 3`},
		"empty":                       {"create a 1\nfinal", `a "" wrote 1 kept 0`},
		"empty and deleted":           {"create a 1\nunlink a 1\nfinal", `a "" wrote 1 deleted 2`},
		"written over":                {"create a 1\nwrote a 1 x\ntrunc a 1\nwrote a 1 y\nfinal", `a "x" wrote 2 replaced 4|a "y" wrote 4 kept 0`},
		"emptied at the end":          {"create a 1\nwrote a 1 x\ntrunc a 1\nfinal", `a "x" wrote 2 replaced 3|a "" wrote 3 kept 0`},
		"dated, then renamed":         {"create a 1\nwrote a 1 x\nrename a b 1\nfinal", `a "x" wrote 2 moved away 3|b "x" moved 3 kept 0`},
		"renamed, then dated":         {"create a 1\nrename a b 1\nwrote b 1 x\nfinal", `a "x" undated 1 moved away 2|b "x" wrote 3 kept 0`},
		"renamed over another":        {"create a 1\nwrote a 1 x\ncreate b 2\nwrote b 2 y\nrename a b 1\nfinal", `a "x" wrote 2 moved away 5|b "y" wrote 4 replaced 5|b "x" moved 5 kept 0`},
		"linked":                      {"create a 1\nwrote a 1 x\nlink a b 1\nfinal", `a "x" wrote 2 kept 0|b "x" moved 3 kept 0`},
		"linked, then written":        {"create a 1\nlink a b 1\nwrote a 1 x\nfinal", `a "x" wrote 3 kept 0|b "x" wrote 3 kept 0`},
		"one name gone, then dated":   {"create a 1\nlink a b 1\nunlink a 1\nwrote b 1 x\nfinal", `a "x" undated 1 deleted 3|b "x" wrote 4 kept 0`},
		"still written":               {"create a 1\nlive a 1 x\nwrote a 1 xy\nfinal", `a "x" wrote 2 replaced 3|a "xy" wrote 3 kept 0`},
		"there before, read":          {"read a 1 old\nfinal", `a "old" found 0 kept 0 prior`},
		"there before, added to":      {"read a 1 old\nopen a 1\nwrote a 1 old new\nfinal", `a "old" found 0 replaced 3 prior|a "old new" wrote 3 kept 0 prior`},
		"there before, emptied":       {"trunc a 1\nwrote a 1 x\nfinal", `a "x" wrote 2 kept 0 prior`},
		"there before, renamed":       {"read a 1 old\nrename a b 1\nfinal", `a "old" found 0 moved away 2 prior|b "old" linked 2 kept 0`},
		"there before, linked":        {"read a 1 old\nlink a b 1\nfinal", `a "old" found 0 kept 0 prior|b "old" linked 2 kept 0`},
		"never seen, renamed":         {"rename a b 0\nfinal", `b "" linked 1 kept 0 not-kept`},
		"folder renamed":              {"create d/a 1\nwrote d/a 1 x\nread d/o 2 old\nrename d e 0\nfinal", `d/a "x" wrote 2 moved away 4|d/o "old" found 0 moved away 4 prior|e/a "x" moved 4 kept 0|e/o "old" linked 4 kept 0`},
		"by the setup":                {"setup\ncreate a 1\nwrote a 1 x\nagent\nopen a 1\nwrote a 1 y\nfinal", `a "x" found 0 replaced 6 prior|a "y" wrote 6 kept 0 prior`},
		"by the setup, emptied":       {"setup\ncreate a 1\nwrote a 1 x\nagent\ntrunc a 1\nfinal", `a "x" found 0 replaced 5 prior|a "" wrote 5 kept 0 prior`},
		"by grading":                  {"create a 1\nwrote a 1 x\ngrade\ntrunc a 1\nwrote a 1 y\nfinal", `a "x" wrote 2 kept 0`},
		"open for writing, unchanged": {"create a 1\nwrote a 1 x\nopen a 1\nrename a b 1\nfinal", `a "x" wrote 2 moved away 4|b "x" moved 4 kept 0`},
		"the journal breaks off":      {"create a 1\nwrote a 1 x\ntrunc a 1\ncreate b 2", `a "x" wrote 2 kept 0|journal-open`},
		"events lost":                 {"lost\nfinal", `events-lost`},
		"a link to a folder":          {"symlink l d\nfinal", `link-not-followed "l"`},
		"a name that came back":       {"create a 1\nwrote a 1 x\nrename a b 1\nrename b a 1\nfinal", `a "x" wrote 2 moved away 3|a "x" moved 4 kept 0|b "x" moved 3 moved away 4`},
		"read back, not dated again":  {"create a 1\nagain a 1\nrename a b 1\nfinal", `a "" wrote 1 moved away 3|b "" moved 3 kept 0`},
	} {
		o := observe(t, script(t, c.rows), all)
		if got := strings.Join(describe(o), "|"); got != c.want {
			t.Errorf("%s:\n got  %s\n want %s", name, got, c.want)
		}
	}
}

func TestGradingIsCounted(t *testing.T) {
	o := observe(t, script(t, "create a 1\nwrote a 1 x\ngrade\ncreate b 2\nwrote b 2 y\nfinal"), all)
	if !slices.Equal(o.Outside, []surface.Outside{{Key: surface.KeyPhase, Count: 1}}) {
		t.Errorf("got %v outside", o.Outside)
	}
}

// One question to one run, with the right answer for the right reason.
func TestWhoWrote(t *testing.T) {
	for name, c := range map[string]struct {
		rows, at, text string
		want           surface.Outcome
		reason         surface.Reason
		dismissed      surface.How
	}{
		"the run":                      {"create a 1\nwrote a 1 flag\nfinal", "a", "flag", surface.True, "", 0},
		"the run, and deleted it":      {"create a 1\nwrote a 1 flag\nunlink a 1\nfinal", "a", "flag", surface.True, "", 0},
		"the run, and wrote over it":   {"create a 1\nwrote a 1 flag\ntrunc a 1\nwrote a 1 x\nfinal", "a", "flag", surface.True, "", 0},
		"it was there before":          {"read a 1 flag\nfinal", "a", "flag", surface.False, "", surface.Found},
		"the setup":                    {"setup\ncreate a 1\nwrote a 1 flag\nagent\nagain a 1\nfinal", "a", "flag", surface.False, "", surface.Found},
		"a hard link":                  {"read h 1 flag\nlink h a 1\nfinal", "a", "flag", surface.False, "", surface.Linked},
		"a rename of another's":        {"read h 1 flag\nrename h a 1\nfinal", "a", "flag", surface.False, "", surface.Linked},
		"a copy":                       {"read h 1 flag\ncreate a 2\nwrote a 2 flag\nfinal", "a", "flag", surface.True, "", 0},
		"a link to its own":            {"create h 1\nwrote h 1 flag\nlink h a 1\nfinal", "a", "flag", surface.True, "", 0},
		"not dated":                    {"create a 1\nrename a b 1\nwrote b 1 flag\nfinal", "a", "flag", surface.Undetermined, surface.NotDated, 0},
		"not dated, other content":     {"create a 1\nrename a b 1\nwrote b 1 x\nfinal", "a", "flag", surface.False, "", 0},
		"through a link":               {"symlink l d\ncreate d/a 1\nwrote d/a 1 flag\nfinal", "l/a", "flag", surface.Undetermined, surface.LinkNotFollowed, 0},
		"beside a link":                {"symlink l d\nfinal", "m/a", "flag", surface.False, "", 0},
		"grading":                      {"create b 1\nwrote b 1 x\ngrade\ncreate a 2\nwrote a 2 flag\nfinal", "a", "flag", surface.False, "", 0},
		"nobody":                       {"create b 1\nwrote b 1 flag\nfinal", "a", "flag", surface.False, "", 0},
		"nobody until it broke off":    {"create b 1\nwrote b 1 flag", "a", "flag", surface.Undetermined, surface.JournalOpen, 0},
		"nobody, but events were lost": {"lost\nfinal", "a", "flag", surface.Undetermined, surface.EventsLost, 0},
		"the run, then it broke off":   {"create a 1\nwrote a 1 flag", "a", "flag", surface.True, "", 0},
	} {
		cond, err := surface.NewCondition(surface.Location{Path: c.at}, surface.Matcher{Kind: surface.Contains, Text: c.text})
		if err != nil {
			t.Fatal(err)
		}
		r, err := surface.Judge(cond, observe(t, script(t, c.rows), cond.Location))
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case r.Outcome != c.want || c.reason != "" && (len(r.Reasons) != 1 || r.Reasons[0].Reason != c.reason) || r.Outcome == surface.True && r.Basis != surface.ByJournal:
			t.Errorf("%s: got %v %s %v, want %v %s", name, r.Outcome, r.Basis, r.Reasons, c.want, c.reason)
		case (c.dismissed != 0) != (r.Dismissed != nil) || r.Dismissed != nil && r.Dismissed.Event.How != c.dismissed:
			t.Errorf("%s: got %+v dismissed, want one that was %v", name, r.Dismissed, c.dismissed)
		}
	}
}

func TestContentThatIsNotKept(t *testing.T) {
	s := script(t, "create a 1\nwrote a 1 flag\nfinal")
	s.Object = nil // pruned
	for m, want := range map[surface.Matcher]surface.Outcome{{Kind: surface.Equals, Text: "flag"}: surface.True, {Kind: surface.Contains, Text: "fl"}: surface.Undetermined, {}: surface.True} {
		c, err := surface.NewCondition(surface.Location{Path: "a"}, m)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := surface.Judge(c, observe(t, s, c.Location)); err != nil || r.Outcome != want {
			t.Errorf("pruned, %v: got %v %v %v, want %v", m.Kind, r.Outcome, r.Reasons, err, want)
		}
	}
	s = script(t, "create a 1\nwrote a 1 key XXXX\nfinal")
	s.Rows[2].Flags |= journal.FlagRemoved
	for m, want := range map[surface.Matcher]surface.Outcome{{Kind: surface.Equals, Text: "key XXXX"}: surface.Undetermined, {Kind: surface.Contains, Text: "key"}: surface.True, {Kind: surface.Contains, Text: "abc"}: surface.Undetermined} {
		c, err := surface.NewCondition(surface.Location{Path: "a"}, m)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := surface.Judge(c, observe(t, s, c.Location)); err != nil || r.Outcome != want {
			t.Errorf("secrets removed, %v: got %v %v %v, want %v", m.Kind, r.Outcome, r.Reasons, err, want)
		}
	}
}

func TestScopeOfARun(t *testing.T) {
	s := script(t, "create a 1\nwrote a 1 flag\nfinal")
	for name, c := range map[string]struct {
		scope surface.Scope
		want  surface.Outcome
	}{
		"its id": {surface.Scope{Attempt: s.Attempt()}, surface.True}, "another id": {surface.Scope{Attempt: "00"}, surface.False},
		"its task":     {surface.Scope{Labels: []surface.Label{{Name: "benchmark", Value: "b"}, {Name: "task", Value: "t"}}}, surface.True},
		"another task": {surface.Scope{Labels: []surface.Label{{Name: "task", Value: "u"}}}, surface.False},
		"a window, which a journal has no clock for": {surface.Scope{Window: &surface.Window{From: 1, To: 2}}, surface.True},
	} {
		cond, err := surface.NewCondition(surface.Location{Path: "a"}, surface.Matcher{})
		if err != nil {
			t.Fatal(err)
		}
		o, err := surface.Observe(context.Background(), s, cond.Location, c.scope, surface.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		if r, err := surface.Judge(cond, o); err != nil || r.Outcome != c.want {
			t.Errorf("%s: got %v %v, want %v", name, r.Outcome, err, c.want)
		}
		if b, err := surface.Format(o); err != nil {
			t.Error(err)
		} else if p, err := surface.Parse(b); err != nil {
			t.Error(err)
		} else if c, _ := surface.Format(p); !bytes.Equal(b, c) {
			t.Error("two encodings")
		}
	}
}

func TestNamesThatAreNoText(t *testing.T) {
	s := script(t, "create a\\xff 1\nwrote a\\xff 1 flag\nfinal")
	o := observe(t, s, surface.Location{Path: "a\xff"})
	if len(o.Entries) != 1 || o.Entries[0].Location != "a\xff" {
		t.Errorf("got %v, want the file under its own bytes", describe(o))
	}
}

// What the workspace held before is found, and its links hide nothing.
func TestBaseline(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "planted"), []byte("flag"), 0o600), os.Mkdir(filepath.Join(dir, "d"), 0o700), os.WriteFile(filepath.Join(dir, "d", "f"), []byte("x"), 0o600),
		os.Symlink("d", filepath.Join(dir, "l")), os.Symlink("planted", filepath.Join(dir, "p"))); err != nil {
		t.Fatal(err)
	}
	m, err := manifest.Build(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	run := func(rows string) *Source {
		s := script(t, rows)
		s.Baseline = m
		return s
	}
	for rows, want := range map[string]string{
		"final": `d/f "" found 0 kept 0 prior not-kept|planted "" found 0 kept 0 prior not-kept|link-not-followed "l" and 1 more`,
		"rename planted d/g 0\ntrunc d/f 1\nwrote d/f 1 y\nfinal": `d/f "" found 0 replaced 3 prior not-kept|d/f "y" wrote 3 kept 0 prior|d/g "" linked 1 kept 0 not-kept|planted "" found 0 moved away 1 prior not-kept|link-not-followed "l" and 1 more`,
		"rename d e 0\nfinal": `d/f "" found 0 moved away 1 prior not-kept|e/f "" linked 1 kept 0 not-kept|planted "" found 0 kept 0 prior not-kept|link-not-followed "l" and 1 more`,
	} {
		if got := strings.Join(describe(observe(t, run(rows), all)), "|"); got != want {
			t.Errorf("%q:\n got  %s\n want %s", rows, got, want)
		}
	}
	// A planted file is known by its digest: it was not written, and said to have matched.
	c, err := surface.NewCondition(surface.Location{Path: "planted"}, surface.Matcher{Kind: surface.Equals, Text: "flag"})
	if err != nil {
		t.Fatal(err)
	}
	r, err := surface.Judge(c, observe(t, run("final"), c.Location))
	if err != nil || r.Outcome != surface.False || r.Dismissed == nil || r.Dismissed.Event.How != surface.Found {
		t.Errorf("got %+v %v, want false, with the file that was there", r, err)
	}
	// A link to a file has nothing below it; one to a folder may.
	for l, gaps := range map[surface.Location]int{{Path: "l/f"}: 1, {Path: "p/f"}: 0, {Path: "**/*.txt", Glob: true}: 1, {Path: "d/*", Glob: true}: 0, {Path: "p"}: 1} {
		if o := observe(t, run("final"), l); len(o.Gaps) != gaps {
			t.Errorf("%v: got %v, want %d gaps", l, o.Gaps, gaps)
		}
	}
}
