package main

// A Change is one line of the result: ' ' stayed, '-' went, '+' came.
type Change struct {
	Kind byte
	Text string
}

// Diff returns how b is made of a, with as few '-' and '+' as can be. If there
// are several ways, a line stays as early as it can: in a first, then in b. In a
// block of changes all '-' stand before all '+'.
func Diff(a, b []string) []Change {
	var out []Change
	j := 0
	for _, line := range a {
		k := j
		for k < len(b) && b[k] != line {
			k++
		}
		if k == len(b) {
			out = append(out, Change{'-', line})
			continue
		}
		for ; j < k; j++ {
			out = append(out, Change{'+', b[j]})
		}
		out = append(out, Change{' ', line})
		j++
	}
	for ; j < len(b); j++ {
		out = append(out, Change{'+', b[j]})
	}
	return out
}
