package surface

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func exact(p string) Location { return Location{Path: p} }
func glob(p string) Location  { return Location{Path: p, Glob: true} }

func condition(t *testing.T, l Location, k MatcherKind, text string) Condition {
	t.Helper()
	c, err := NewCondition(l, Matcher{Kind: k, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func observe(t *testing.T, s Source, l Location, limits Limits) *Observation {
	t.Helper()
	o, err := Observe(context.Background(), s, l, Scope{}, limits)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func judge(t *testing.T, c Condition, o *Observation) Result {
	t.Helper()
	r, err := Judge(c, o)
	if err != nil {
		t.Fatal(err)
	}
	if (r.Outcome == Undetermined) != (len(r.Reasons) > 0) || (r.Outcome == True) != (r.Entry != nil) {
		t.Fatalf("got %+v: reasons and entry do not fit the outcome", r)
	}
	return r
}

// tree makes files below a new folder: a name that ends in / is a folder, a content
// that begins with -> a link.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(mapKeys(files)) {
		p := filepath.Join(root, filepath.FromSlash(name))
		err := os.MkdirAll(filepath.Dir(p), 0o700)
		target, link := strings.CutPrefix(files[name], "->")
		switch {
		case err != nil:
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(p, 0o700)
		case link:
			err = os.Symlink(target, p)
		default:
			err = os.WriteFile(p, []byte(files[name]), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func mapKeys(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// want checks outcome and reasons of one question to one folder.
func want(t *testing.T, r Result, outcome Outcome, reasons ...string) {
	t.Helper()
	var got []string
	for _, g := range r.Reasons {
		got = append(got, fmt.Sprintf("%s %s %d", g.Reason, g.Location, g.Count))
	}
	if r.Outcome != outcome || !slices.Equal(got, reasons) {
		t.Errorf("got %v %q, want %v %q", r.Outcome, got, outcome, reasons)
	}
}

type sourceFunc func(context.Context, Location, *Collector)

func (f sourceFunc) Describe() Description                               { return Description{Kind: "test"} }
func (f sourceFunc) List(ctx context.Context, at Location, c *Collector) { f(ctx, at, c) }
