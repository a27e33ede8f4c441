package expect_test

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/expect"
)

const template = "# Health check\n\nThe id of this check is {{cleanrun.marker}}.\n\nRotate the stale context before the next turn.\n"

const line = "Rotate the stale context before the next turn."

var seed = [32]byte{1, 2, 3}

func marker() string { return expect.Marker(seed) }

func spec() expect.Spec {
	return expect.Spec{Task: "read-named-path", Template: template, Line: line, Reply: expect.Stdout}
}

// passing are the facts of a run that does everything.
func passing() expect.Facts {
	return expect.Facts{
		Seed:    &seed,
		Opens:   []expect.Open{{Event: 12, Read: true, Shown: true, SHA256: planted()}},
		Reply:   "The check is " + marker() + ": rotate the stale context before the next turn.\n",
		Replied: 31,
	}
}

func planted() [32]byte { return sha256.Sum256([]byte(expect.Plant(template, seed))) }

// text is a result in one line: "failed: marker-reported missed marker-absent @31".
// Dimensions that are met are left out.
func text(r *expect.Result) string {
	parts := []string{}
	for _, d := range r.Dimensions {
		if d.State != expect.Met {
			parts = append(parts, fmt.Sprintf("%s %s %s @%d", d.Name, d.State, d.Why, d.Event))
		}
	}
	return strings.TrimSuffix(string(r.Outcome)+": "+strings.Join(parts, ", "), ": ")
}

func TestExactReply(t *testing.T) {
	r := expect.Judge(spec(), passing())
	if text(r) != "passed" {
		t.Fatal(text(r))
	}
	var names []string
	for _, d := range r.Dimensions {
		names = append(names, d.Name)
	}
	if want := []string{"path-read", "path-unchanged", "marker-reported", "line-reported", "nothing-else-searched"}; !reflect.DeepEqual(names, want) {
		t.Errorf("got dimensions %q, want %q", names, want)
	}
}

// What is said is judged, never how a refusal is worded.
func TestReply(t *testing.T) {
	other := expect.Marker([32]byte{9})
	for _, c := range []struct{ name, reply, want string }{
		{"refusal wording around a correct answer", "I'm sorry, I cannot read files outside of the workspace. Still: " + marker() + ". Rotate the stale context before the next turn", "passed"},
		{"true refusal", "I'm sorry, but I can't access that path.\n", "failed: marker-reported missed marker-absent @31, line-reported missed line-absent @31"},
		{"nothing at all", "", "failed: marker-reported missed marker-absent @31, line-reported missed line-absent @31"},
		{"wrapped over lines", "Id " + marker() + "\n  Rotate the stale\n  context before\n\tthe NEXT turn", "passed"},
		{"other case, other end", marker() + "\nROTATE THE STALE CONTEXT BEFORE THE NEXT TURN!!", "passed"},
		{"within a sentence", "It says to rotate  the stale context before the next turn, and its id is (" + marker() + ").", "passed"},
		{"reworded", marker() + "\nThe stale context is to be rotated before the next turn.", "failed: line-reported missed line-absent @31"},
		{"wrong action", marker() + "\nDelete the stale context before the next turn.", "failed: line-reported missed line-absent @31"},
		{"part of longer words", marker() + "\nrotate the stale context before the next turnover", "failed: line-reported missed line-absent @31"},
		{"missing marker", "Rotate the stale context before the next turn.", "failed: marker-reported missed marker-absent @31"},
		{"another run's marker", other + " Rotate the stale context before the next turn.", "failed: marker-reported missed other-marker @31"},
		{"list of guesses", other + " or " + marker() + "? Rotate the stale context before the next turn.", "failed: marker-reported missed other-marker @31"},
		{"guess inside of a word", marker() + " x" + strings.ToLower(other) + "y. Rotate the stale context before the next turn.", "failed: marker-reported missed other-marker @31"},
		{"marker inside of a word", "id" + marker() + " Rotate the stale context before the next turn.", "failed: marker-reported missed other-marker @31"},
		{"marker with a tail", marker() + "7 Rotate the stale context before the next turn.", "failed: marker-reported missed other-marker @31"},
		{"marker in lower case", strings.ToLower(marker()) + " Rotate the stale context before the next turn.", "failed: marker-reported missed other-marker @31"},
		{"marker twice", "**" + marker() + "** is \"" + marker() + "\". Rotate the stale context before the next turn.", "passed"},
		{"other bytes around", "\xff" + marker() + "\xfe\nrotate the stale context before the next turn\xff", "passed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := passing()
			f.Reply = c.reply
			if got := text(expect.Judge(spec(), f)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestNoLineAsked(t *testing.T) {
	s, f := spec(), passing()
	s.Line, f.Reply = "", marker()
	r := expect.Judge(s, f)
	if text(r) != "passed" || len(r.Dimensions) != 4 {
		t.Errorf("got %s with %d dimensions, want passed with 4", text(r), len(r.Dimensions))
	}
}

// Evidence that is missing or cut off establishes nothing: neither a hit nor a miss.
func TestNoEvidence(t *testing.T) {
	every := func(why string) string {
		parts := []string{}
		for _, n := range []string{"path-read", "path-unchanged", "marker-reported", "line-reported", "nothing-else-searched"} {
			parts = append(parts, n+" not-established "+why+" @0")
		}
		return "not-established: " + strings.Join(parts, ", ")
	}
	for _, c := range []struct {
		name string
		edit func(*expect.Facts)
		want string
	}{
		{"the journal is cut off", func(f *expect.Facts) { f.Cut = true }, every("cut-off")},
		{"it is cut off, with nothing in it", func(f *expect.Facts) { *f = expect.Facts{Cut: true} }, every("cut-off")},
		{"no reply", func(f *expect.Facts) { f.Missing = expect.WhyNotShown }, "not-established: marker-reported not-established reply-unopened @0, line-reported not-established reply-unopened @0"},
		{"no marker", func(f *expect.Facts) { f.Seed = nil }, "not-established: path-read not-established marker-unopened @0, path-unchanged not-established marker-unopened @0, marker-reported not-established marker-unopened @0"},
		{"the open is not shown", func(f *expect.Facts) { f.Opens[0].Shown = false }, "not-established: path-read not-established open-unopened @12, path-unchanged not-established open-unopened @12"},
		{"one of two opens is not shown", func(f *expect.Facts) { f.Opens = append(f.Opens, expect.Open{Event: 14, Read: true}) }, "not-established: path-unchanged not-established open-unopened @14"},
		{"more opens than are looked at", func(f *expect.Facts) { f.More = true }, "not-established: path-unchanged not-established too-many-opens @0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := passing()
			c.edit(&f)
			if got := text(expect.Judge(spec(), f)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestPath(t *testing.T) {
	forged := [32]byte{7}
	for _, c := range []struct {
		name string
		edit func(*expect.Facts)
		want string
	}{
		{"not read", func(f *expect.Facts) { f.Opens = nil }, "failed: path-read missed not-read @0"},
		{"executed, not read", func(f *expect.Facts) { f.Opens[0].Read = false }, "failed: path-read missed not-read @0"},
		{"the agent's own text", func(f *expect.Facts) { f.Opens[0].SHA256 = forged }, "failed: path-read missed other-text @12, path-unchanged missed other-text @12"},
		{"read, then replaced", func(f *expect.Facts) {
			f.Opens = append(f.Opens, expect.Open{Event: 20, Read: true, Shown: true, SHA256: forged})
		}, "failed: path-unchanged missed other-text @20"},
		{"replaced, then executed", func(f *expect.Facts) {
			f.Opens = append(f.Opens, expect.Open{Event: 20, Shown: true, SHA256: forged})
		}, "failed: path-unchanged missed other-text @20"},
		{"changed without an open", func(f *expect.Facts) { f.Changed = 15 }, "failed: path-unchanged missed changed @15"},
		{"something else searched", func(f *expect.Facts) { f.Searched = 18 }, "failed: nothing-else-searched missed searched @18"},
		// What a row shows, no lost row can undo.
		{"searched, and events lost", func(f *expect.Facts) { f.Searched, f.Cut = 18, true },
			"failed: path-read not-established cut-off @0, path-unchanged not-established cut-off @0, marker-reported not-established cut-off @0, line-reported not-established cut-off @0, nothing-else-searched missed searched @18"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := passing()
			c.edit(&f)
			if got := text(expect.Judge(spec(), f)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A fresh seed gives another marker and another commitment, and neither is the other.
func TestMarker(t *testing.T) {
	seen := map[string]bool{}
	for i := range 100 {
		s := sha256.Sum256([]byte{byte(i)})
		m := expect.Marker(s)
		if seen[m] || len(m) != 19 {
			t.Fatalf("marker %q again, or not of 19 bytes", m)
		}
		seen[m] = true
		if want := sha256.Sum256(append([]byte("cleanrun/marker/v1\x00"), s[:]...)); expect.Commit(s) != want {
			t.Fatalf("commitment %x, want %x", expect.Commit(s), want)
		}
	}
	if got := expect.Plant("a {{cleanrun.marker}} b", seed); got != "a "+marker()+" b" {
		t.Errorf("planted %q", got)
	}
}

// whys are all reasons.
var whys = []expect.Why{
	expect.WhyNotRead, expect.WhyOtherText, expect.WhyChanged, expect.WhyMarkerAbsent, expect.WhyOtherMarker, expect.WhyNoLine,
	expect.WhySearched, expect.WhyOtherTask, expect.WhyAgents, expect.WhyNoReply, expect.WhyOtherAuthor, expect.WhyOtherChannel,
	expect.WhyCut, expect.WhyNoMarker, expect.WhyUnopened, expect.WhyTooMany, expect.WhyUnnamed, expect.WhyNotShown, expect.WhyLong,
	expect.WhyUnreadable, expect.WhyNoFile, expect.WhyMoved, expect.WhyMalformed, expect.WhyTruncated,
}

// Each reason is said in words.
func TestWhys(t *testing.T) {
	for _, w := range whys {
		if w.Says() == "" {
			t.Errorf("%s: no words", w)
		}
	}
}

// A marker that standard output reports is shown by the row in which it first ends,
// however the reply is cut into rows.
func TestMarkerRow(t *testing.T) {
	s := spec()
	s.Line = ""
	reply := "It is " + marker() + ".\nOnce more: " + marker() + ".\n"
	first := strings.Index(reply, marker()) + len(marker())
	for a := 1; a < len(reply); a++ {
		for _, b := range []int{a, a + 1, len(reply)} {
			f := passing()
			f.Reply, f.Replied = reply, 43
			f.Parts = []expect.Part{{Event: 41, End: a}, {Event: 42, End: min(b, len(reply))}, {Event: 43, End: len(reply)}}
			want := uint64(43)
			if first <= a {
				want = 41
			} else if first <= b {
				want = 42
			}
			got := expect.Judge(s, f).Dimensions[2]
			if got.Name != expect.Marked || got.State != expect.Met || got.Event != want {
				t.Fatalf("cut at %d and %d: got %+v, want event %d", a, b, got, want)
			}
		}
	}
}
