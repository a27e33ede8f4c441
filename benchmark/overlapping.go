package benchmark

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/seal"
)

// firstOwners bounds the pairs of tasks that are compared for one item: what
// very many tasks share is in the first of them too.
const firstOwners = 8

// An overlap is one finding. Task numbers are places in names.
type overlap struct {
	task int32
	err  *OverlapError
}

// findings are all overlaps, in the order of tasks, at most one of a kind for
// each task, and what many tasks' tests share. Items that stand in a task's own
// workspace or prompt are not its answer.
func (o *overlaps) findings(names []string) (given, same []overlap, warnings []string) {
	own := o.ownGiven()
	// What objects hold of other tasks.
	slices.SortStableFunc(o.held, func(a, b holding) int { return cmp.Or(cmp.Compare(a.task, b.task), cmp.Compare(a.name, b.name)) })
	for _, h := range o.held {
		met := map[int32]*classCounts{}
		for _, head := range h.hits {
			for e, end := head, o.end(head); e < end; e++ {
				if p := o.owners[e].pile; o.piles[p].task != h.task && !own[e] {
					if met[p] == nil {
						met[p] = new(classCounts)
					}
					met[p][o.owners[head].class]++
				}
			}
		}
		var found *OverlapError
		others := map[int32]bool{}
		for _, p := range sortedPiles(met) {
			pile := &o.piles[p]
			if class, limit, ok := pile.over(met[p]); ok {
				others[pile.task] = true
				if found == nil {
					found = &OverlapError{Other: names[pile.task], Object: h.name, Source: pile.label, What: seal.What(class), Hits: met[p][class], Threshold: limit}
				}
			}
		}
		if found != nil {
			found.More = len(others) - 1
			given = append(given, overlap{h.task, found})
		}
	}
	same, warnings = o.twins(names, own)
	return firstOfEach(given), firstOfEach(same), warnings
}

// ownGiven tells of each owner whether its own task gives the item away, in its
// prompt or workspace, so that it is no answer.
func (o *overlaps) ownGiven() []bool {
	own := make([]bool, len(o.owners))
	for _, h := range o.held {
		for _, head := range h.hits {
			for e, end := head, o.end(head); e < end; e++ {
				if o.piles[o.owners[e].pile].task == h.task {
					own[e] = true
				}
			}
		}
	}
	return own
}

func sortedPiles(met map[int32]*classCounts) []int32 {
	var list []int32
	for p := range met { // sorted below
		list = append(list, p)
	}
	slices.Sort(list)
	return list
}

// twins finds pairs of tasks with the same ground truth. The same reference is
// the same answer. Tests may share files, such as a script that starts them:
// that is only said.
func (o *overlaps) twins(names []string, own []bool) (same []overlap, warnings []string) {
	type pair struct{ pile, task int32 }
	met := map[pair]*classCounts{}
	for head, next := int32(0), int32(0); int(head) < len(o.owners); head = next {
		if next = o.end(head); next == head+1 {
			continue
		}
		var first []int32 // tasks
		for e, end := head, o.end(head); e < end; e++ {
			if t := o.piles[o.owners[e].pile].task; !own[e] && !slices.Contains(first, t) {
				first = append(first, t)
			}
		}
		slices.Sort(first)
		first = first[:min(len(first), firstOwners)]
		for e, end := head, o.end(head); e < end; e++ {
			p := o.owners[e].pile
			for _, t := range first {
				if own[e] || t >= o.piles[p].task { // the later of two is named
					continue
				}
				k := pair{p, t}
				if met[k] == nil {
					met[k] = new(classCounts)
				}
				met[k][o.owners[head].class]++
			}
		}
	}
	var pairs []pair
	for k := range met { // sorted below
		pairs = append(pairs, k)
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Or(cmp.Compare(a.pile, b.pile), cmp.Compare(a.task, b.task)) })
	tests := map[int32]bool{}
	var example pair
	for _, k := range pairs {
		pile := &o.piles[k.pile]
		class, limit, ok := pile.over(met[k])
		switch {
		case !ok:
		case pile.kind == contraband.KindReference:
			same = append(same, overlap{pile.task, &OverlapError{Other: names[k.task], Source: pile.label, What: seal.What(class), Hits: met[k][class], Threshold: limit}})
		default:
			if len(tests) == 0 {
				example = k
			}
			tests[pile.task] = true
		}
	}
	if len(tests) > 0 {
		pile := &o.piles[example.pile]
		warnings = append(warnings, fmt.Sprintf("%d tasks share tests or canaries with an earlier one, such as %s of %q with %q: a run of one shows them to whoever solves the other", len(tests), pile.label, names[pile.task], names[example.task]))
	}
	return same, warnings
}

// firstOfEach keeps the first finding of each task and counts the others in it.
func firstOfEach(list []overlap) (out []overlap) {
	slices.SortStableFunc(list, func(a, b overlap) int { return cmp.Compare(a.task, b.task) })
	for _, f := range list {
		if n := len(out); n > 0 && out[n-1].task == f.task {
			if out[n-1].err.Other != f.err.Other {
				out[n-1].err.More++
			}
			continue
		}
		out = append(out, f)
	}
	return out
}
