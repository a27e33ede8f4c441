package blob

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"

	"github.com/cleanrun-dev/cleanrun/surface"
)

func fill(t *testing.T, b *blob.Bucket) {
	t.Helper()
	for key, v := range map[string]struct {
		text string
		meta map[string]string
	}{
		"runs/1/out.txt": {"the answer", map[string]string{"attempt": "1"}}, "runs/2/out.txt": {"something else", map[string]string{"attempt": "2"}},
		"runs/2/raw.bin": {"\x00\xff\xfe", nil}, "other": {"the answer", nil}, "empty": {"", nil},
	} {
		if err := b.WriteAll(context.Background(), key, []byte(v.text), &blob.WriterOptions{Metadata: v.meta}); err != nil {
			t.Fatal(err)
		}
	}
}

func ask(t *testing.T, s surface.Source, l surface.Location, text string, scope surface.Scope) (surface.Result, *surface.Observation) {
	t.Helper()
	m := surface.Matcher{}
	if text != "" {
		m = surface.Matcher{Kind: surface.Contains, Text: text}
	}
	c, err := surface.NewCondition(l, m)
	if err != nil {
		t.Fatal(err)
	}
	o, err := surface.Observe(context.Background(), s, l, scope, surface.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	r, err := surface.Judge(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, o
}

func TestBuckets(t *testing.T) {
	dir := t.TempDir()
	file, err := fileblob.OpenBucket(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*blob.Bucket{"file": file, "memory": memblob.OpenBucket(nil)} {
		fill(t, b)
		s := &Source{Bucket: b, Name: name}
		for _, c := range []struct {
			at   surface.Location
			text string
			want surface.Outcome
			why  surface.Reason
		}{
			{surface.Location{Path: "runs/1/out.txt"}, "answer", surface.True, ""}, {surface.Location{Path: "runs/2/out.txt"}, "answer", surface.False, ""},
			{surface.Location{Path: "runs/3/out.txt"}, "answer", surface.False, ""}, {surface.Location{Path: "runs/1"}, "answer", surface.False, ""}, // a bucket has no folders
			{surface.Location{Path: "empty"}, "", surface.False, ""}, {surface.Location{Path: "runs/2/raw.bin"}, "answer", surface.Undetermined, surface.NotText},
			{surface.Location{Path: "runs/**/*.txt", Glob: true}, "answer", surface.True, ""}, {surface.Location{Path: "runs/**/*.txt", Glob: true}, "question", surface.False, ""},
			{surface.Location{Path: "runs/**", Glob: true}, "question", surface.Undetermined, surface.NotText},
		} {
			r, o := ask(t, s, c.at, c.text, surface.Scope{})
			if r.Outcome != c.want || c.why != "" && (len(r.Reasons) != 1 || r.Reasons[0].Reason != c.why) {
				t.Errorf("%s %v %q: got %v %v, want %v %s", name, c.at, c.text, r.Outcome, r.Reasons, c.want, c.why)
			}
			if o.Source.Kind != "blob" || o.Source.Version != name {
				t.Errorf("%s: got source %+v", name, o.Source)
			}
		}
		all := surface.Location{Path: "runs/*/out.txt", Glob: true}
		for attempt, want := range map[string]surface.Outcome{"1": surface.True, "2": surface.False} {
			r, o := ask(t, s, all, "answer", surface.Scope{Labels: []surface.Label{{Name: "attempt", Value: attempt}}})
			if r.Outcome != want || len(o.Entries) != 1 || len(o.Outside) != 1 {
				t.Errorf("%s label %s: got %v, %d entries, %v outside, want %v", name, attempt, r.Outcome, len(o.Entries), o.Outside, want)
			}
		}
		// An attempt's id is nothing that a bucket keeps.
		if r, o := ask(t, s, all, "question", surface.Scope{Attempt: "1"}); r.Outcome != surface.Undetermined || len(o.NotApplied) != 1 {
			t.Errorf("%s: got %v, want undetermined: whose object it is cannot be told", name, r.Outcome)
		}
		b.Close()
		if r, o := ask(t, s, all, "answer", surface.Scope{}); o.Acquisition != surface.Unavailable || r.Outcome != surface.Undetermined {
			t.Errorf("%s closed: got %v, %v", name, o.Acquisition, r.Outcome)
		}
	}
}

// Keys are any text: those that are no locations are not taken for other ones.
func TestKeysThatAreNoLocations(t *testing.T) {
	b := memblob.OpenBucket(nil)
	defer b.Close()
	for _, key := range []string{"a/../b", "a//b", "/b", "a/./b"} {
		if err := b.WriteAll(context.Background(), key, []byte("the answer"), nil); err != nil {
			t.Fatal(err)
		}
	}
	r, _ := ask(t, &Source{Bucket: b}, surface.Location{Path: "**", Glob: true}, "answer", surface.Scope{})
	if r.Outcome != surface.Undetermined || len(r.Reasons) != 1 || r.Reasons[0].Reason != surface.UnsafeName || r.Reasons[0].Count != 4 {
		t.Errorf("got %v %v, want four unsafe names", r.Outcome, r.Reasons)
	}
}

// With the file driver a time is the file's; only a store that sets times itself says
// that an object was there before.
func TestTimes(t *testing.T) {
	dir := t.TempDir()
	b, err := fileblob.OpenBucket(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	fill(t, b)
	if err := os.Chtimes(filepath.Join(dir, "other"), time.Unix(5, 0), time.Unix(5, 0)); err != nil {
		t.Fatal(err)
	}
	w := surface.Scope{Window: &surface.Window{From: 10e9, To: 1 << 62}}
	for server, want := range map[bool]string{false: "undetermined time-unproven", true: "false"} {
		r, o := ask(t, &Source{Bucket: b, ServerTimes: server}, surface.Location{Path: "other"}, "answer", w)
		got := r.Outcome.String()
		for _, g := range r.Reasons {
			got += " " + string(g.Reason)
		}
		if got != want || server != (len(o.Outside) == 1) {
			t.Errorf("server times %v: got %s, %v outside, want %s", server, got, o.Outside, want)
		}
	}
}

func TestCancelledAndCut(t *testing.T) {
	b := memblob.OpenBucket(nil)
	defer b.Close()
	fill(t, b)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o, err := surface.Observe(ctx, &Source{Bucket: b}, surface.Location{Path: "**", Glob: true}, surface.Scope{}, surface.DefaultLimits)
	if err != nil || o.Acquisition != surface.Partial || len(o.Entries) > 0 {
		t.Errorf("cancelled: got %+v %v", o, err)
	}
	limits := surface.DefaultLimits
	limits.Entries = 2
	o, err = surface.Observe(context.Background(), &Source{Bucket: b}, surface.Location{Path: "**", Glob: true}, surface.Scope{}, limits)
	if _, ok := o.Gap(surface.EntryLimit); err != nil || !ok || o.Acquisition != surface.Partial {
		t.Errorf("two entries: got %+v %v", o, err)
	}
	if !strings.Contains(errors.Join(surface.Limits{}.Check()).Error(), "above zero") {
		t.Error("no limits were taken")
	}
}
