package attest

import (
	"cmp"
	"slices"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// A slot is what happened to one item of one group, over the setup and agent
// phase.
type slot struct {
	inbound   bool // came in from input, network or driver, no reply accounting for it
	network   bool // came in from the network
	authored  bool // the run wrote it, nothing inbound before
	generated bool // a parsed reply accounts for it
	seen      bool // anywhere, whatever the way
}

// A tally counts the distinct items of one group, and where they stood first.
type tally struct {
	inbound, network, authored, explained, seen     uint64
	firstIn, firstNetwork, firstAuthored, firstSeen uint64
	spoken                                          bool // the model had spoken before the first authored item
}

// A way is how content with an item went.
type way uint8

const (
	waySeen way = iota // canaries: any
	wayIn
	wayNetwork
	wayAuthored
)

// A sight is a row that holds items of a group. It becomes a match if the group
// becomes a reason.
type sight struct {
	event uint64
	group int
	way   way
}

// content walks the contents of the setup and agent phase in order. Nothing
// counts in the grade phase, where sealed paths may be read.
func (j *judge) content() {
	j.slots = make([]slot, j.ix.slots)
	j.tallies = make([]tally, len(j.ix.set.Groups))
	replies := make([]bool, len(j.ix.in))  // items in the replies so far
	hits := make([][]int, len(j.ev.bases)) // per entry, computed once
	computed := make([]bool, len(j.ev.bases))
	j.ev.walk(func(seq uint64, e *event) {
		if e.entry == nil || e.phase == journal.PhaseGrade {
			return
		}
		if e.origin == journal.OriginReply {
			j.replied = true
		}
		j.spoken = j.spoken || e.origin == journal.OriginModel && e.size > 0
		if e.base == noBase {
			return
		}
		if !computed[e.base] {
			hits[e.base], computed[e.base] = j.ix.hits(j.ev.bases[e.base].digests), true
		}
		found := hits[e.base]
		if len(found) == 0 {
			return
		}
		from := len(j.sights)
		for _, n := range found {
			for _, m := range j.ix.in[n] {
				replied := j.ix.replied(m.group, n, found, replies)
				j.enter(seq, e, m, replied)
			}
		}
		if e.origin == journal.OriginReply {
			for _, n := range found {
				replies[n] = true
			}
		}
		j.sights = append(j.sights[:from], distinct(j.sights[from:])...)
	})
}

func distinct(s []sight) []sight {
	slices.SortFunc(s, func(a, b sight) int { return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.way, b.way)) })
	return slices.Compact(s)
}

// enter counts that row seq holds an item of a group. replied says that earlier
// replies account for it.
func (j *judge) enter(seq uint64, e *event, m member, replied bool) {
	s, t := &j.slots[m.slot], &j.tallies[m.group]
	see := func(done *bool, n, first *uint64, w way) {
		if !*done {
			*done = true
			if *n == 0 {
				*first = seq
			}
			*n++
		}
		j.sights = append(j.sights, sight{seq, m.group, w})
	}
	see(&s.seen, &t.seen, &t.firstSeen, waySeen)
	switch e.origin {
	case journal.OriginReply:
		s.generated = true
	case journal.OriginModel:
		// Opaque: only canaries count, and those by being seen.
	case journal.OriginRun:
		if s.inbound {
			return // what came in and is written again was counted when it came in
		}
		if !s.authored && replied {
			s.generated = true
			t.explained++
		}
		if t.authored == 0 {
			t.spoken = j.spoken
		}
		see(&s.authored, &t.authored, &t.firstAuthored, wayAuthored)
	case journal.OriginDriver:
		if replied {
			s.generated = true // the harness handed the model's own words back
			return
		}
		see(&s.inbound, &t.inbound, &t.firstIn, wayIn)
	case journal.OriginNetwork:
		see(&s.network, &t.network, &t.firstNetwork, wayNetwork)
		see(&s.inbound, &t.inbound, &t.firstIn, wayIn)
	default:
		// OriginInput, whatever came before. An origin that this version does
		// not know is judged like it.
		see(&s.inbound, &t.inbound, &t.firstIn, wayIn)
	}
}

// groups compares each group's tally with its limit.
func (j *judge) groups() {
	chosen := make([][]string, len(j.ix.set.Groups)) // by group and way: the reason
	for g := range j.ix.set.Groups {
		group, t := &j.ix.set.Groups[g], &j.tallies[g]
		chosen[g] = make([]string, wayAuthored+1)
		decide := func(w way, reason string, event, found uint64) {
			chosen[g][w] = reason
			j.note(reason, event, found)
			j.out.Findings = append(j.out.Findings, Finding{
				Reason: reason, Event: event, Kind: group.Kind, Class: group.Class,
				Found: found, Of: uint64(len(group.Items) / 32), Limit: group.Threshold,
			})
		}
		if canary(group) {
			if t.seen > 0 {
				decide(waySeen, ReasonCanary, t.firstSeen, t.seen)
			}
			continue
		}
		limit := uint64(group.Threshold)
		came, event, w := t.inbound, t.firstIn, wayIn
		if group.Kind.OncePerTask() {
			// The prompt, the harness and the run itself may name the task.
			came, event, w = t.network, t.firstNetwork, wayNetwork
		}
		switch {
		case came > 0 && came >= limit:
			decide(w, dirtyReason(group), event, came)
			continue
		case came > 0:
			decide(w, ReasonTrace, event, came)
		}
		if t.authored == 0 || t.authored < limit || group.Kind.OncePerTask() {
			continue
		}
		if reason := j.authored(group, t); reason != "" {
			decide(wayAuthored, reason, t.firstAuthored, t.authored)
		}
	}
	for _, s := range j.sights {
		if reason := chosen[s.group][s.way]; reason != "" {
			j.out.Matches = append(j.out.Matches, Match{s.event, ClassName(j.ix.set.Groups[s.group].Class), reason})
		}
	}
	j.items()
}

// authored says why content that the run wrote is not accounted for, or "". With
// parsed replies these must hold at least half of it, an opaque channel beside
// them or not. Without, a declared model channel may be its source, if anything
// came through it before: a silent model wrote nothing.
func (j *judge) authored(group *contraband.Group, t *tally) string {
	if j.replied {
		if 2*t.explained < t.authored || group.Class.Whole() && t.explained < t.authored {
			return ReasonUnexplained
		}
		return ""
	}
	for _, c := range j.ev.start.Channels {
		if c.Role == roleModel && t.spoken {
			return ""
		}
	}
	return ReasonAuthored
}

// items counts distinct items over all groups.
func (j *judge) items() {
	c := &j.out.Counts
	for _, members := range j.ix.in {
		var any struct{ canary, named, inbound, authored, generated bool }
		for _, m := range members {
			s, group := &j.slots[m.slot], &j.ix.set.Groups[m.group]
			switch {
			case canary(group):
				any.canary = any.canary || s.seen
			case group.Kind.OncePerTask():
				any.named = any.named || s.seen
			default:
				any.inbound = any.inbound || s.inbound
				any.authored = any.authored || s.authored && !s.generated
				any.generated = any.generated || s.generated
			}
		}
		count(&c.Canaries, any.canary)
		count(&c.Named, any.named)
		count(&c.Inbound, any.inbound)
		count(&c.Authored, any.authored)
		count(&c.Generated, any.generated)
	}
}

func count(n *uint64, yes bool) {
	if yes {
		*n++
	}
}
