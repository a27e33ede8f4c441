package audit

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/verify"
)

// across looks for what only several submissions together show, and for a
// journal that one submission uses twice.
func across(r *Report, o *Options) {
	r.Seal = expectedSeal(r.Submissions, o)
	for _, s := range r.Submissions {
		if s.statement == nil || r.Seal == "" || s.statement.Predicate.Benchmark.Head == r.Seal {
			continue
		}
		// A seal of the runner's own making is reported as such.
		if s.found[SealedByJudged] > 0 {
			continue
		}
		why := "the one that the audit was given"
		if o.Seal == nil {
			why = "the one of most submissions"
		}
		s.find(SealOther, -1, "", "the submission is under %s, want %s, %s", headName(s.statement.Predicate.Benchmark.Head), headName(r.Seal), why)
	}
	reused(r.Submissions)
	splitViews(r.Submissions)
}

// expectedSeal is the head that submissions are compared with: the given one, or
// the one that most of them with a pinned owner are under; of two that are
// equally frequent the one that comes first.
func expectedSeal(list []*Submission, o *Options) string {
	if o.Seal != nil {
		return hexOf(*o.Seal)
	}
	votes := map[string]int{}
	best := ""
	for _, s := range list {
		if s.statement == nil || !s.Owner.Pinned || s.found[SealedByJudged] > 0 {
			continue
		}
		votes[s.statement.Predicate.Benchmark.Head]++
	}
	for _, s := range list {
		if s.statement == nil {
			continue
		}
		if head := s.statement.Predicate.Benchmark.Head; votes[head] > votes[best] {
			best = head
		}
	}
	return best
}

// A use is one cell that a journal stands for.
type use struct {
	s    *Submission
	cell int
}

func (u use) String() string {
	p := &u.s.statement.Predicate
	return fmt.Sprintf("%s of %s (agent %q, model %q)", p.Grid[u.cell].Name(), u.s.Dir, p.Agent.Name, p.Model.Name)
}

// reused finds journals that stand for more than one cell. A journal has one run
// id and one root; either twice is one journal twice, or two that claim to be. A
// run id is compared within one signer's submissions only: everybody can read it
// and give it to a run, so it says nothing against whoever had it first.
func reused(list []*Submission) {
	uses := map[string][]use{}
	for _, s := range list {
		if s.statement == nil {
			continue
		}
		for i := range s.facts {
			if c := &s.statement.Predicate.Grid[i]; c.State.Attested() {
				run, root := fmt.Sprintf("run %s%s%x", c.Run, signedBy, s.signer.Key), "root "+c.Root
				uses[run], uses[root] = append(uses[run], use{s, i}), append(uses[root], use{s, i})
			}
		}
	}
	told := map[use]bool{}
	for _, key := range sortedKeys(uses) {
		group := uses[key]
		if len(group) < 2 {
			continue
		}
		key, _, _ = strings.Cut(key, signedBy)
		owners, keys := ownersOf(group)
		for _, u := range group {
			id := charge(u, owners, keys)
			if told[u] || id == "" {
				continue
			}
			told[u] = true
			i := slices.IndexFunc(group, func(other use) bool { return other != u })
			u.s.at(id, u.cell, "%s also stands for %s", key, group[i])
			if id == HeadDisputed {
				continue
			}
			a, b := &u.s.statement.Predicate, &group[i].s.statement.Predicate
			if (a.Agent.Name != b.Agent.Name || a.Model.Name != b.Model.Name) && u.s.fitsAgent(u.cell) {
				u.s.at(ReceiptOtherAgent, u.cell, "%s is also claimed for agent %q, model %q, by %s", key, b.Agent.Name, b.Model.Name, group[i].s.Dir)
			}
		}
	}
}

// fitsAgent tells whether a receipt's own agent and model are not reported yet as
// others than the submission's.
func (s *Submission) fitsAgent(cell int) bool {
	return !slices.ContainsFunc(s.Findings, func(f Finding) bool { return f.ID == ReceiptOtherAgent && f.cell == cell })
}

// signedBy separates a run id from its signer in a key of uses.
const signedBy = " by "

// charge is the finding against one use, "" for none. A use owns the run if it is
// by the key that signed the receipt, for the receipt's agent and model. The only
// owner is not charged: the others took its run. Of owners with several keys all but
// one have signed what another recorded, and nothing here tells which.
func charge(u use, owners, keys int) string {
	switch {
	case !u.owns():
		return HeadReused
	case owners == 1:
		return ""
	case keys > 1:
		return HeadDisputed
	}
	return HeadReused
}

// ownersOf counts the uses that own a run, and their keys.
func ownersOf(group []use) (owners, keys int) {
	known := map[[32]byte]bool{}
	for _, g := range group {
		if g.owns() {
			owners++
			known[g.s.signer.Key] = true
		}
	}
	return owners, len(known)
}

func (u use) owns() bool {
	f, p := &u.s.facts[u.cell], &u.s.statement.Predicate
	return f.known && f.fits && f.runner.Key == u.s.signer.Key && u.s.signer != (verify.Signatory{}) &&
		f.agent == p.Agent.Name && f.model == p.Model.Name
}
