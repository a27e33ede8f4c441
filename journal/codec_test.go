package journal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

func randomRow(rng *rand.Rand) Row {
	// Numbers of every encoded length.
	n := func(bits uint) uint64 { return rng.Uint64() >> (64 - bits) >> rng.UintN(bits) }
	r := Row{
		Seq: n(64), Time: n(64), Phase: Phase(n(8)), Proc: uint32(n(32)), Op: Op(n(8)), Dir: Direction(n(8)), Origin: Origin(n(8)),
		Result: int32(n(32)), Flags: Flags(n(32)), Size: n(64), Object: uint32(n(32)),
	}
	r.Commit[rng.IntN(32)] = byte(n(8))
	if rng.IntN(2) == 0 {
		r.Path = &PathRef{Dir: uint32(n(32)), Digest: [32]byte{byte(n(8))}}
	}
	if rng.IntN(4) == 0 {
		r.Path2 = &PathRef{Dir: uint32(n(32))}
	}
	if rng.IntN(4) == 0 {
		r.Child = uint32(n(32))
	}
	if rng.IntN(8) == 0 {
		s := testStart()
		s.Channels, s.Blind = []Channel{}, []string{}
		if rng.IntN(2) == 0 {
			s.Phases = &Phases{Setup: []string{}, Grade: []string{"sh", "-c", "x"}, Reward: RewardExit, Guard: []string{"verdict"}}
		}
		r.Start = &s
	}
	if rng.IntN(8) == 0 {
		r.Final = &Final{Counts: []OpCount{{Phase: 1, Op: 2, N: n(64)}}}
	}
	if rng.IntN(8) == 0 {
		r.End = &PhaseEnd{Code: uint32(n(32)), How: How(n(8)), Left: uint32(n(32))}
	}
	if rng.IntN(8) == 0 {
		r.Reward = &Reward{Value: "0.5", Source: RewardSource(n(8))}
	}
	if rng.IntN(8) == 0 {
		r.Guard = &Guard{Kind: GuardKind(n(8)), After: rng.IntN(2) == 0}
	}
	return r
}

// The row codec writes what the generic codec writes.
func TestRowCodecEqualsGeneric(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		r := randomRow(rng)
		want, err := dcbor.Marshal(&r)
		if err != nil {
			t.Fatal(err)
		}
		got, err := EncodeRow(nil, &r)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%+v: got %x, %v, want %x", r, got, err, want)
		}
		back, err := ParseRow(got)
		if err != nil || !reflect.DeepEqual(back, r) {
			t.Fatalf("%x: got %+v, %v, want %+v", got, back, err, r)
		}
	}
}

// compare holds both codecs to one answer on the same bytes.
func compare(t *testing.T, raw []byte) {
	t.Helper()
	var generic Row
	want := dcbor.Unmarshal(raw, &generic)
	got, err := ParseRow(raw)
	if (err == nil) != (want == nil) {
		t.Fatalf("%x: got %v, the generic codec says %v", raw, err, want)
	}
	if err != nil {
		if !isRule(err, RuleEncoding) && !isRule(err, RuleFrame) {
			t.Fatalf("%x: got %v, want rule encoding or frame", raw, err)
		}
		if !reflect.DeepEqual(got, Row{}) {
			t.Fatalf("%x: got a part of a row with an error", raw)
		}
		return
	}
	if !reflect.DeepEqual(got, generic) {
		t.Fatalf("%x: got %+v, want %+v", raw, got, generic)
	}
	if again, err := EncodeRow(nil, &got); err != nil || !bytes.Equal(again, raw) {
		t.Fatalf("got %x from %x, %v", again, raw, err)
	}
}

// Random bytes put into good rows: both codecs agree on every one.
func TestRowCodecAgreesOnDamage(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 3000 {
		r := randomRow(rng)
		raw, err := EncodeRow(nil, &r)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 {
			bad := bytes.Clone(raw)
			for range 1 + rng.IntN(3) {
				i := rng.IntN(min(len(bad), 64))
				switch rng.IntN(3) {
				case 0:
					bad[i] = byte(rng.Uint32())
				case 1:
					bad = append(bad[:i], bad[i+1:]...)
				case 2:
					bad = append(bad[:i], append([]byte{byte(rng.Uint32())}, bad[i:]...)...)
				}
			}
			compare(t, bad)
		}
	}
}

func FuzzParseRow(f *testing.F) {
	for _, v := range readVectors(f) {
		for raw := range rawRows(v.file) {
			f.Add(raw)
		}
	}
	f.Fuzz(compare)
}

// TestRT63_RecordBounded: a length prefix claims no memory by itself.
func TestRT63_RecordBounded(t *testing.T) {
	for name, file := range map[string][]byte{
		"rows, 2 GB":           {0x80, 0, 0, 0, 1},
		"rows, 1 MiB and torn": {0, 0x10, 0, 0, 1},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, err := range Rows(bytes.NewReader(file)) {
			if !isRule(err, RuleFrame) {
				t.Errorf("%s: got %v, want rule frame", name, err)
			}
		}
		for _, err := range Details(bytes.NewReader([]byte{0, 0xff, 0xff, 0xff, 1})) {
			if !isRule(err, RuleFrame) {
				t.Errorf("details: got %v, want rule frame", err)
			}
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%s: got %d bytes allocated, want at most 1 MiB", name, got)
		}
	}
}

func FuzzRows(f *testing.F) {
	for _, v := range readVectors(f) {
		f.Add(v.file)
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		var again []byte
		c := NewChecker()
		for line, err := range Rows(bytes.NewReader(file)) {
			if err != nil {
				if !isRule(err, RuleFrame) && !isRule(err, RuleEncoding) {
					t.Fatalf("got %v, want rule frame or encoding", err)
				}
				return
			}
			again = appendRecord(again, line.Raw)
			if _, err := c.Add(line.Raw); err != nil {
				return
			}
		}
		if !bytes.Equal(again, file) {
			t.Fatal("the records are not the file")
		}
		if s := c.Summary(); s.Head.Size > 0 && s.Start == nil {
			t.Fatal("rows without a start were accepted")
		}
	})
}

func TestDetailRoundTrip(t *testing.T) {
	d := Detail{
		Path: "/work/é", Path2: "/x", Asked: "x", SHA256: make([]byte, 32), Text: []byte("t"), Argv: []string{"a", ""}, Env: []string{"HOME"},
		Cwd: "/", Address: "inet 127.0.0.1:80", Syscall: "openat", Mode: 0o644, Args: map[string]uint64{"b": 1, "a": 2}, Exit: -9, PID: 7, Note: "n", ReadBy: []uint32{1, 2},
	}
	raw, err := EncodeDetail(&d)
	if err != nil {
		t.Fatal(err)
	}
	back, err := ParseDetail(raw)
	if err != nil || !reflect.DeepEqual(back, d) {
		t.Fatalf("got %+v, %v, want %+v", back, err, d)
	}
	for name, bad := range map[string][]byte{
		"empty": {}, "trailing": append(bytes.Clone(raw), 0), "unknown key": {0xa1, 0x18, 99, 0}, "empty value": {0xa1, 1, 0x60},
		"RT59 twice": {0xa2, 1, 0x61, 'a', 1, 0x61, 'b'}, "RT61 indefinite": {0xbf, 0xff}, "RT61 not UTF-8": {0xa1, 1, 0x61, 0xff},
	} {
		if _, err := ParseDetail(bad); !isRule(err, RuleEncoding) {
			t.Errorf("%s: got %v, want rule encoding", name, err)
		}
	}
	if none, err := EncodeDetail(nil); err != nil || !bytes.Equal(none, []byte{0xa0}) {
		t.Errorf("nil detail: got %x, %v, want the empty map", none, err)
	}
}

func ExampleFormatHead() {
	h := Head{Run: [16]byte{0xab}, Size: 20107, Root: LeafHash([]byte("the only row"))}
	fmt.Printf("%s", FormatHead(h))
	// Output:
	// cleanrun.dev/journal/ab000000000000000000000000000000
	// 20107
	// Q/o8gjlU3YZNwNKKVWQTExVM0rw9CcL6gEBFzYc+7/o=
}
