package main

// A Ring holds the newest readings, up to its size. One that does not fit any
// more is lost, the oldest first.
type Ring struct {
	cells []int
	first int // the cell of the oldest reading
	n     int
	lost  int
}

// NewRing returns an empty ring for size readings, at least 0.
func NewRing(size int) *Ring { return &Ring{cells: make([]int, max(size, 0))} }

// cell returns the place of the reading that is i steps younger than the oldest.
func (r *Ring) cell(i int) int { return (r.first + i) % len(r.cells) }

// Push adds a reading.
func (r *Ring) Push(v int) {
	switch {
	case len(r.cells) == 0:
		r.lost++
	case r.n == len(r.cells):
		r.cells[r.first] = v
		r.first = r.cell(1)
		r.lost++
	default:
		r.cells[r.cell(r.n)] = v
		r.n++
	}
}

// Pop takes the oldest reading out; it does not count as lost.
func (r *Ring) Pop() (int, bool) {
	if r.n == 0 {
		return 0, false
	}
	v := r.cells[r.first]
	r.first = r.cell(1)
	r.n--
	return v, true
}

// At returns a reading: 0 is the newest, 1 the one before, -1 the oldest, -2 the
// one after it.
func (r *Ring) At(i int) (int, bool) {
	steps := r.n - 1 - i
	if i < 0 {
		steps = -1 - i
	}
	if steps < 0 || steps >= r.n {
		return 0, false
	}
	return r.cells[r.cell(steps)], true
}

// Last returns the newest n readings, or all if there are fewer, the oldest of
// them first.
func (r *Ring) Last(n int) []int {
	n = min(n, r.n)
	var out []int
	for steps := r.n - n; n > 0 && steps < r.n; steps++ {
		out = append(out, r.cells[r.cell(steps)])
	}
	return out
}

// Peak returns the largest reading; of the last three only, if there are more.
func (r *Ring) Peak() (int, bool) {
	last := r.Last(3)
	if len(last) == 0 {
		return 0, false
	}
	peak := last[0]
	for _, v := range last {
		peak = max(peak, v)
	}
	return peak, true
}

// Resize changes the size and keeps the newest readings. Those that fall out are
// lost. A size below 0 is 0.
func (r *Ring) Resize(size int) {
	size = max(size, 0)
	kept := r.Last(size)
	r.lost += r.n - len(kept)
	r.cells, r.first, r.n = make([]int, size), 0, len(kept)
	copy(r.cells, kept)
}

// Len returns the number of readings.
func (r *Ring) Len() int { return r.n }

// Lost returns how many readings did not fit any more since the start.
func (r *Ring) Lost() int { return r.lost }
