package attest

import (
	"encoding/binary"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// An index finds the sealed items of a set among the digests of one run.
type index struct {
	set   *contraband.Set
	items map[[DigestSize]byte]int // run digest to item number
	in    [][]member               // item number to its places in groups
	slots int                      // places in all groups
	maybe [1 << 10]uint64          // bit set of the first two bytes of all items: most digests stop here
}

// A member is an item's place in one group. An item of two sources stands in
// both groups and is counted in each.
type member struct{ group, slot int }

func newIndex(set *contraband.Set, salt [16]byte) *index {
	places := 0
	for g := range set.Groups {
		places += len(set.Groups[g].Items) / 32
	}
	ix := &index{set: set, items: make(map[[DigestSize]byte]int, places), in: make([][]member, 0, places)}
	// Nearly every item has one place: room for that at once.
	firsts := make([]member, places)
	for g := range set.Groups {
		items := set.Groups[g].Items
		for i := 0; i+32 <= len(items); i += 32 {
			d := contraband.RunDigest(salt, [32]byte(items[i:i+32]))
			n, ok := ix.items[d]
			if !ok {
				n = len(ix.in)
				ix.items[d] = n
				ix.in = append(ix.in, firsts[n:n:n+1])
				first := binary.BigEndian.Uint16(d[:])
				ix.maybe[first/64] |= 1 << (first % 64)
			}
			ix.in[n] = append(ix.in[n], member{g, ix.slots})
			ix.slots++
		}
	}
	return ix
}

// hits returns the numbers of the sealed items among digests, in their order.
func (ix *index) hits(digests []byte) (found []int) {
	for i := 0; i+DigestSize <= len(digests); i += DigestSize {
		d := digests[i : i+DigestSize]
		first := binary.BigEndian.Uint16(d)
		if ix.maybe[first/64]&(1<<(first%64)) == 0 {
			continue
		}
		if n, ok := ix.items[[DigestSize]byte(d)]; ok {
			found = append(found, n)
		}
	}
	return found
}

// canary tells the groups of which one item anywhere makes a run DIRTY.
func canary(g *contraband.Group) bool {
	return g.Kind == contraband.KindCanary || g.Class == contraband.ClassCanary
}

// replied tells whether the model's earlier replies account for item n of group
// g, as it stands in content with these hits: they hold the item itself or, of a
// whole object, at least half of its novel part.
func (ix *index) replied(g, n int, hits []int, replies []bool) bool {
	if replies[n] {
		return true
	}
	group := &ix.set.Groups[g]
	if !group.Class.Whole() {
		return false
	}
	var novel, held int
	for _, m := range hits {
		if ix.novel(m, group.Kind) {
			novel++
			if replies[m] {
				held++
			}
		}
	}
	return novel > 0 && 2*held >= novel
}

// novel tells whether item n is a part of an object of this kind.
func (ix *index) novel(n int, kind contraband.Kind) bool {
	for _, m := range ix.in[n] {
		if group := &ix.set.Groups[m.group]; group.Kind == kind && !group.Class.Whole() {
			return true
		}
	}
	return false
}

// classNames are the names of item classes in statements and on screen.
var classNames = map[contraband.Class]string{
	contraband.ClassCanary:    "canary",
	contraband.ClassRaw:       "object-raw",
	contraband.ClassCanonical: "object-canonical",
	contraband.ClassShingle:   "fragment",
	contraband.ClassShingle24: "fragment-24",
	contraband.ClassLine:      "line",
	contraband.ClassAtom:      "token",
}

// classScope is the class of a match that is no content but an access.
const classScope = "access"

// classFootprint is the class of a match that is a change out of the footprint.
const classFootprint = "footprint"

// classGuard is the class of a match that is a verdict or grader file.
const classGuard = "guard"

// ClassName is the name of an item class in statements and on screen.
func ClassName(c contraband.Class) string { return classNames[c] }

// dirtyReason is why items of a class that came in make a run DIRTY.
func dirtyReason(g *contraband.Group) string {
	switch {
	case g.Kind.OncePerTask():
		return ReasonNamed
	case g.Class.Whole():
		return ReasonObject
	case g.Class == contraband.ClassLine:
		return ReasonLines
	case g.Class == contraband.ClassAtom:
		return ReasonTokens
	}
	return ReasonFragments
}
