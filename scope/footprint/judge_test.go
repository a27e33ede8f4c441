package footprint

import (
	"encoding/json"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

func policy(t *testing.T, allowed ...string) Policy {
	t.Helper()
	p, err := NewPolicy(allowed)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// evidence of a folder in which the named paths were there before.
func evidence(before ...string) Evidence {
	return Evidence{Root: "/ws", Existed: func(p string) bool { return slices.Contains(before, p) },
		Compiled: func(Compiled) string { return "" }}
}

// outside gives the findings as "kind path".
func outside(r Result) (out []string) {
	for _, f := range r.Outside {
		out = append(out, f.Kind.String()+" "+f.Path)
	}
	return out
}

func same(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestThreeKindsLessAllowed(t *testing.T) {
	ev := evidence("m", "d", "out", "out/m")
	ev.Changes = []Change{{Path: "a", Kind: Added}, {Path: "m", Kind: Modified, What: "content"}, {Path: "d", Kind: Deleted}, {Path: "out/m", Kind: Modified, What: "mode"}}
	ev.Writes = []Write{{Event: 5, Process: 2, Op: "open", Path: "a"}, {Event: 6, Op: "open", Path: "m"}, {Event: 7, Op: "unlink", Path: "d"}, {Event: 8, Op: "chmod", Path: "out/m"}}
	r := Judge(policy(t, "out/**"), ev)
	same(t, "outside", outside(r), "added /ws/a", "deleted /ws/d", "modified /ws/m")
	if f := r.Outside[0]; f.Event == nil || *f.Event != 5 || f.Process != 2 || f.Op != "open" {
		t.Errorf("got %+v, want event 5, an open by process 2", f)
	}
	if !r.Conclusive() || Conclude([]Result{r}) != Outside || r.Changed != 4 {
		t.Errorf("got %+v", r)
	}
	// The control: all of it is allowed.
	r = Judge(policy(t, "out/**", "?"), ev)
	if same(t, "all allowed", outside(r)); Conclude([]Result{r}) != Within {
		t.Errorf("got %+v, want it within", r)
	}
	// An absolute pattern means the absolute path.
	same(t, "absolute", outside(Judge(policy(t, "/ws/**"), ev)))
	same(t, "other folder", outside(Judge(policy(t, "/other/**", "out/*"), ev)), "added /ws/a", "deleted /ws/d", "modified /ws/m")
	if Conclude(nil) != Inconclusive {
		t.Error("no result concludes something")
	}
}

// What was written out of the footprint shows although it is as before at the end.
func TestRT58b_WrittenAndRestored(t *testing.T) {
	ev := evidence("key", "keep", "out")
	ev.Writes = []Write{
		{Op: "open", Path: "key"},                                              // and written back
		{Op: "open", Path: "conftest.py"}, {Op: "unlink", Path: "conftest.py"}, // made and removed
		{Op: "utime", Path: "keep", Times: true}, // a time only
		{Op: "open", Path: "out/x"}, {Op: "unlink", Path: "out/x"},
	}
	r := Judge(policy(t, "out/**"), ev)
	same(t, "outside", outside(r), "transient /ws/conftest.py", "restored /ws/key")
	if Conclude([]Result{r}) != Outside {
		t.Errorf("got %+v", r)
	}
	same(t, "allowed", outside(Judge(policy(t, "out/**", "key", "conftest.py"), ev)))

	// What is named is who wrote, not who set the times behind it.
	ev.Writes = []Write{{Op: "utime", Path: "key", Times: true, Event: 1}, {Op: "open", Path: "key", Event: 2}, {Op: "utime", Path: "key", Times: true, Event: 3, Process: 9}}
	if r := Judge(policy(t, "out/**"), ev); len(r.Outside) != 1 || r.Outside[0].Event == nil || *r.Outside[0].Event != 2 || r.Outside[0].Op != "open" {
		t.Errorf("times behind a write: got %+v", r.Outside)
	}

	// Through a second name in the footprint, also one that was renamed.
	for _, writes := range [][]Write{
		{{Op: "link", Path: "out/l", Of: "key"}, {Op: "open", Path: "out/l"}},
		{{Op: "link", Path: "out/l", Of: "key"}, {Op: "rename", Path: "out/l", To: "out/m"}, {Op: "rename", Path: "out/m"}, {Op: "open", Path: "out/m"}},
		{{Op: "link", Path: "out/d/l", Of: "key"}, {Op: "rename", Path: "out/d", To: "out/e"}, {Op: "rename", Path: "out/e"}, {Op: "truncate", Path: "out/e/l"}},
	} {
		ev.Writes = writes
		same(t, "by another name", outside(Judge(policy(t, "out/**"), ev)), "restored /ws/key")
	}
	// A link alone, or one that is gone before the name is used again, writes nothing there.
	for _, writes := range [][]Write{
		{{Op: "link", Path: "out/l", Of: "key"}},
		{{Op: "link", Path: "out/l", Of: "key"}, {Op: "unlink", Path: "out/l"}, {Op: "open", Path: "out/l"}},
	} {
		ev.Writes = writes
		same(t, "a link", outside(Judge(policy(t, "out/**"), ev)))
	}
}

// The two observers must agree.
func TestUnexplainedChangeIsInconclusive(t *testing.T) {
	ev := evidence("d", "d/x")
	ev.Changes = []Change{{Path: "out", Kind: Added}}
	r := Judge(policy(t, "out"), ev)
	if same(t, "unexplained", r.Unexplained, "/ws/out"); Conclude([]Result{r}) != Inconclusive {
		t.Errorf("got %+v, want it inconclusive", r)
	}
	ev.Writes = []Write{{Op: "open", Path: "out"}}
	if r = Judge(policy(t, "out"), ev); Conclude([]Result{r}) != Within {
		t.Errorf("got %+v, want it within", r)
	}
	// A folder that moves explains what is below, and is a change of both names.
	ev.Changes = []Change{{Path: "d", Kind: Deleted}, {Path: "d/x", Kind: Deleted}, {Path: "out", Kind: Added, Dir: true}, {Path: "out/x", Kind: Added}}
	ev.Writes = []Write{{Op: "rename", Path: "d", To: "out"}, {Op: "rename", Path: "out"}}
	r = Judge(policy(t, "out/**"), ev)
	same(t, "unexplained", r.Unexplained)
	same(t, "outside", outside(r), "deleted /ws/d", "deleted /ws/d/x")
}

// What somebody else changes while the run is on, also after its last look.
func TestRT58c_ChangedByOthersIsInconclusive(t *testing.T) {
	ev := evidence("key")
	ev.Drift = []Change{{Path: "key", Kind: Modified}}
	r := Judge(policy(t, "**"), ev) // that it is allowed to the run says nothing
	if same(t, "drift", r.Drift, "/ws/key"); Conclude([]Result{r}) != Inconclusive {
		t.Errorf("got %+v, want it inconclusive", r)
	}
	ev.Drift = nil
	if r = Judge(policy(t, "**"), ev); Conclude([]Result{r}) != Within {
		t.Errorf("got %+v, want it within", r)
	}
}

func TestRT58d_UnreadableBothTimesIsInconclusive(t *testing.T) {
	m := func(gaps ...Gap) *Manifest {
		m, err := Build(slices.Values([]Entry{{Path: ".", Mode: fs.ModeDir}, {Path: "k"}}), gaps)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for _, c := range []struct {
		before, after *Manifest
		want          string
	}{
		{m(Gap{"k", GapUnreadable}), m(Gap{"k", GapUnreadable}), "before and after: unreadable"},
		{m(Gap{"k", GapUnreadable}), m(), "unreadable"},
		{m(), m(Gap{"k", GapUnreadable}), "unreadable"},
	} {
		changes, gaps := Diff(c.before, c.after)
		if len(changes) != 0 || len(gaps) != 1 || gaps[0] != (Gap{"k", c.want}) {
			t.Errorf("got %v and %v, want the gap k: %s", changes, gaps, c.want)
		}
		ev := evidence()
		ev.Gaps = gaps
		if r := Judge(policy(t), ev); r.Conclusive() || r.Gaps[0].Path != "/ws/k" {
			t.Errorf("got %+v, want it inconclusive with the path", r)
		}
	}
	if changes, gaps := Diff(m(), m()); len(changes)+len(gaps) != 0 {
		t.Errorf("got %v and %v for equal manifests", changes, gaps)
	}
}

func TestRT58e_OnlyWhatTheSourceCompilesToIsLeftOut(t *testing.T) {
	ev := evidence("m.py")
	verdict := ""
	ev.Compiled = func(c Compiled) string {
		if c.Source != "m.py" || c.Tag != "cpython-311" {
			t.Errorf("got %+v", c)
		}
		return verdict
	}
	const cache = "__pycache__/m.cpython-311.pyc"
	ev.Changes = []Change{{Path: "__pycache__", Kind: Added, Dir: true}, {Path: cache, Kind: Added}}
	ev.Writes = []Write{{Op: "mkdir", Path: "__pycache__"}, {Op: "open", Path: cache + ".140"}, {Op: "rename", Path: cache + ".140", To: cache}, {Op: "rename", Path: cache}}
	r := Judge(policy(t), ev)
	same(t, "honest", outside(r))
	same(t, "named all the same", r.Compiled, "/ws/"+cache)
	verdict = "it is not what its source compiles to"
	r = Judge(policy(t), ev)
	same(t, "poisoned", outside(r), "added /ws/__pycache__", "added /ws/"+cache, "transient /ws/"+cache+".140")
	if r.Outside[1].Why != verdict {
		t.Errorf("got why %q, want %q", r.Outside[1].Why, verdict)
	}
	verdict = ""
	// Everything else counts, and the folder with it.
	for _, name := range []string{"__pycache__/answers.txt", "__pycache__/x.pyc", "conftest.py", "sitecustomize.py", "lib/evil.pth", "m.pyc", "__pycache__/sub/m.cpython-311.pyc.x"} {
		ev := ev
		ev.Changes = append(slices.Clone(ev.Changes), Change{Path: name, Kind: Added})
		ev.Writes = append(slices.Clone(ev.Writes), Write{Op: "open", Path: name})
		want := []string{"added /ws/" + name}
		if strings.HasPrefix(name, "__pycache__/") {
			want = []string{"added /ws/__pycache__", "added /ws/" + name}
		}
		same(t, name, outside(Judge(policy(t), ev)), want...)
	}
	// One that was removed, or written and restored, is no cache that Python filled.
	ev.Changes, ev.Writes = []Change{{Path: cache, Kind: Deleted}}, []Write{{Op: "unlink", Path: cache}}
	same(t, "deleted", outside(Judge(policy(t), ev)), "deleted /ws/"+cache)
	ev.Changes, ev.Writes = nil, []Write{{Op: "open", Path: cache}}
	same(t, "made and gone", outside(Judge(policy(t), ev)), "transient /ws/"+cache)
}

func TestPolicy(t *testing.T) {
	if _, err := NewPolicy([]string{"a", "a"}); err == nil {
		t.Error("a pattern twice: got no error")
	}
	if _, err := NewPolicy([]string{"../a"}); err == nil {
		t.Error("a bad pattern: got no error")
	}
	p := policy(t, "out/*")
	q, err := p.Widen("sample-7", []byte(`{"allowed": ["tmp/**"]}`))
	if err != nil || !q.Allows("/ws", "tmp/x") || !q.Allows("/ws", "out/x") || p.Allows("/ws", "tmp/x") {
		t.Errorf("got %v, %v; want both, and the first policy as it was", q.Allowed(), err)
	}
	for _, bad := range []string{``, `null`, `[]`, `{}`, `{"allowed": "x"}`, `{"allowed": [7]}`, `{"allowed": ["x"], "gate": false}`, `{"allowed": ["x"], "roots": []}`,
		`{"allowed": ["x"]} {}`, `{"allowed": ["a//b"]}`, `{"allowed": null}`} {
		if _, err := p.Widen("sample-7", []byte(bad)); err == nil || !strings.Contains(err.Error(), `"sample-7"`) {
			t.Errorf("%s: got %v, want an error that names the sample", bad, err)
		}
	}
}

func TestNamesThatAreNotText(t *testing.T) {
	ev := evidence()
	ev.Changes = []Change{{Path: "a\nb", Kind: Added}, {Path: "a\xffb", Kind: Added}}
	r := Judge(policy(t), ev)
	same(t, "outside", outside(r), `added "/ws/a\xffb"`, "added /ws/a\nb")
	b, err := json.Marshal(r)
	if err != nil || !strings.Contains(string(b), `a\\xffb`) || strings.Contains(string(b), `\ufffd`) {
		t.Errorf("got %s, %v; want the byte spelled", b, err)
	}
}
