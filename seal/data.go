package seal

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"path/filepath"
	"slices"
	"sync"
)

// A dataList is all that a public benchmark is made of (spec/benchmark.md, "Data
// digest"): anybody who has the same data computes the same digest.
type dataList struct {
	base string // folder of benchmark.yaml

	mu   sync.Mutex
	rows []dataRow
}

type dataRow struct {
	kind, name string // "file" and a path, or "baseline" and a task
	sum        [32]byte
}

func newDataList(b *Benchmark) *dataList {
	d := &dataList{base: filepath.Dir(b.File)}
	d.file(fileSum(b.File, b.data))
	for _, f := range b.files {
		d.file(f)
	}
	return d
}

func (d *dataList) file(f sumFile) {
	name := f.host
	if rel, err := filepath.Rel(d.base, f.host); err == nil {
		name = rel
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows = append(d.rows, dataRow{"file", filepath.ToSlash(name), f.sum})
}

// add notes what one task was made of.
func (d *dataList) add(m *Material) {
	for _, f := range m.files {
		d.file(f)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.rows = append(d.rows, dataRow{"baseline", m.Task.ID, m.Baseline.Root()})
}

func (d *dataList) digest() [32]byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.SortFunc(d.rows, func(a, b dataRow) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name), bytes.Compare(a.sum[:], b.sum[:]))
	})
	d.rows = slices.Compact(d.rows)
	h := sha256.New()
	h.Write([]byte("cleanrun/data/v1"))
	field := func(b []byte) {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(b))))
		h.Write(b)
	}
	for i := range d.rows {
		field([]byte(d.rows[i].kind))
		field([]byte(d.rows[i].name))
		field(d.rows[i].sum[:])
	}
	return [32]byte(h.Sum(nil))
}
