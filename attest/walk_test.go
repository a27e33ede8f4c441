package attest_test

import (
	"runtime"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// reads is a pack of n rows that open the same ten files, of which one is baseline
// and one has too little text for a digest.
func reads(t *testing.T, set *contraband.Set, n int) []byte {
	t.Helper()
	r := fixture.NewRun(set, [32]byte{9}, nil)
	r.Control()
	r.Phase = journal.PhaseAgent
	const files = 10
	var first [files]*uint64
	for i := range n {
		c := fixture.Content{Filler: 20, Same: first[i%files]}
		switch i % files {
		case 0:
			c = fixture.Content{Baseline: true}
		case 1:
			c = fixture.Content{Items: []string{}, Filler: 1, Size: 40, Same: first[1]}
		}
		seq := r.Add(journal.Row{Op: journal.OpOpen, Flags: journal.FlagRead, Dir: journal.DirIn, Origin: journal.OriginInput, Object: uint32(100 + i%files)},
			journal.Detail{Path: "/work/a"}, &c)
		if i < files && i > 0 {
			first[i] = &seq
		}
	}
	r.Close(journal.Final{})
	p, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return p.Bytes()
}

// TestMemoryOfRows holds what Evidence and Derive keep to the contents of a run:
// many times the rows take no more, but for the mark of each 64th.
func TestMemoryOfRows(t *testing.T) {
	set, err := fixture.Set(fixture.Groups(), nil)
	if err != nil {
		t.Fatal(err)
	}
	kept := func(n int) int64 {
		pack := reads(t, set, n)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		ev, err := attest.ReadEvidence(pack)
		if err != nil {
			t.Fatal(err)
		}
		d := attest.Derive(set, ev)
		if d.Counts.Activity != uint64(n) {
			t.Fatalf("got %d rows with content, want %d", d.Counts.Activity, n)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		runtime.KeepAlive(ev)
		runtime.KeepAlive(d)
		runtime.KeepAlive(pack)
		return int64(after.HeapAlloc) - int64(before.HeapAlloc)
	}
	few, many := kept(1_000), kept(60_000)
	if many-few > 60_000*2 {
		t.Errorf("1,000 rows keep %d bytes and 60,000 rows %d: more than 2 bytes for each row", few, many)
	}
}

// TestRowAgain compares rows that are found one by one with those of a walk.
func TestRowAgain(t *testing.T) {
	set, err := fixture.Set(fixture.Groups(), nil)
	if err != nil {
		t.Fatal(err)
	}
	ev, err := attest.ReadEvidence(reads(t, set, 300))
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(0)
	for row, entry := range ev.Rows() {
		again, other := ev.Row(n)
		if row.Seq != n || again.Seq != n || (entry == nil) != (other == nil) || entry != nil && (entry.Root != other.Root || (entry.Same == nil) != (other.Same == nil)) {
			t.Fatalf("row %d: got %+v with %+v, want %+v with %+v", n, again, other, row, entry)
		}
		n++
	}
	if n != ev.Size() || n < 300 {
		t.Errorf("walked %d rows of %d", n, ev.Size())
	}
}
