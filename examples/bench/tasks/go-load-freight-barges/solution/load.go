package main

import "sort"

// A cargo is a group of crates that travel together.
type cargo struct {
	names  []string // sorted
	kinds  map[string]bool
	weight int
	stuck  bool // one of them must travel with a crate that is not there
}

// Load says which crate goes onto which barge, and which stay behind.
func Load(barges []Barge, crates []Crate) (onto map[string]string, left []string) {
	onto = map[string]string{}
	room := make([]int, len(barges))
	aboard := make([]map[string]bool, len(barges))
	for i, b := range barges {
		room[i], aboard[i] = b.Room, map[string]bool{}
	}
	for _, c := range groups(crates) {
		best := -1
		for i := range barges {
			if !c.stuck && room[i] >= c.weight && (best < 0 || room[i] < room[best]) && !apart(c.kinds, aboard[i]) {
				best = i
			}
		}
		if best < 0 || apart(c.kinds, c.kinds) {
			left = append(left, c.names...)
			continue
		}
		room[best] -= c.weight
		for kind := range c.kinds {
			aboard[best][kind] = true
		}
		for _, name := range c.names {
			onto[name] = barges[best].Name
		}
	}
	sort.Strings(left)
	return onto, left
}

// apart says whether a kind of one side must be kept from one of the other.
func apart(a, b map[string]bool) bool {
	for x := range a {
		for y := range b {
			if forbidden(x, y) || forbidden(y, x) {
				return true
			}
		}
	}
	return false
}

func forbidden(x, y string) bool {
	return x == "acid" && (y == "food" || y == "metal") || x == "live" && y != "live"
}

// groups joins crates by With and returns them in the order of loading.
func groups(crates []Crate) []*cargo {
	of := map[string]*cargo{}
	for _, c := range crates {
		of[c.Name] = &cargo{names: []string{c.Name}, kinds: map[string]bool{c.Kind: true}, weight: c.Weight}
	}
	for _, c := range crates {
		a, b := of[c.Name], of[c.With]
		switch {
		case c.With == "" || a == b:
			continue
		case b == nil:
			a.stuck = true
			continue
		}
		a.names = append(a.names, b.names...)
		a.weight += b.weight
		a.stuck = a.stuck || b.stuck
		for kind := range b.kinds {
			a.kinds[kind] = true
		}
		for _, name := range b.names {
			of[name] = a
		}
	}
	var out []*cargo
	seen := map[*cargo]bool{}
	for _, c := range crates {
		if g := of[c.Name]; !seen[g] {
			seen[g] = true
			sort.Strings(g.names)
			out = append(out, g)
		}
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].weight != out[j].weight {
			return out[i].weight > out[j].weight
		}
		return out[i].names[0] < out[j].names[0]
	})
	return out
}
