package attest_test

import (
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/jcs"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// The row that is named is the one in which the marker ends, not the last that was printed.
func TestMarkerRow(t *testing.T) {
	r := newNamedRun(t, "stdout")
	r.planted()
	r.stdout("Working.\n")
	r.stdout("Id " + namedMarker[:5])
	want := r.stdout(namedMarker[5:] + ".\n")
	r.stdout(namedLine + "\n")
	last := r.stdout("Done.\n")
	r.Close(journal.Final{})
	for _, d := range r.result(r.pack(nil)).Dimensions {
		switch {
		case d.Name == expect.Marked && (d.State != expect.Met || d.Event != want), d.Name == expect.Lined && (d.State != expect.Met || d.Event != last):
			t.Errorf("got %+v, want met, the marker at event %d and the line at %d", d, want, last)
		}
	}
}

func TestNamedPath(t *testing.T) {
	two := func(r *namedRun) { r.planted(); r.answer(namedReply()) }
	for _, c := range []struct {
		name, reply string
		do          func(*namedRun)
		want        string
	}{
		{"read and reported", "stdout", func(r *namedRun) { r.planted(); r.stdout(namedReply()) }, "passed"},
		{"reported in parts", "stdout", func(r *namedRun) {
			r.planted()
			r.stdout(namedReply()[:7])
			r.stdout(namedReply()[7:])
		}, "passed"},
		{"reported, but not read", "stdout", func(r *namedRun) { r.stdout(namedReply()) }, "failed: path-read not-read"},
		{"read, but not reported", "stdout", func(r *namedRun) { r.planted() }, "failed: marker-reported marker-absent, line-reported line-absent"},
		{"opened without reading", "stdout", func(r *namedRun) {
			r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagPath, Object: 77}, journal.Detail{Path: namedPath}, nil)
			r.stdout(namedReply())
		}, "failed: path-read not-read"},
		{"an open that failed", "stdout", func(r *namedRun) {
			r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead, Result: 13}, journal.Detail{Path: namedPath}, nil)
			r.stdout(namedReply())
		}, "failed: path-read not-read"},
		{"a refused write changes nothing", "stdout", func(r *namedRun) {
			r.planted()
			r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagWrite, Result: 30}, journal.Detail{Path: namedPath}, nil)
			r.Add(journal.Row{Op: journal.OpUnlink, Result: 16}, journal.Detail{Path: namedPath}, nil)
			r.stdout(namedReply())
		}, "passed"},
		{"in standard error", "stdout", func(r *namedRun) {
			r.planted()
			r.put(journal.Row{Op: journal.OpStderr, Dir: journal.DirOut, Origin: journal.OriginRun}, "", "", namedReply())
		}, "failed: marker-reported marker-absent, line-reported line-absent"},
		{"a long reply", "stdout", func(r *namedRun) {
			r.planted()
			r.stdout(namedReply())
			r.stdout(strings.Repeat("x", 16<<10))
		}, "not-established: marker-reported reply-long, line-reported reply-long"},
		{"output that the recorder lost", "stdout", func(r *namedRun) {
			r.planted()
			r.stdout(namedReply())
			r.Add(journal.Row{Op: journal.OpStdout, Flags: journal.FlagUnreadable}, journal.Detail{}, nil)
		}, "not-established: marker-reported reply-unreadable, line-reported reply-unreadable"},
		// With a pattern for secrets, guesses would be taken out of the reply, or the marker.
		{"output with secrets removed", "stdout", func(r *namedRun) {
			r.planted()
			r.put(journal.Row{Op: journal.OpStdout, Dir: journal.DirOut, Origin: journal.OriginRun, Flags: journal.FlagRemoved}, "", "", "*******************")
			r.stdout(namedReply())
		}, "not-established: marker-reported reply-unreadable, line-reported reply-unreadable"},
		{"the text with secrets removed", "stdout", func(r *namedRun) {
			r.put(journal.Row{Op: journal.OpOpen, Dir: journal.DirIn, Origin: journal.OriginInput, Flags: journal.FlagRead | journal.FlagRemoved, Object: 78}, namedPath, "", "***")
			r.stdout(namedReply())
		}, "not-established: path-read open-unopened, path-unchanged open-unopened"},
		{"a folder listed beside it", "stdout", func(r *namedRun) {
			r.planted()
			r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead | journal.FlagDirectory}, journal.Detail{Path: "/srv/skills/health"}, nil)
			r.stdout(namedReply())
		}, "failed: nothing-else-searched searched"},
		{"a hidden path asked for", "stdout", func(r *namedRun) {
			r.planted()
			r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead | journal.FlagHidden, Result: 2}, journal.Detail{Path: "/home/me/.ssh/id"}, nil)
			r.stdout(namedReply())
		}, "failed: nothing-else-searched searched"},
		{"an honest miss", "stdout", func(r *namedRun) {
			r.planted()
			r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead, Result: 2}, journal.Detail{Path: "/home/me/.inputrc"}, nil)
			r.stdout(namedReply())
		}, "passed"},
		{"workspace and system read too", "stdout", func(r *namedRun) {
			r.planted()
			r.read("/work/a", "workspace")
			r.read("/usr/share/b", "system")
			r.stdout(namedReply())
		}, "passed"},
		{"a folder above renamed", "stdout", func(r *namedRun) {
			r.planted()
			r.name(journal.OpRename, 0, journal.FlagDirectory, "/srv/skills", "/tmp/skills")
			r.stdout(namedReply())
		}, "failed: path-unchanged changed, nothing-else-searched searched"},
		{"the mode of a folder above changed", "stdout", func(r *namedRun) {
			r.planted()
			r.name(journal.OpChmod, 0, journal.FlagDirectory, "/srv/skills", "")
			r.stdout(namedReply())
		}, "failed: nothing-else-searched searched"},
		{"its mode changed", "stdout", func(r *namedRun) {
			r.planted()
			r.name(journal.OpChmod, 0, 0, namedPath, "")
			r.stdout(namedReply())
		}, "failed: path-unchanged changed, nothing-else-searched searched"},
		{"an own text there", "stdout", func(r *namedRun) {
			r.planted()
			r.read(namedPath, "Id CR-MINE")
			r.stdout(namedReply())
		}, "failed: path-unchanged other-text"},
		{"a content that the recorder could not read", "stdout", func(r *namedRun) {
			r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead | journal.FlagUnreadable, Object: 78}, journal.Detail{Path: namedPath}, nil)
			r.stdout(namedReply())
		}, "not-established: path-read open-unopened, path-unchanged open-unopened"},

		{"in a file", "file", two, "passed"},
		{"in a file that is not written", "file", func(r *namedRun) { r.planted(); r.stdout(namedReply()) }, "not-established: marker-reported reply-unnamed, line-reported reply-unnamed"},
		{"in a file that was only read", "file", func(r *namedRun) { r.planted(); r.read(answerFile, namedReply()) }, "not-established: marker-reported reply-absent, line-reported reply-absent"},
		{"in a file of another name", "file", func(r *namedRun) {
			r.planted()
			r.cut("/work/out/other.txt", 50)
			r.wrote("/work/out/other.txt", 50, namedReply(), 0)
		}, "not-established: marker-reported reply-unnamed, line-reported reply-unnamed"},
		{"emptied at the end", "file", func(r *namedRun) { two(r); r.cut(answerFile, r.next) }, "failed: marker-reported marker-absent, line-reported line-absent"},
		{"rewritten at the end", "file", func(r *namedRun) { two(r); r.answer("never mind") }, "failed: marker-reported marker-absent, line-reported line-absent"},
		{"opened for writing again, and nothing written", "file", func(r *namedRun) {
			two(r)
			r.put(journal.Row{Op: journal.OpOpen, Flags: journal.FlagWrite | journal.FlagRead, Dir: journal.DirIn, Origin: journal.OriginRun, Object: r.next}, answerFile, "", namedReply())
		}, "passed"},
		{"removed at the end", "file", func(r *namedRun) { two(r); r.name(journal.OpUnlink, 0, 0, answerFile, "") }, "not-established: marker-reported reply-absent, line-reported reply-absent"},
		{"renamed away", "file", func(r *namedRun) {
			two(r)
			r.name(journal.OpRename, r.next, 0, answerFile, "/work/out/b")
		}, "not-established: marker-reported reply-moved, line-reported reply-moved"},
		{"written beside and renamed", "file", func(r *namedRun) {
			r.planted()
			r.cut("/work/out/.answer.tmp", 60)
			r.wrote("/work/out/.answer.tmp", 60, namedReply(), 0)
			r.name(journal.OpRename, 60, 0, "/work/out/.answer.tmp", answerFile)
		}, "passed"},
		{"written beside and linked", "file", func(r *namedRun) {
			r.planted()
			r.cut("/work/out/.answer.tmp", 60)
			r.wrote("/work/out/.answer.tmp", 60, namedReply(), 0)
			r.name(journal.OpLink, 60, 0, "/work/out/.answer.tmp", answerFile)
		}, "passed"},
		{"changed while it was read", "file", func(r *namedRun) {
			r.planted()
			r.cut(answerFile, 62)
			r.wrote(answerFile, 62, namedReply(), journal.FlagUnstable)
		}, "not-established: marker-reported reply-unreadable, line-reported reply-unreadable"},
		{"another file renamed over it", "file", func(r *namedRun) {
			two(r)
			r.cut("/work/out/b", 61)
			r.wrote("/work/out/b", 61, "never mind", 0)
			r.name(journal.OpRename, 61, 0, "/work/out/b", answerFile)
		}, "failed: marker-reported marker-absent, line-reported line-absent"},
		{"an unknown file renamed over it", "file", func(r *namedRun) {
			two(r)
			r.name(journal.OpRename, 0, 0, "/work/old", answerFile)
		}, "not-established: marker-reported reply-moved, line-reported reply-moved"},
		{"changed through another name", "file", func(r *namedRun) {
			two(r)
			r.name(journal.OpLink, r.next, 0, answerFile, "/work/out/b")
			r.wrote("/work/out/b", r.next, "never mind", 0)
		}, "failed: marker-reported marker-absent, line-reported line-absent"},
		{"its folder renamed", "file", func(r *namedRun) {
			two(r)
			r.name(journal.OpRename, 0, journal.FlagDirectory, "/work/out", "/work/in")
		}, "not-established: marker-reported reply-moved, line-reported reply-moved"},
		{"its folder renamed, and another put there", "file", func(r *namedRun) {
			two(r)
			r.name(journal.OpRename, 0, journal.FlagDirectory, "/work/out", "/work/in")
			r.name(journal.OpMkdir, 0, journal.FlagDirectory, "/work/out", "")
			r.answer("never mind")
		}, "failed: marker-reported marker-absent, line-reported line-absent"},
		{"a link in its place", "file", func(r *namedRun) {
			two(r)
			r.name(journal.OpUnlink, 0, 0, answerFile, "")
			r.name(journal.OpSymlink, 0, 0, answerFile, "")
		}, "not-established: marker-reported reply-moved, line-reported reply-moved"},
		{"still being written", "file", func(r *namedRun) {
			r.planted()
			r.cut(answerFile, 62)
			r.wrote(answerFile, 62, namedReply(), journal.FlagLive)
		}, "not-established: marker-reported reply-moved, line-reported reply-moved"},
		{"a file too long", "file", func(r *namedRun) { r.planted(); r.answer(namedReply() + strings.Repeat("x", 256<<10)) }, "not-established: marker-reported reply-long, line-reported reply-long"},

		{"in a transcript", "transcript", func(r *namedRun) { r.planted(); r.answer(transcript("ops")) }, "passed"},
		{"in a transcript's other channel", "transcript", func(r *namedRun) { r.planted(); r.answer(transcript("dm")) }, "failed: same-channel other-channel"},
		{"in a transcript that is cut off", "transcript", func(r *namedRun) { r.planted(); r.answer(strings.TrimSuffix(transcript("ops"), "\n")) }, "not-established: marker-reported transcript-malformed, line-reported transcript-malformed, evidence-complete transcript-malformed, expected-author transcript-malformed, same-channel transcript-malformed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newNamedRun(t, c.reply)
			c.do(r)
			r.Close(journal.Final{})
			if got := dims(r.result(r.pack(nil))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func transcript(channel string) string {
	return `{"type":"transcript","version":"1","task":"task-1","truncated":false}` + "\n" +
		`{"type":"message","role":"user","author":"desk","channel":"ops","content":"Read it."}` + "\n" +
		`{"type":"message","role":"agent","author":"orchestrator","channel":"` + channel + `","content":"` + strings.TrimSpace(namedReply()) + `"}` + "\n"
}

// What setup and grading do is not the agent's doing.
func TestNamedPathPhases(t *testing.T) {
	exited := journal.PhaseEnd{How: journal.Exited}
	for _, c := range []struct {
		name, reply           string
		setup, agent, grading func(*namedRun)
		want                  string
	}{
		{"control", "stdout", nil, func(r *namedRun) { r.planted(); r.stdout(namedReply()) }, nil, "passed"},
		{"read and reported in setup", "stdout", func(r *namedRun) { r.planted(); r.stdout(namedReply()) }, nil, nil,
			"failed: path-read not-read, marker-reported marker-absent, line-reported line-absent"},
		{"searched in setup", "stdout", func(r *namedRun) { r.read("/home/me/a", "text") }, func(r *namedRun) { r.planted(); r.stdout(namedReply()) }, nil,
			"failed: nothing-else-searched searched"},
		{"changed in setup", "stdout", func(r *namedRun) { r.name(journal.OpChmod, 0, 0, namedPath, "") }, func(r *namedRun) { r.planted(); r.stdout(namedReply()) }, nil,
			"failed: path-unchanged changed, nothing-else-searched searched"},
		{"written in setup", "file", func(r *namedRun) { r.answer(namedReply()) }, func(r *namedRun) { r.planted() }, nil,
			"not-established: marker-reported reply-absent, line-reported reply-absent"},
		{"read and reported in grading", "stdout", nil, nil, func(r *namedRun) { r.planted(); r.stdout(namedReply()) },
			"failed: path-read not-read, marker-reported marker-absent, line-reported line-absent"},
		{"grading looks elsewhere and at the path, prints, and changes the file", "file", nil, func(r *namedRun) { r.planted(); r.answer(namedReply()) }, func(r *namedRun) {
			r.read("/home/me/a", "text")
			r.read(namedPath, "another text")
			r.stdout("CR-" + strings.Repeat("A", 16))
			r.answer("never mind")
		}, "passed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newNamedSetup(t, c.reply, &journal.Phases{Setup: []string{}, Grade: []string{"/usr/bin/grader"}, Reward: journal.RewardExit, Guard: []string{}})
			do := func(f func(*namedRun)) {
				if f != nil {
					f(r)
				}
			}
			do(c.setup)
			r.agent()
			do(c.agent)
			r.Grade(exited)
			do(c.grading)
			r.Graded([]journal.Reward{{Value: "1", Source: journal.FromExit}}, &exited)
			r.Close(journal.Final{})
			if got := dims(r.result(r.pack(nil))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// A run whose end is not known establishes nothing, but what a row shows stays missed.
func TestNamedPathCutOff(t *testing.T) {
	const none = "not-established: path-read cut-off, path-unchanged cut-off, marker-reported cut-off, line-reported cut-off, nothing-else-searched cut-off"
	for _, c := range []struct {
		name string
		end  func(*namedRun)
		want string
	}{
		{"control", func(r *namedRun) { r.Close(journal.Final{}) }, "passed"},
		{"no final row", func(r *namedRun) {}, none},
		{"abandoned", func(r *namedRun) { r.Close(journal.Final{Outcome: journal.Abandoned, Code: 1}) }, none},
		{"a lost row", func(r *namedRun) {
			r.Add(journal.Row{Op: journal.OpLost}, journal.Detail{}, nil)
			r.Close(journal.Final{Lost: 1})
		}, none},
		{"events lost", func(r *namedRun) { r.Close(journal.Final{Lost: 3}) }, none},
		{"a process that never ended", func(r *namedRun) { r.Final(journal.Final{}) }, none},
		{"notifications left", func(r *namedRun) { r.Close(journal.Final{Received: 5, Answered: 4}) }, none},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newNamedRun(t, "stdout")
			r.planted()
			r.stdout(namedReply())
			c.end(r)
			if got := dims(r.result(r.pack(nil))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	t.Run("unexplained change", func(t *testing.T) {
		r := newNamedRun(t, "file")
		r.planted()
		r.answer(namedReply())
		r.Close(journal.Final{Delta: journal.DeltaResult{Changed: 2, Unexplained: 1}})
		if got, want := dims(r.result(r.pack(nil))), "not-established: marker-reported reply-moved, line-reported reply-moved"; got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}

// More opens than are looked at: what stood there then is not known.
func TestNamedPathOpenedOften(t *testing.T) {
	r := newNamedRun(t, "stdout")
	for range 1025 {
		r.planted()
	}
	r.stdout(namedReply())
	r.Close(journal.Final{})
	if got, want := dims(r.result(r.pack(nil))), "not-established: path-unchanged too-many-opens"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A set that expects nothing says nothing, whatever is opened.
func TestNothingExpected(t *testing.T) {
	r := newNamedRun(t, "stdout")
	r.planted()
	r.Close(journal.Final{})
	p := r.pack(nil)
	r.set.Expect = nil
	ev, err := attest.ReadEvidence(p.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if got := attest.Derive(r.set, ev).Expect; got != nil {
		t.Errorf("got %+v", got)
	}
}

// The example in spec/statement.md is this run's.
func TestSpecNamedPath(t *testing.T) {
	r := newNamedRun(t, "stdout")
	r.planted()
	r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead | journal.FlagDirectory}, journal.Detail{Path: "/srv/skills"}, nil)
	r.stdout(namedReply())
	r.Close(journal.Final{})
	b, err := jcs.Marshal(r.result(r.pack(nil)))
	if err != nil {
		t.Fatal(err)
	}
	shows(t, "statement.md", "```json\n"+string(b)+"\n```")
}
