package redact

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The list in the specification is the one in the code.
func TestSpecShapes(t *testing.T) {
	text, err := os.ReadFile("../../spec/recorder.md")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| ((?:`[^`]+` ?)+) \\| ([0-9].*) \\|$")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		for p := range strings.FieldsSeq(m[1]) {
			got[strings.Trim(p, "`")] = m[2]
		}
	}
	for _, s := range Shapes() {
		want := strconv.Itoa(s.Min) + " " + s.Rest
		if s.Max != s.Min {
			want = strconv.Itoa(s.Min) + " to " + strconv.Itoa(s.Max) + " " + s.Rest
		}
		if got[s.Prefix] != want {
			t.Errorf("%s: the specification says %q, want %q", s.Prefix, got[s.Prefix], want)
		}
		delete(got, s.Prefix)
	}
	for p := range got {
		t.Errorf("%s: in the specification, not in the code", p)
	}
}
