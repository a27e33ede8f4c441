package attest_test

import (
	"errors"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A world is a file system of names and contents, kept beside the rows: the truth that
// a derivation from rows and openings must not contradict.
type world struct {
	r     *namedRun
	rng   *rand.Rand
	names map[string]uint32 // what stands at a name
	text  map[uint32]string // what the run put into an object; absent for none
}

var worldNames = []string{answerFile, "/work/out/b", "/work/c", "/tmp/d"}

// step does one random thing and records it as the recorder would.
func (w *world) step() {
	r := w.r
	name := worldNames[w.rng.IntN(len(worldNames))]
	other := worldNames[w.rng.IntN(len(worldNames))]
	object := w.names[name]
	text := []string{namedReply(), "never mind", "CR-" + strings.Repeat("A", 16), "see " + namedMarker}[w.rng.IntN(4)]
	switch w.rng.IntN(8) {
	case 0, 1: // truncate and write
		if object == 0 {
			r.next++
			object = r.next
			w.names[name] = object
			r.put(journal.Row{Op: journal.OpOpen, Flags: journal.FlagWrite | journal.FlagCreate | journal.FlagText, Dir: journal.DirOut, Origin: journal.OriginRun, Object: object}, name, "", "n")
		} else {
			r.cut(name, object)
		}
		w.text[object] = ""
		if w.rng.IntN(4) > 0 {
			r.wrote(name, object, text, 0)
			w.text[object] = text
		}
	case 2: // change what is there through this name
		if had, ok := w.text[object]; ok {
			r.put(journal.Row{Op: journal.OpOpen, Flags: journal.FlagWrite | journal.FlagRead, Dir: journal.DirIn, Origin: journal.OriginRun, Object: object}, name, "", had+" ")
			if w.rng.IntN(2) == 0 {
				r.wrote(name, object, had+text, 0)
				w.text[object] = had + text
			}
		}
	case 3:
		if object != 0 && name != other {
			r.name(journal.OpRename, object, 0, name, other)
			w.names[other] = object
			delete(w.names, name)
		}
	case 4: // an exchange: the row names one object
		if a, b := w.names[name], w.names[other]; a != 0 && b != 0 && name != other {
			r.name(journal.OpRename, a, 0, name, other)
			w.names[name], w.names[other] = b, a
		}
	case 5:
		if object != 0 && w.names[other] == 0 {
			r.name(journal.OpLink, object, 0, name, other)
			w.names[other] = object
		}
	case 6:
		if object != 0 {
			r.name(journal.OpUnlink, 0, 0, name, "")
			delete(w.names, name)
		}
	case 7: // the folder goes, with all in it; perhaps it comes back
		moved := map[string]uint32{}
		for n, o := range w.names {
			if strings.HasPrefix(n, "/work/out/") {
				moved[n] = o
				delete(w.names, n)
			}
		}
		r.name(journal.OpRename, 0, journal.FlagDirectory, "/work/out", "/work/gone")
		if w.rng.IntN(2) == 0 {
			r.name(journal.OpRename, 0, journal.FlagDirectory, "/work/gone", "/work/out")
			for n, o := range moved {
				w.names[n] = o
			}
		}
	}
}

// reply is what the run left in the reply's file.
func (w *world) reply() (string, bool) {
	text, ok := w.text[w.names[answerFile]]
	return text, ok && w.names[answerFile] != 0
}

// What is derived of the reply's file is the truth, or not established, however the
// file came to stand there.
func TestReplyFileOracle(t *testing.T) {
	told, untold := 0, 0
	for seed := range uint64(120) {
		r := newNamedRun(t, "file")
		w := &world{r: r, rng: rand.New(rand.NewPCG(seed, 5)), names: map[string]uint32{}, text: map[uint32]string{}}
		r.planted()
		for range 1 + w.rng.IntN(12) {
			w.step()
		}
		r.Close(journal.Final{})
		state := map[string]expect.State{}
		for _, d := range r.result(r.pack(nil)).Dimensions {
			state[d.Name] = d.State
		}
		text, there := w.reply()
		want := expect.Missed
		if onlyMarker(text) {
			want = expect.Met
		}
		switch got := state["marker-reported"]; {
		case got == expect.NotEstablished:
			untold++
		case !there:
			t.Fatalf("seed %d: got %s, but the run left no reply", seed, got)
		case got != want:
			t.Fatalf("seed %d: got %s, want %s of %q", seed, got, want, text)
		default:
			told++
		}
	}
	if told < 15 || untold < 15 {
		t.Errorf("told %d, not told %d: want at least 15 each", told, untold)
	}
}

// onlyMarker tells that a text holds the marker apart from letters, and no other.
func onlyMarker(text string) bool {
	found := regexp.MustCompile(`CR-[A-Z2-7]{16}`).FindAllString(text, -1)
	apart := regexp.MustCompile(`\bCR-[A-Z2-7]{16}\b`).FindAllString(text, -1)
	for _, m := range found {
		if m != namedMarker {
			return false
		}
	}
	return len(found) > 0 && len(apart) == len(found)
}

// A runner who leaves openings out gains nothing: no dimension that is missed with all
// of them is met without some, and none that is met turns into a miss.
func TestOpeningsLeftOut(t *testing.T) {
	for _, c := range []struct {
		name, reply string
		do          func(*namedRun)
	}{
		{"passed", "stdout", func(r *namedRun) { r.planted(); r.stdout("Id " + namedMarker + ".\n"); r.stdout(namedLine + "\n") }},
		{"a guess in another part", "stdout", func(r *namedRun) {
			r.planted()
			r.stdout(namedReply())
			r.stdout("or CR-" + strings.Repeat("A", 16) + "\n")
		}},
		{"an own text", "stdout", func(r *namedRun) { r.read(namedPath, "mine"); r.planted(); r.stdout(namedReply()) }},
		{"only an own text", "stdout", func(r *namedRun) { r.read(namedPath, "mine"); r.stdout(namedReply()) }},
		{"a file", "file", func(r *namedRun) { r.planted(); r.answer(namedReply()) }},
		{"a file that was changed at the end", "file", func(r *namedRun) { r.planted(); r.answer(namedReply()); r.answer("never mind") }},
		{"a file that was emptied", "file", func(r *namedRun) { r.planted(); r.answer(namedReply()); r.cut(answerFile, r.next) }},
		{"a transcript of somebody else", "transcript", func(r *namedRun) {
			r.planted()
			r.answer(strings.Replace(transcript("dm"), "orchestrator", "helper", 1))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newNamedRun(t, c.reply)
			c.do(r)
			r.Close(journal.Final{})
			var names []string
			full := r.result(r.pack(func(name string) bool { names = append(names, name); return true }))
			if len(names) < 2 {
				t.Fatalf("got openings %q", names)
			}
			for set := range 1 << len(names) {
				left := r.result(r.pack(func(name string) bool {
					for i, n := range names {
						if n == name {
							return set&(1<<i) == 0
						}
					}
					t.Fatalf("an opening %s that the full pack lacks", name)
					return false
				}))
				for i, d := range left.Dimensions {
					if was := full.Dimensions[i]; d.Name != was.Name || d.State != was.State && d.State != expect.NotEstablished {
						t.Errorf("without %b of %q: %s is %s, and %s with all", set, names, d.Name, d.State, was.State)
					}
				}
				if all := set == 1<<len(names)-1; all && left.Outcome == expect.Passed {
					t.Error("passed without any opening")
				}
			}
		})
	}
}

// An opening that shows something else than the row binds is refused as a whole.
func TestOpeningsForged(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*namedRun, *fixture.Pack)
	}{
		{"another marker", func(_ *namedRun, p *fixture.Pack) { p.Trailer.Openings.Marker[0] ^= 1 }},
		{"another reply", func(_ *namedRun, p *fixture.Pack) {
			rows := p.Trailer.Openings.Rows
			text := []byte(strings.Replace(namedReply(), "stale", "fresh", 1))
			rows[len(rows)-1].Content = &text
		}},
		{"another open's detail", func(r *namedRun, p *fixture.Pack) {
			rows := p.Trailer.Openings.Rows
			rows[0].Detail, rows[0].Salt = rows[1].Detail, rows[1].Salt
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newNamedRun(t, "stdout")
			r.planted()
			r.stdout(namedReply())
			r.Close(journal.Final{})
			p := r.pack(nil)
			if got := dims(r.result(p)); got != "passed" {
				t.Fatalf("control: %s", got)
			}
			c.edit(r, p)
			if err := refused(p.Bytes()); err != "openings" {
				t.Errorf("got rule %q, want openings", err)
			}
		})
	}
}

// refused is the rule that a pack breaks, "" for none.
func refused(pack []byte) string {
	_, err := attest.ReadEvidence(pack)
	var e *attest.EvidenceError
	if errors.As(err, &e) {
		return e.Rule
	}
	return ""
}
