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
func newNamedRun(t testing.TB, reply string) *namedRun {
	t.Helper()
	r := newNamedSetup(t, reply, nil)
	r.agent()
	return r
}

// agent begins the agent phase.
func (r *namedRun) agent() {
	r.Phase = journal.PhaseAgent
	r.Argv(true, fixture.Content{Size: 40})
}

// newNamedSetup starts one in its setup phase. phases may be nil.
func newNamedSetup(t testing.TB, reply string, phases *journal.Phases) *namedRun {
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
	})
	if err != nil {
		t.Fatal(err)
	}
	r := &namedRun{t: t, set: set, text: map[uint64]string{}, next: 1000}
	commit := expect.Commit(journal.Secret{7}.Marker())
	r.Run = fixture.NewRun(set, sha256.Sum256(nil), func(s *journal.Start) { s.Marker, s.Phases = commit[:], phases })
	r.Control()
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

// statement is that of a pack.
func (r *namedRun) statement(p *fixture.Pack) []byte {
	r.t.Helper()
	a, err := attest.Build(r.set, nil, p.Bytes(), nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return a.Bytes
}

// result derives what was expected.
func (r *namedRun) result(p *fixture.Pack) *expect.Result {
	r.t.Helper()
	parsed, err := attest.ParseStatement(r.statement(p))
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
