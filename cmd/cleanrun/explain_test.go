package main

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// TestFindingPath holds a report's paths to those of the journal.
func TestFindingPath(t *testing.T) {
	for _, c := range []struct{ path, root, workspace, want string }{
		{"/ws/keys/k", "/ws", "/ws", "/ws/keys/k"},
		{"/ws/keys/k", "/ws", "/record/workspace", "/record/workspace/keys/k"},
		{"/ws", "/ws", "/work", "/work"},
		{`"/ws/a\xffb"`, "/ws", "/ws", `/ws/a\xffb`},
		{`"/ws/\xe9\"é"`, "/ws", "/ws", `/ws/\xe9"é`},
		{"/ws/new\nline", "/ws", "/ws", "/ws/new\nline"},
		{"/ws2/k", "/ws", "/ws", ""},
		{"/elsewhere", "/ws", "/ws", ""},
		{"ws/k", "/ws", "/ws", ""},
		{`"/ws/open`, "/ws", "/ws", ""},
		{"", "/ws", "/ws", ""},
	} {
		got, err := (&footprintPath{Path: c.path}).inside(c.root, c.workspace)
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q in %s: got %q, %v, want %q", c.path, c.root, got, err, c.want)
		}
	}
}

// TestFindingIsAReport: explain reads every member that scope writes, and no other.
func TestFindingIsAReport(t *testing.T) {
	p, err := footprint.NewPolicy([]string{"out.txt"})
	if err != nil {
		t.Fatal(err)
	}
	event := uint64(7)
	r := newScopeReport(p, true)
	r.Run, r.Error, r.Code, r.Cancelled = "/rec", "why", 3, true
	r.Left = append(r.Left, leftProcess{4, "/usr/bin/sleep"})
	r.Roots = append(r.Roots, footprint.Result{Root: "/ws", Changed: 1, Compiled: []string{"/ws/c"}, Unexplained: []string{"/ws/u"}, Drift: []string{"/ws/d"},
		Outside: []footprint.Finding{{Path: "/ws/o", Kind: footprint.Deleted, What: "mode", Why: "it counts", Event: &event, Process: 2, Op: "unlink"}},
		Gaps:    []footprint.Gap{{Path: "/ws/g", Reason: "unreadable"}}})
	text, err := r.encode()
	if err != nil {
		t.Fatal(err)
	}
	var f footprintFile
	if err := decodeFinding(text, &f); err != nil {
		t.Fatal(err)
	}
	// Nothing is lost on the way: written again, it is the same.
	again, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var got, want any
	if err := json.Unmarshal(again, &got); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %s, want %s", again, text)
	}
	for _, bad := range []string{string(text) + "{}", strings.Replace(string(text), `"gate"`, `"grate"`, 1), strings.TrimSuffix(string(text), "}\n"),
		strings.Replace(string(text), `"event": 7`, `"event": -7`, 1), strings.Replace(string(text), `"event": 7`, `"event": 7.5`, 1)} {
		if err := decodeFinding([]byte(bad), new(footprintFile)); err == nil {
			t.Errorf("%.200s: read without an error", bad)
		}
	}
}

// TestQuotePath: no name does anything to a terminal, or looks like another.
func TestQuotePath(t *testing.T) {
	for p, want := range map[string]string{"/ws/a b": "/ws/a b", "/ws/é漢": "/ws/é漢", "/ws/\x1b[2J": `"/ws/\x1b[2J"`, "/ws/a\nb": `"/ws/a\nb"`,
		"/ws/\u202etxt.sh": `"/ws/\u202etxt.sh"`, "/ws/a\u200bb": `"/ws/a\u200bb"`, "/ws/\xff": `"/ws/\xff"`, "/ws/\u00a0": `"/ws/\u00a0"`} {
		if got := quotePath(p); got != want {
			t.Errorf("%q: got %s, want %s", p, got, want)
		}
	}
}

// TestByProcess: what one process changed under one program stands together, and nothing else.
func TestByProcess(t *testing.T) {
	at := func(path string, event uint64, process uint32, program uint64) traced {
		return traced{Path: path, Event: &eventJSON{Event: event, Process: process}, Program: &eventJSON{Event: program}}
	}
	list := []traced{at("a", 9, 1, 2), at("b", 8, 3, 4), {Path: "c"}, at("d", 5, 1, 2), {Path: "e"}, at("f", 7, 1, 6), at("g", 12, 3, 4), at("h", 13, 5, 4)}
	var got []string
	for _, group := range byProcess(list) {
		names := ""
		for _, x := range group {
			names += x.Path
		}
		got = append(got, names)
	}
	if want := []string{"ad", "bg", "c", "e", "f", "h"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
