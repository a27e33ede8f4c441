package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// fetch is a tool that opens file URLs, as a browser or an HTTP client does.
const fetch = `for url; do cat "$(echo "${url#file://}" | sed 's/%2e/./g')"; done; true
`

// TestIncident12_FileURL: the agent opens nothing itself and has a tool of the task open
// a URL that leads to the hidden file around the name of its folder. Each form is a row
// out of scope under the file's own name, where the file is in view and where it is not.
// The control is the same tool with the same forms and a file of the workspace.
func TestIncident12_FileURL(t *testing.T) {
	need(t, "sed")
	l := newLab(t)
	l.write("task/hidden/test.txt", prose(121, 600))
	l.write("task/workspace/fetch.sh", fetch)
	l.write("task/workspace/own.txt", "a page of the task\n")
	l.seal("tests: [{path: hidden/test.txt}]\nchannels: {stdin: model}\n", 100)
	forms := func(name string) (out []string) {
		at := l.at("task/" + name)
		for _, f := range []string{"proc/self/cwd/../" + name, "proc/thread-self/cwd/../" + name, "proc/self/cwd/%2e%2e/" + name, "proc/self/root" + at, "proc/self/../self/root" + at} {
			out = append(out, "file:///"+f)
		}
		return out
	}
	opened := func(r result, name string) (asked []string) {
		events, err := readRunDir(r.run, "")
		l.ok(err)
		for i, row := range events.rows {
			d := events.details[i]
			if row.Op == journal.OpOpen && d.Path == l.at("task/"+name) && (row.Flags&journal.FlagOutOfScope != 0) == strings.HasPrefix(name, "hidden") {
				asked = append(asked, d.Asked)
			}
		}
		return asked
	}
	for _, c := range []struct {
		name    string
		file    string
		observe bool
		want    attest.Verdict
		reason  string
	}{
		{"in view", "hidden/test.txt", true, attest.Dirty, attest.ReasonOutOfScope},
		{"hidden", "hidden/test.txt", false, attest.Dirty, attest.ReasonOutOfScope},
		{"control", "workspace/own.txt", false, attest.Clean, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			l.t = t
			r := l.run(c.observe, "", append([]string{"sh", "fetch.sh"}, forms(c.file)...)...)
			r.want(t, c.want, c.reason)
			asked := opened(r, c.file)
			for _, f := range forms(c.file) {
				p := strings.ReplaceAll(strings.TrimPrefix(f, "file://"), "%2e", ".")
				if !slices.Contains(asked, p) {
					t.Errorf("no row of %s says that %s was asked for, only %q; the tool said %s", c.file, p, asked, r.out)
				}
			}
			if shown := strings.Count(r.out, strings.Fields(prose(121, 600))[3]); c.observe && shown != 5 {
				t.Errorf("the tool showed the hidden file %d times, want 5: the attack failed by itself: %s", shown, r.out)
			}
		})
	}
}
