package journal

import (
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// discard is a File that takes everything.
type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
func (discard) Sync() error                 { return nil }

func BenchmarkAppend(b *testing.B) {
	c := new(bench).config()
	c.Rows, c.Details = discard{}, discard{}
	w, err := NewWriter(c)
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	manyRows(b, w, b.N)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkCheck(b *testing.B) {
	w := newBench(b)
	manyRows(b, w.Writer, 100_000)
	if err := w.Flush(); err != nil {
		b.Fatal(err)
	}
	n := uint64(0)
	b.SetBytes(int64(w.rows.Len()))
	for b.Loop() {
		sum, err := check(w.rows.Bytes())
		if err != nil {
			b.Fatal(err)
		}
		n += sum.Head.Size
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
}

func BenchmarkParseRow(b *testing.B) {
	raw := benchRow(b)
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := ParseRow(raw); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeRow(b *testing.B) {
	r, err := ParseRow(benchRow(b))
	if err != nil {
		b.Fatal(err)
	}
	var buf []byte
	for b.Loop() {
		buf, _ = EncodeRow(buf[:0], &r)
	}
}

// BenchmarkGenericRow is what the row codec is measured against.
func BenchmarkGenericRow(b *testing.B) {
	raw := benchRow(b)
	for b.Loop() {
		var r Row
		if err := dcbor.Unmarshal(raw, &r); err != nil {
			b.Fatal(err)
		}
	}
}

func benchRow(b *testing.B) []byte {
	r := Row{Seq: 123456, Time: 1 << 33, Phase: 1, Proc: 12, Op: OpOpen, Dir: DirIn, Origin: OriginInput, Flags: FlagRead, Size: 4711, Object: 99, Path: &PathRef{Dir: 77}}
	raw, err := EncodeRow(nil, &r)
	if err != nil {
		b.Fatal(err)
	}
	return raw
}
