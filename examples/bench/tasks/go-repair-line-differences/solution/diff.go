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
	// What is common at the end is left out of the table. At the beginning too:
	// a line that can stay at the first place of both stays as early as it can.
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out []Change
	for _, line := range a[:head] {
		out = append(out, Change{' ', line})
	}
	// The end is cut off only where no earlier place could be taken instead, so
	// the table goes to the end if a line of the tail appears before it as well.
	m, n := a[head:], b[head:]
	if tail > 0 && !appears(a[len(a)-tail:], a[head:len(a)-tail], b[head:len(b)-tail]) {
		m, n = a[head:len(a)-tail], b[head:len(b)-tail]
	} else {
		tail = 0
	}
	out = append(out, middle(m, n)...)
	for _, line := range a[len(a)-tail:] {
		out = append(out, Change{' ', line})
	}
	return out
}

// appears says whether one of the lines is in one of the texts.
func appears(lines []string, texts ...[]string) bool {
	set := map[string]bool{}
	for _, line := range lines {
		set[line] = true
	}
	for _, text := range texts {
		for _, line := range text {
			if set[line] {
				return true
			}
		}
	}
	return false
}

// middle fills the table of longest common subsequences: longest[i][j] is the
// length for a[i:] and b[j:]. Two bytes a cell hold 65,535 lines.
func middle(a, b []string) []Change {
	longest := make([][]uint16, len(a)+1)
	for i := range longest {
		longest[i] = make([]uint16, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				longest[i][j] = longest[i+1][j+1] + 1
			} else {
				longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			}
		}
	}
	var out, came []Change
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		// The first place in b where a[i] can stay without making it shorter.
		k := j
		for i < len(a) && k < len(b) && longest[i][k] == longest[i][j] && a[i] != b[k] {
			k++
		}
		if i < len(a) && k < len(b) && longest[i][k] == longest[i][j] && longest[i][j] > 0 {
			for ; j < k; j++ {
				came = append(came, Change{'+', b[j]})
			}
			out = append(append(out, came...), Change{' ', a[i]})
			came = nil
			i, j = i+1, j+1
			continue
		}
		if i < len(a) {
			out = append(out, Change{'-', a[i]})
			i++
			continue
		}
		for ; j < len(b); j++ {
			came = append(came, Change{'+', b[j]})
		}
	}
	return append(out, came...)
}
