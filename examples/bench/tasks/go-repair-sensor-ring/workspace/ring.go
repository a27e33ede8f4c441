package main

// A Ring holds the newest readings, up to its size. One that does not fit any
// more is lost, the oldest first.
type Ring struct {
	cells []int
	head  int // where the next reading goes
	n     int
	lost  int
}

// NewRing returns an empty ring for size readings, at least 0.
func NewRing(size int) *Ring { return &Ring{cells: make([]int, size)} }

// Push adds a reading.
func (r *Ring) Push(v int) {
	r.cells[r.head] = v
	r.head = (r.head + 1) % len(r.cells)
	r.n++
}

// Pop takes the oldest reading out; it does not count as lost.
func (r *Ring) Pop() (int, bool) {
	if r.n == 0 {
		return 0, false
	}
	v := r.cells[(r.head-r.n)%len(r.cells)]
	r.n--
	return v, true
}

// At returns a reading: 0 is the newest, 1 the one before, -1 the oldest, -2 the
// one after it.
func (r *Ring) At(i int) (int, bool) {
	if i >= r.n {
		return 0, false
	}
	return r.cells[(r.head-i)%len(r.cells)], true
}

// Last returns the newest n readings, or all if there are fewer, the oldest of
// them first.
func (r *Ring) Last(n int) []int {
	var out []int
	for i := 0; i < n; i++ {
		v, _ := r.At(i)
		out = append(out, v)
	}
	return out
}

// Peak returns the largest reading; of the last three only, if there are more.
func (r *Ring) Peak() (int, bool) {
	peak := 0
	for _, v := range r.cells {
		if v > peak {
			peak = v
		}
	}
	return peak, r.n > 0
}

// Resize changes the size and keeps the newest readings. Those that fall out are
// lost. A size below 0 is 0.
func (r *Ring) Resize(size int) {
	cells := make([]int, size)
	copy(cells, r.cells)
	r.cells = cells
}

// Len returns the number of readings.
func (r *Ring) Len() int { return r.n }

// Lost returns how many readings did not fit any more since the start.
func (r *Ring) Lost() int { return r.lost }
