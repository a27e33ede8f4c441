package proof

import (
	"fmt"
	"math"
	"slices"
)

// A Quorum says which witnesses of a policy cosigned a checkpoint, and whether they
// are enough.
type Quorum struct {
	// Met is whether they are enough. A quorum of none is always met.
	Met bool
	// Time is the least time, in seconds since 1970, by which the witnesses that
	// had signed were enough. It is 0 if they never were or the quorum is none.
	Time    uint64
	Signed  []string // witnesses that cosigned, in the order of the policy
	Untimed []string // witnesses that cosigned without a time: they do not count
	Got     int      // witnesses that cosigned
	Want    int      // witnesses that the policy names
}

// never is the time of what was not witnessed.
const never = math.MaxUint64

// Check holds a checkpoint against the policy. If the policy pins logs, the
// checkpoint must be verified with the key of one of them. A cosignature of a
// known witness that does not verify is an error, whatever the quorum asks for. A
// quorum that is not met is no error. The error is an *Error.
func (p *Policy) Check(v *Verified) (Quorum, error) {
	if l, ok := p.FindLog(v.log.Name()); len(p.Logs) > 0 && (!ok || l.Key != v.log) {
		return Quorum{}, refuse(StageOrigin, "a checkpoint of "+clip(v.log.Name())+", which the policy does not pin with this key", "one of a log of the policy", "")
	}
	if p.Quorum == "" {
		return Quorum{}, bad("no quorum line", "one", "quorum none asks for no witness")
	}
	q := Quorum{Want: len(p.Witnesses)}
	times := make(map[string]uint64, len(p.Witnesses)+len(p.Groups))
	for _, w := range p.Witnesses {
		times[w.Name] = never
		t, ok, err := w.Key.Verify(v)
		switch {
		case err != nil:
			return Quorum{}, err
		case ok && t == 0:
			// It says that the tree is consistent, not that it is the newest one.
			q.Untimed = append(q.Untimed, w.Name)
		case ok:
			times[w.Name] = t
			q.Signed = append(q.Signed, w.Name)
		}
	}
	q.Got = len(q.Signed)
	if p.Quorum == QuorumNone {
		q.Met = true
		return q, nil
	}
	for _, g := range p.Groups {
		t, err := g.time(times)
		if err != nil {
			return Quorum{}, err
		}
		times[g.Name] = t
	}
	t, ok := times[p.Quorum]
	if !ok {
		return Quorum{}, bad("quorum "+clip(p.Quorum), "a witness or group of the policy", "")
	}
	if t != never {
		q.Met, q.Time = true, t
	}
	return q, nil
}

// time is when K members had witnessed: the Kth smallest of their times.
func (g Group) time(times map[string]uint64) (uint64, error) {
	if g.K < 1 || g.K > len(g.Members) {
		return 0, bad(fmt.Sprintf("group %s that asks for %d of %d", clip(g.Name), g.K, len(g.Members)), "a number from 1 to that of its members", "")
	}
	all := make([]uint64, 0, len(g.Members))
	for _, m := range g.Members {
		t, ok := times[m]
		if !ok {
			return 0, bad("member "+clip(m), "a witness or group of a line before", "")
		}
		all = append(all, t)
	}
	slices.Sort(all)
	return all[g.K-1], nil
}
