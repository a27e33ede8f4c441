package monitor_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/monitor"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// Each contradiction that a log should have refused is found where it is, beside a
// log without it, in which nothing is found.
func TestEntries(t *testing.T) {
	good := [][]byte{seal("head"), register(1), checkpoint(1, 10), final(1, 20), register(2), final(2, 20)}
	again := bytes.Clone(good[1])
	bad := bytes.Clone(register(3))
	bad[len(bad)-1] ^= 1
	stranger := must(entry.SignSeal(runner, entry.Seal{Subject: "bench", Of: receipt.KindBenchmark, Digest: sum("mine")}))
	for name, c := range map[string]struct {
		more [][]byte
		id   entry.ID
	}{
		"nothing":                                  {nil, ""},
		"equal bytes twice":                        {[][]byte{again}, ""},
		"another trial":                            {[][]byte{register(3), final(3, 9)}, ""},
		"RT3 rows dropped after a checkpoint":      {[][]byte{register(3), checkpoint(3, 50), final(3, 40)}, entry.FinalShort},
		"RT9 a second end":                         {[][]byte{final(1, 21)}, entry.FinalAgain},
		"RT15 rows after the end":                  {[][]byte{checkpoint(1, 30)}, entry.AfterFinal},
		"RT19 no seal before the run":              {[][]byte{register(3, func(r *entry.Register) { r.Sealed = sum("later") })}, entry.SealMissing},
		"RT82 an attempt registered twice":         {[][]byte{register(9, func(r *entry.Register) { r.Trial = 1 })}, entry.RegisterAgain},
		"a checkpoint that goes back":              {[][]byte{register(3), checkpoint(3, 50), checkpoint(3, 50), checkpoint(3, 49), final(3, 60)}, entry.CheckpointBack},
		"an end of nothing":                        {[][]byte{final(7, 20)}, entry.FinalUnregistered},
		"a runner who seals":                       {[][]byte{stranger}, entry.UnknownIssuer},
		"a signature that does not verify":         {[][]byte{bad}, entry.BadSignature},
		"bytes that are none of the log's":         {[][]byte{[]byte("hello")}, entry.NotAnEntry},
		"an empty entry":                           {[][]byte{{}}, entry.NotAnEntry},
		"the run of another by a key not admitted": {[][]byte{must(entry.SignCheckpoint(other, head(2, 20, "x")))}, entry.UnknownIssuer},
	} {
		log := &memory{entries: slices.Concat(good, c.more)}
		log.sign(len(log.entries))
		_, found := first(t, log, options())
		var ids []string
		for _, f := range found {
			if f.Contradiction() {
				ids = append(ids, fmt.Sprint(f.ID, "@", f.Index))
			}
		}
		want := ""
		switch {
		case c.id == entry.CheckpointBack: // after equal bytes, which are no fault
			want = "checkpoint-back@9"
		case c.id == entry.FinalShort:
			want = "final-short@8"
		case c.id != "":
			want = fmt.Sprint(c.id, "@", len(good))
		}
		if got := strings.Join(ids, " "); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}
}

func TestRT82_OpenRunsAndMissingAttempts(t *testing.T) {
	log := &memory{entries: [][]byte{seal("head"), register(1, attempt(1)), register(2, attempt(2)), final(1, 20)}}
	log.sign(4)
	o, now := options(), time.Unix(1e9, 0)
	o.Now = func() time.Time { return now }
	m, found := first(t, log, o)
	if len(found) != 0 {
		t.Errorf("control: got %v, want nothing: attempt 2 has been open for no time", found)
	}
	now = now.Add(59 * time.Minute)
	o.State = m.State() // another process goes on
	if o.State = must(monitor.ParseState(must(o.State.Format()))); len(o.State.Open) != 1 || o.State.Open[0].Index != 2 {
		t.Errorf("got state %+v, want entry 2 open", o.State)
	}
	if m, found = first(t, log, o); len(found) != 0 {
		t.Errorf("after 59 minutes: got %v, want nothing", found)
	}
	now = now.Add(time.Minute)
	if found = step(t, m); len(found) != 1 || found[0].ID != monitor.RunOpen || found[0].Index != 2 || found[0].Contradiction() {
		t.Errorf("after an hour: got %v, want run-open of entry 2", found)
	}
	if found = step(t, m); len(found) != 0 {
		t.Errorf("told again: %v", found)
	}
	log.entries = append(log.entries, final(2, 30), register(4, attempt(4)))
	log.sign(6)
	if found = step(t, m); len(found) != 1 || found[0].ID != monitor.AttemptMissing || found[0].Index != 5 {
		t.Errorf("got %v, want attempt-missing of entry 5", found)
	}
}

func TestRT3_CheckpointsHidden(t *testing.T) {
	counted := must(entry.SignFinal(runner, entry.Final{Head: head(1, 20, "root 20"), Outcome: journal.Completed, Checkpoints: 1,
		Counts: []journal.OpCount{{Phase: journal.PhaseSetup, Op: journal.OpStart, N: 19}}}))
	for end, want := range map[string]int{string(counted): 0, string(final(1, 20)): 1} {
		log := &memory{entries: [][]byte{seal("head"), register(1), checkpoint(1, 10), []byte(end)}}
		log.sign(4)
		m, found := first(t, log, options())
		if len(found) != want || want == 1 && (found[0].ID != monitor.CheckpointHidden || found[0].Index != 3 || found[0].Contradiction()) {
			t.Errorf("got %v, want %d findings", found, want)
		}
		if found := step(t, m); len(found) != 0 {
			t.Errorf("told again: %v", found)
		}
	}
}

// A smaller checkpoint than one that was seen is shown with it, also to a monitor of
// another process, and stays what the next one is held to.
func TestRollback(t *testing.T) {
	log := &memory{entries: [][]byte{seal("head"), register(1), final(1, 20)}}
	log.sign(3)
	o := options()
	m, found := first(t, log, o)
	larger := log.note
	if len(found) != 0 {
		t.Fatalf("control: got %v", found)
	}
	log.sign(2)
	o.State = m.State()
	check := func(found []monitor.Finding) {
		t.Helper()
		if len(found) == 0 || found[0].ID != monitor.Rollback || len(found[0].Evidence) != 2 || !bytes.Equal(found[0].Evidence[0], larger) || !bytes.Equal(found[0].Evidence[1], log.note) {
			t.Errorf("got %v, want rollback with both notes", found)
		}
	}
	check(step(t, m))
	if found := step(t, m); len(found) != 0 {
		t.Errorf("told again: %v", found)
	}
	m, found = first(t, log, o)
	check(found)
	if m.State().Checkpoint != string(larger) {
		t.Error("the state forgot the larger checkpoint")
	}
	log.sign(3)
	o.State = m.State()
	if _, found = first(t, log, o); len(found) != 0 {
		t.Errorf("the log is back: got %v", found)
	}
}

// Two trees of one log, at one size or at two.
func TestRT78_SplitView(t *testing.T) {
	shared := [][]byte{seal("head"), register(1)}
	here := slices.Concat(shared, [][]byte{final(1, 20), register(2), final(2, 9)})
	there := slices.Concat(shared, [][]byte{final(1, 30), register(3), final(3, 9)})
	two := func(found []monitor.Finding, a, b []byte) {
		t.Helper()
		if len(found) == 0 || found[0].ID != monitor.SplitView || len(found[0].Evidence) != 2 || !bytes.Equal(found[0].Evidence[0], a) || !bytes.Equal(found[0].Evidence[1], b) {
			t.Errorf("got %v, want split-view with both notes", found)
		}
	}
	// A checkpoint that somebody else was shown, of the same size, a smaller and the shared one.
	for _, size := range []int{5, 3, 2} {
		log := &memory{entries: here}
		log.sign(5)
		o := options()
		o.Seen = [][]byte{signed(there[:size])}
		_, found := first(t, log, o)
		if size == 2 {
			if len(found) != 0 {
				t.Errorf("control: got %v, want nothing: both trees begin so", found)
			}
			continue
		}
		two(found, o.Seen[0], log.note)
	}
	// The log changes its mind while it is followed, at one size and while it grows.
	for _, size := range []int{3, 4} {
		log := &memory{entries: here}
		log.sign(3)
		m, found := first(t, log, options())
		if len(found) != 0 {
			t.Fatalf("control: %v", found)
		}
		before, state := log.note, m.State()
		log.entries = there
		log.sign(size)
		found, err := m.Step(t.Context())
		if size == 4 != errors.Is(err, monitor.ErrLost) {
			t.Errorf("size %d: got %v", size, err)
		}
		two(found, before, log.note)
		if m.State().Checkpoint != string(before) {
			t.Error("the state went over to the other tree")
		}
		// Another process with the state sees the same.
		o := options()
		o.State = state
		_, found = first(t, log, o)
		two(found, before, log.note)
	}
}

// Entries that do not have the root that is signed.
func TestEntriesDiffer(t *testing.T) {
	log := &memory{entries: [][]byte{seal("head"), register(1)}}
	log.sign(2)
	log.entries[1] = register(2)
	m, err := monitor.New(log, options())
	if err != nil {
		t.Fatal(err)
	}
	found, err := m.Step(t.Context())
	if !errors.Is(err, monitor.ErrLost) || len(found) != 1 || found[0].ID != monitor.EntriesDiffer || !bytes.Equal(found[0].Evidence[0], log.note) {
		t.Errorf("got %v, %v, want entries-differ", found, err)
	}
}

// What cannot be told is an error, and never nothing found.
func TestCannotTell(t *testing.T) {
	log := &memory{entries: [][]byte{seal("head")}, down: true}
	log.sign(1)
	m, err := monitor.New(log, options())
	if err != nil {
		t.Fatal(err)
	}
	if found, err := m.Step(t.Context()); err == nil || m.Newest() != nil {
		t.Errorf("a log that is down: got %v, %v", found, err)
	}
	log.down = false
	good := log.note
	log.note = must(proof.SignCheckpoint(other, proof.Checkpoint{Origin: other.public.Name(), Size: 1, Root: root(log.entries)}))
	if found, err := m.Step(t.Context()); err == nil {
		t.Errorf("another log's checkpoint: got %v", found)
	}
	log.note, log.entries = good, nil
	if found, err := m.Step(t.Context()); err == nil {
		t.Errorf("entries that are not there: got %v", found)
	}
	log.entries = [][]byte{seal("head")}
	if found := step(t, m); len(found) != 0 || m.Newest().Checkpoint().Size != 1 {
		t.Errorf("control: got %v", found)
	}
	o := options()
	o.Seen = [][]byte{[]byte("no note")}
	if _, err := monitor.New(log, o); err == nil {
		t.Error("a checkpoint that is none was taken")
	}
}

// Bundles that fill up, over HTTP.
func TestServerSource(t *testing.T) {
	log := new(memory)
	for i := range 600 {
		log.entries = append(log.entries, seal(fmt.Sprint(i)))
	}
	log.sign(300)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/base/checkpoint" {
			w.Write(log.note)
			return
		}
		b, err := log.Get(r.Context(), strings.TrimPrefix(r.URL.Path, "/base/"), 0)
		if err != nil || strings.Contains(r.URL.Path, "001.p/44") { // its partial bundle was replaced by the full one
			http.NotFound(w, r)
			return
		}
		w.Write(b)
	}))
	defer server.Close()
	source, err := monitor.Server(server.URL+"/base/", nil)
	if err != nil {
		t.Fatal(err)
	}
	m, found := first(t, source, options())
	if len(found) != 0 || m.Newest().Checkpoint().Size != 300 {
		t.Errorf("got %v, want 300 entries without fault", found)
	}
	log.sign(600)
	if found := step(t, m); len(found) != 0 || m.Newest().Checkpoint().Size != 600 {
		t.Errorf("got %v, want 600 entries without fault", found)
	}
	if _, err := source.Get(t.Context(), "tile/entries/000", 100); err == nil {
		t.Error("more than the limit was read")
	}
	for _, bad := range []string{"", "x", "ftp://h", "http://h?q=1"} {
		if _, err := monitor.Server(bad, nil); err == nil {
			t.Errorf("%q was taken for a URL", bad)
		}
	}
}

func FuzzParseState(f *testing.F) {
	f.Add(must((&monitor.State{Version: "cleanrun/monitor/v1", Open: []monitor.OpenRun{{1, 2}}}).Format()))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := monitor.ParseState(b); err == nil && !bytes.Equal(must(s.Format()), b) {
			t.Errorf("%q has a second spelling", b)
		}
	})
}
