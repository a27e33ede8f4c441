package attest_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

const (
	namedPath  = "/srv/skills/health/SKILL.md"
	namedText  = "Id {{cleanrun.marker}}.\nRotate the stale context.\n"
	namedLine  = "Rotate the stale context."
	answerFile = "/work/out/answer.txt"
)

// namedMarker is that of a run of the fixture.
var namedMarker = expect.Marker(journal.Secret{7}.Marker())

func namedReply() string { return namedMarker + ": rotate the stale context\n" }

// A namedRun is a run with a named path, with its contents.
type namedRun struct {
	*fixture.Run
	t    testing.TB
	set  *contraband.Set
	text map[uint64]string // of rows with content
	next uint32            // object
}

// newNamedRun starts one. reply is "stdout", "file" or "transcript".
func newNamedRun(t testing.TB, reply string, edit func(*contraband.Set)) *namedRun {
	t.Helper()
	set, err := fixture.Set(fixture.Groups(), func(s *contraband.Set) {
		s.Scope.Grants = []contraband.Grant{{Path: namedPath, Mode: uint8(scope.ReadOne)}}
		e := &contraband.Expect{Read: namedPath, Template: namedText, Line: namedLine, Reply: expect.Stdout}
		switch reply {
		case "file":
			e.Reply, e.File = expect.File, "out/answer.txt"
		case "transcript":
			e.Reply, e.File, e.Agent, e.Channel = expect.Transcript, "out/answer.txt", "orchestrator", "ops"
		}
		s.Expect = e
		if edit != nil {
			edit(s)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &namedRun{t: t, set: set, text: map[uint64]string{}, next: 1000}
	commit := expect.Commit(journal.Secret{7}.Marker())
	r.Run = fixture.NewRun(set, sha256.Sum256(nil), func(s *journal.Start) { s.Marker = commit[:] })
	r.Control()
	r.Phase = journal.PhaseAgent
	r.Argv(true, fixture.Content{Size: 40})
	return r
}

// put adds a row with a content.
func (r *namedRun) put(row journal.Row, path, path2, text string) uint64 {
	sum := sha256.Sum256([]byte(text))
	d := journal.Detail{Path: path, Path2: path2, SHA256: sum[:]}
	seq := r.Add(row, d, &fixture.Content{Size: uint64(len(text)), Filler: 1})
	r.text[seq] = text
	return seq
}

// read opens a file that holds text for reading.
func (r *namedRun) read(path, text string) uint64 {
	r.next++
	return r.put(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead, Dir: journal.DirIn, Origin: journal.OriginInput, Object: r.next}, path, "", text)
}

// planted reads the named path as it was planted.
func (r *namedRun) planted() uint64 {
	return r.read(namedPath, expect.Plant(namedText, journal.Secret{7}.Marker()))
}

func (r *namedRun) stdout(text string) uint64 {
	return r.put(journal.Row{Op: journal.OpStdout, Dir: journal.DirOut, Origin: journal.OriginRun}, "", "", text)
}

// cut opens a file with truncation, as object.
func (r *namedRun) cut(path string, object uint32) uint64 {
	return r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagWrite | journal.FlagTrunc, Object: object}, journal.Detail{Path: path}, nil)
}

// wrote dates what the run wrote into an object.
func (r *namedRun) wrote(path string, object uint32, text string, flags journal.Flags) uint64 {
	return r.put(journal.Row{Op: journal.OpWrote, Dir: journal.DirOut, Origin: journal.OriginRun, Object: object, Flags: flags}, path, "", text)
}

// name is an operation on names that succeeded.
func (r *namedRun) name(op journal.Op, object uint32, flags journal.Flags, path, path2 string) uint64 {
	row := journal.Row{Op: op, Object: object, Flags: flags}
	switch op {
	case journal.OpRename, journal.OpLink, journal.OpSymlink, journal.OpMkdir:
		row.Flags, row.Dir, row.Origin = row.Flags|journal.FlagText, journal.DirOut, journal.OriginRun
		return r.Add(row, journal.Detail{Path: path, Path2: path2, Text: []byte("name")}, &fixture.Content{Size: 4, Canonical: 4})
	}
	return r.Add(row, journal.Detail{Path: path, Path2: path2}, nil)
}

// answer writes the reply into its file.
func (r *namedRun) answer(text string) uint64 {
	r.next++
	r.cut(answerFile, r.next)
	return r.wrote(answerFile, r.next, text, 0)
}

// pack opens what the attester must open. keep, which may be nil, says which row, "path" or "marker".
func (r *namedRun) pack(keep func(string) bool) *fixture.Pack {
	r.t.Helper()
	p, err := r.Pack()
	if err != nil {
		r.t.Fatal(err)
	}
	if keep == nil {
		keep = func(string) bool { return true }
	}
	start, err := journal.ParseRow(p.Items[0].Row)
	if err != nil {
		r.t.Fatal(err)
	}
	file, named := attest.ReplyFile(r.set.Expect, start.Start), false
	var digest [32]byte
	if file != "" {
		digest = scope.Digest(scope.Key(journal.Secret{7}.PathKey(), file), file)
	}
	n := attest.NewNamed(r.set.Expect, start.Start, digest)
	for _, it := range p.Items {
		row, err := journal.ParseRow(it.Row)
		if err != nil {
			r.t.Fatal(err)
		}
		named = named || row.Path != nil && row.Path.Digest == digest || row.Path2 != nil && row.Path2.Digest == digest
		n.Add(&row)
	}
	p.Trailer.Openings = new(attest.Openings)
	if keep("marker") {
		seed := journal.Secret{7}.Marker()
		p.Trailer.Openings.Marker = seed[:]
	}
	if named && keep("path") {
		r.OpenPaths(p, file)
	}
	for _, one := range n.Rows() {
		if !keep(fmt.Sprint(one.Seq)) {
			continue
		}
		var content []byte
		if one.Content {
			content = []byte(r.text[one.Seq])
		}
		if err := r.OpenRow(p, one.Seq, content); err != nil {
			r.t.Fatal(err)
		}
	}
	if o := p.Trailer.Openings; len(o.Marker)+len(o.Paths)+len(o.Rows) == 0 {
		p.Trailer.Openings = nil
	}
	return p
}

// result derives what was expected.
func (r *namedRun) result(p *fixture.Pack) *expect.Result {
	r.t.Helper()
	a, err := attest.Build(r.set, nil, p.Bytes(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	parsed, err := attest.ParseStatement(a.Bytes)
	if err != nil {
		r.t.Fatal(err)
	}
	return parsed.Predicate.Expect
}

// dims is a result in one line, without what is met.
func dims(r *expect.Result) string {
	parts := []string{}
	for _, d := range r.Dimensions {
		if d.State != expect.Met {
			parts = append(parts, fmt.Sprintf("%s %s", d.Name, d.Why))
		}
	}
	return strings.TrimSuffix(string(r.Outcome)+": "+strings.Join(parts, ", "), ": ")
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
		{"in a file that is not written", "file", func(r *namedRun) { r.planted(); r.stdout(namedReply()) }, "not-established: marker-reported reply-unopened, line-reported reply-unopened"},
		{"in a file that was only read", "file", func(r *namedRun) { r.planted(); r.read(answerFile, namedReply()) }, "not-established: marker-reported reply-absent, line-reported reply-absent"},
		{"in a file of another name", "file", func(r *namedRun) {
			r.planted()
			r.cut("/work/out/other.txt", 50)
			r.wrote("/work/out/other.txt", 50, namedReply(), 0)
		}, "not-established: marker-reported reply-unopened, line-reported reply-unopened"},
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
			r := newNamedRun(t, c.reply, nil)
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
			r := newNamedRun(t, "stdout", nil)
			r.planted()
			r.stdout(namedReply())
			c.end(r)
			if got := dims(r.result(r.pack(nil))); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
	t.Run("unexplained change", func(t *testing.T) {
		r := newNamedRun(t, "file", nil)
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
	r := newNamedRun(t, "stdout", nil)
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
	r := newNamedRun(t, "stdout", nil)
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
