package attest

import (
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// expected judges what the set expects of a named path (spec/expect.md), nil if it
// expects nothing. It is no part of the verdict. Whatever an opening could show and none
// does is not established: leaving one out cannot turn a miss into a hit.
func expected(set *contraband.Set, ev *Evidence) *expect.Result {
	e := set.Expect
	if e == nil {
		return nil
	}
	spec := expect.Spec{
		Task: ev.start.Task, Template: e.Template, Line: e.Line, Reply: e.Reply, Agent: e.Agent, Channel: e.Channel,
	}
	n := NewNamed(e, ev.start, ev.digestOf(ReplyFile(e, ev.start)))
	ev.items(0, func(_ uint64, it *item) bool {
		n.Add(parsed(it.row))
		return true
	})
	return expect.Judge(spec, n.facts(ev))
}

// digestOf is the digest of a path that the openings show, else zero.
func (e *Evidence) digestOf(path string) (digest [32]byte) {
	o := e.trailer.Openings
	if o == nil || path == "" {
		return digest
	}
	i, ok := slices.BinarySearchFunc(o.Paths, path, func(p OpenedPath, path string) int { return strings.Compare(p.Path, path) })
	if !ok {
		return digest
	}
	return scope.Digest(o.Paths[i].Key, path)
}

// facts are what the rows and their openings show together.
func (n *Named) facts(ev *Evidence) expect.Facts {
	f := expect.Facts{Cut: n.cut || !whole(ev.final), More: n.more, Changed: n.change, Searched: n.search}
	if o := ev.trailer.Openings; o != nil && len(o.Marker) == 32 {
		seed := [32]byte(o.Marker)
		f.Seed = &seed
	}
	for _, seq := range n.opens {
		o := expect.Open{Event: seq, Read: n.reads[seq]}
		if row, ok := ev.named.rows[seq]; ok && len(row.detail.SHA256) == 32 && !n.hidden[seq] {
			o.Shown, o.SHA256 = true, [32]byte(row.detail.SHA256)
		}
		f.Opens = append(f.Opens, o)
	}
	if n.file == nil {
		n.out.reply(ev, &f)
		return f
	}
	v, why := n.file.final()
	f.Replied, f.Missing = v.seq, why
	if why == "" && ev.final != nil && ev.final.Delta.Unexplained > 0 {
		f.Missing = expect.WhyMoved // by whom nobody saw
	}
	if f.Missing == "" && v.size > 0 {
		f.Reply, f.Missing = ev.contentOf(v.seq)
	}
	return f
}

// reply puts standard output together.
func (s *stdoutRows) reply(ev *Evidence, f *expect.Facts) {
	switch {
	case s.unreadable:
		f.Missing = expect.WhyUnreadable
	case s.bytes > maxStdout:
		f.Missing = expect.WhyLong
	}
	var text strings.Builder
	for _, seq := range s.rows {
		if f.Missing != "" {
			return
		}
		var part string
		part, f.Missing = ev.contentOf(seq)
		text.WriteString(part)
		f.Replied = seq
		f.Parts = append(f.Parts, expect.Part{Event: seq, End: text.Len()})
	}
	f.Reply = text.String()
}

// contentOf is the content of a row, or why it is not there.
func (e *Evidence) contentOf(seq uint64) (string, expect.Why) {
	row, ok := e.named.rows[seq]
	if !ok || row.content == nil {
		return "", expect.WhyNotShown
	}
	return string(*row.content), ""
}

// whole tells whether a journal's end says that nothing of the run is missing.
func whole(f *journal.Final) bool {
	if f == nil || f.Outcome == journal.Abandoned || f.Lost > 0 || f.Born != f.Ended {
		return false
	}
	done := f.Answered + f.Void
	return done >= f.Answered && done == f.Received
}
