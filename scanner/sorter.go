package scanner

import (
	"bufio"
	"cmp"
	"container/heap"
	"encoding/binary"
	"io"
	"math/bits"
	"os"
	"slices"
	"sync"
)

// A record is a run digest with a number that orders equal ones.
type record struct {
	hi, lo uint64 // the digest, big endian
	tag    uint64
}

const recordSize = 24

func recordOf(d [16]byte, tag uint64) record {
	return record{binary.BigEndian.Uint64(d[:8]), binary.BigEndian.Uint64(d[8:]), tag}
}

func (r record) digest() (d [16]byte) {
	binary.BigEndian.PutUint64(d[:8], r.hi)
	binary.BigEndian.PutUint64(d[8:], r.lo)
	return d
}

// append appends the digest to b.
func (r record) append(b []byte) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, r.hi), r.lo)
}

func compare(a, b record) int {
	switch {
	case a.hi != b.hi:
		return cmp.Compare(a.hi, b.hi)
	case a.lo != b.lo:
		return cmp.Compare(a.lo, b.lo)
	}
	return cmp.Compare(a.tag, b.tag)
}

// A scratch file takes sorted records that do not fit into memory. It lies in
// the run folder, which is private.
type scratch struct {
	mu   sync.Mutex
	root *os.Root
	name string
	f    *os.File
	end  int64

	unnamed bool
}

// write appends one sorted run and returns where it starts.
func (s *scratch) write(recs []record) (from int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.f == nil {
		if s.f, err = s.root.OpenFile(s.name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return 0, err
		}
		// Without a name nothing is left of it after a crash. Not every system can.
		s.unnamed = s.root.Remove(s.name) == nil
	}
	from = s.end
	w := bufio.NewWriterSize(io.NewOffsetWriter(s.f, from), 1<<18)
	var b [recordSize]byte
	for _, r := range recs {
		binary.BigEndian.PutUint64(b[:], r.hi)
		binary.BigEndian.PutUint64(b[8:], r.lo)
		binary.BigEndian.PutUint64(b[16:], r.tag)
		w.Write(b[:]) // the error stays in w
	}
	s.end += int64(len(recs)) * recordSize
	return from, w.Flush()
}

// close removes the file.
func (s *scratch) close() error {
	if s.f == nil {
		return nil
	}
	err := s.f.Close()
	if s.unnamed {
		return err
	}
	return cmp.Or(s.root.Remove(s.name), err)
}

// A sorter gives records back sorted, the first of each digest only. It holds
// limit of them in memory and writes more to the scratch file.
type sorter struct {
	scratch *scratch
	limit   int
	recs    []record
	tmp     []record // memory for sorting
	spills  []spill
	err     error
}

type spill struct {
	from int64
	n    int
}

func (s *sorter) add(r record) {
	if len(s.recs) == cap(s.recs) {
		s.recs = slices.Grow(s.recs, max(len(s.recs), 1<<10)) // append alone grows by a quarter
	}
	s.recs = append(s.recs, r)
	if len(s.recs) < s.limit {
		return
	}
	// Repetitions are frequent: views overlap with the raw text.
	if s.settle(); len(s.recs) > s.limit/2 {
		s.spill()
	}
}

func (s *sorter) empty() bool { return len(s.recs)+len(s.spills) == 0 }

func (s *sorter) settle() {
	s.recs, s.tmp = sorted(s.recs, s.tmp)
	s.recs = slices.CompactFunc(s.recs, func(a, b record) bool { return a.hi == b.hi && a.lo == b.lo })
}

// sorted sorts recs with the help of tmp's memory and returns both, exchanged
// perhaps. Digests are uniform, so that one pass by their first bits leaves
// buckets of about four: three times as fast as comparing.
func sorted(recs, tmp []record) (out, spare []record) {
	n := len(recs)
	if n < 64 {
		slices.SortFunc(recs, compare)
		return recs, tmp
	}
	shift := 64 - (bits.Len(uint(n)) - 2)
	ends := make([]uint32, 1<<(64-shift))
	for i := range recs {
		ends[recs[i].hi>>shift]++
	}
	var sum uint32
	for i, c := range ends {
		ends[i] = sum
		sum += c
	}
	if cap(tmp) < n {
		tmp = make([]record, n, cap(recs))
	}
	tmp = tmp[:n]
	for i := range recs {
		b := recs[i].hi >> shift
		tmp[ends[b]] = recs[i]
		ends[b]++
	}
	var from uint32
	for _, end := range ends {
		part := tmp[from:end]
		from = end
		if len(part) > 64 { // one digest many times
			slices.SortFunc(part, compare)
			continue
		}
		for i := 1; i < len(part); i++ {
			for j := i; j > 0 && compare(part[j], part[j-1]) < 0; j-- {
				part[j], part[j-1] = part[j-1], part[j]
			}
		}
	}
	return tmp, recs
}

func (s *sorter) spill() {
	if len(s.recs) == 0 {
		return
	}
	from, err := s.scratch.write(s.recs)
	s.err = cmp.Or(s.err, err)
	s.spills = append(s.spills, spill{from, len(s.recs)})
	s.recs = s.recs[:0]
}

// finish ends the adding.
func (s *sorter) finish() error {
	if s.settle(); len(s.spills) > 0 {
		s.spill()
	}
	return s.err
}

// each visits the sorted records after finish. It may be called again.
func (s *sorter) each(visit func(record) error) error {
	if len(s.spills) == 0 {
		for _, r := range s.recs {
			if err := visit(r); err != nil {
				return err
			}
		}
		return nil
	}
	var h merge
	for _, sp := range s.spills {
		r := &runReader{in: bufio.NewReaderSize(io.NewSectionReader(s.scratch.f, sp.from, int64(sp.n)*recordSize), 1<<15)}
		if err := r.next(); err != nil {
			return err
		}
		h = append(h, r)
	}
	heap.Init(&h)
	var last record
	for first := true; len(h) > 0; {
		r := h[0]
		if head := r.head; first || head.hi != last.hi || head.lo != last.lo {
			if err := visit(head); err != nil {
				return err
			}
			first, last = false, head
		}
		switch err := r.next(); err {
		case nil:
			heap.Fix(&h, 0)
		case io.EOF:
			heap.Pop(&h)
		default:
			return err
		}
	}
	return nil
}

// A runReader reads one sorted run.
type runReader struct {
	in   *bufio.Reader
	head record
}

func (r *runReader) next() error {
	var b [recordSize]byte
	if _, err := io.ReadFull(r.in, b[:]); err != nil {
		return err
	}
	r.head = record{binary.BigEndian.Uint64(b[:]), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}
	return nil
}

// merge is a heap of runs by their first record.
type merge []*runReader

func (m merge) Len() int           { return len(m) }
func (m merge) Less(i, j int) bool { return compare(m[i].head, m[j].head) < 0 }
func (m merge) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *merge) Push(x any)        { *m = append(*m, x.(*runReader)) }
func (m *merge) Pop() any {
	last := (*m)[len(*m)-1]
	*m = (*m)[:len(*m)-1]
	return last
}
