package contraband

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

var headKey = []byte("0123456789abcdefghijklmnopqrstuv")

func goodHead() Head {
	return Head{Version: BenchmarkVersion, Benchmark: "bench", Period: "", Tasks: 3, Root: [32]byte{1}, Weak: 2, Revision: "v1", Data: [32]byte{9}, Key: headKey}
}

func TestHeadRoundTrip(t *testing.T) {
	private := goodHead()
	private.Key, private.Data, private.Revision = nil, [32]byte{}, ""
	for _, h := range []Head{goodHead(), private} {
		data, err := h.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseHead(data)
		if err != nil {
			t.Fatal(err)
		}
		again, err := got.Marshal()
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("got %x, %v", again, err)
		}
		key, public := got.Public()
		if public != (len(h.Key) > 0) || public && !bytes.Equal(key.Publish(), headKey) {
			t.Errorf("got %v", public)
		}
	}
}

// Each head breaks one rule.
func TestHeadRules(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Head)
		want   Rule
	}{
		"version":             {func(h *Head) { h.Version = "cleanrun/benchmark/v2" }, RuleVersion},
		"no name":             {func(h *Head) { h.Benchmark = "" }, RuleName},
		"name of two lines":   {func(h *Head) { h.Benchmark = "a\nb" }, RuleName},
		"period":              {func(h *Head) { h.Period = strings.Repeat("x", 1025) }, RuleName},
		"revision":            {func(h *Head) { h.Revision = "\x00" }, RuleName},
		"no task":             {func(h *Head) { h.Tasks = 0 }, RuleTasks},
		"many tasks":          {func(h *Head) { h.Tasks = MaxTasks + 1 }, RuleTasks},
		"many weak":           {func(h *Head) { h.Weak = MaxTasks + 1 }, RuleTasks},
		"public, no revision": {func(h *Head) { h.Revision = "" }, RulePublic},
		"public, no data":     {func(h *Head) { h.Data = [32]byte{} }, RulePublic},
		"data, not public":    {func(h *Head) { h.Key = nil }, RulePublic},
		"RT26 a key padded":   {func(h *Head) { h.Key = append(bytes.Clone(headKey), 0) }, RulePublic},
		"a key cut short":     {func(h *Head) { h.Key = headKey[:31] }, RulePublic},
		"a weak key":          {func(h *Head) { h.Key = make([]byte, 32) }, RulePublic},
	} {
		h := goodHead()
		c.change(&h)
		raw, err := dcbor.Marshal(h)
		if err != nil {
			t.Fatal(err)
		}
		var parsed, written *HeadError
		if _, err := ParseHead(raw); !errors.As(err, &parsed) || parsed.Rule != c.want {
			t.Errorf("%s: got %v, want rule %s", name, err, c.want)
		}
		if _, err := h.Marshal(); !errors.As(err, &written) || written.Rule != c.want {
			t.Errorf("%s: Marshal: got %v, want rule %s", name, err, c.want)
		}
	}
	var e *HeadError
	if _, err := ParseHead(make([]byte, MaxHeadSize+1)); !errors.As(err, &e) || e.Rule != RuleSize {
		t.Errorf("got %v", err)
	}
	h := goodHead()
	good, _ := h.Marshal()
	for _, bad := range [][]byte{nil, good[:len(good)-1], append(bytes.Clone(good), 0), {0xa0}} {
		if _, err := ParseHead(bad); !errors.As(err, &e) || e.Rule != RuleEncoding {
			t.Errorf("%x: got %v", bad, err)
		}
	}
}

// The three kinds of key lead down and not up, and a file of one is no file of
// another.
func TestBenchmarkKey(t *testing.T) {
	audit, err := NewAuditKey(headKey)
	if err != nil {
		t.Fatal(err)
	}
	bench := audit.Benchmark("bench", "2026")
	if got, want := bench.Task("task", [32]byte{1}, [32]byte{2}), audit.Task("bench", "2026", "task", [32]byte{1}, [32]byte{2}); got != want {
		t.Error("the benchmark key gives another task key than the audit key")
	}
	for _, other := range []BenchmarkKey{audit.Benchmark("bench", ""), audit.Benchmark("bench2", "2026"), audit.Benchmark("bench2026", "")} {
		if other == bench {
			t.Error("two benchmarks share a key")
		}
	}
	file := bench.Format()
	if again, err := ParseBenchmarkKey(file); err != nil || again != bench {
		t.Errorf("got %v", err)
	}
	if !bytes.HasPrefix(file, []byte("cleanrun-benchmark-key-v1 ")) {
		t.Errorf("got %.30q", file)
	}
	if _, err := ParseAuditKey(file); err == nil {
		t.Error("a benchmark key is read as an audit key")
	}
	if _, err := ParseTaskKey(file); err == nil {
		t.Error("a benchmark key is read as a task key")
	}
	if _, err := ParseBenchmarkKey(audit.Format()); err == nil {
		t.Error("an audit key is read as a benchmark key")
	}
	if s := bench.String(); strings.Contains(s, "0") {
		t.Errorf("got %q", s)
	}
}

func FuzzHead(f *testing.F) {
	h := goodHead()
	data, err := h.Marshal()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := ParseHead(data)
		var e *HeadError
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("got %T", err)
			}
			return
		}
		if again, err := h.Marshal(); err != nil || !bytes.Equal(again, data) {
			t.Fatalf("another encoding is accepted: %v", err)
		}
	})
}
