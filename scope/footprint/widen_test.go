package footprint

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// Whatever metadata says, what was allowed before still is, and nothing else changes.
func TestWideningNeverWeakens(t *testing.T) {
	base := policy(t, "out/*", "/srv/data/**")
	for _, c := range []struct {
		metadata string
		want     []string // nil: refused
	}{
		{`{"allowed": ["tmp/**", "notes.txt"]}`, []string{"out/*", "/srv/data/**", "tmp/**", "notes.txt"}},
		{" {\"allowed\":\n[]} ", []string{"out/*", "/srv/data/**"}},
		{`{"allowed": ["caf\u00e9"]}`, []string{"out/*", "/srv/data/**", "café"}},
		{`{"allowed": ["a"], "allowed": ["b"]}`, nil}, // one reader takes the first, another the last
		{`{"Allowed": ["a"]}`, nil},
		{`{"allowed": ["a"], "outside": "report"}`, nil},
		{`{"outside": "report", "allowed": ["a"]}`, nil},
		{`{"allowed": ["a"], "roots": ["/"]}`, nil},
		{`{"allowed": ["a"], "gate": false}`, nil},
		{`{"allowed": [null]}`, nil},
		{`{"allowed": [["a"]]}`, nil},
		{`{"allowed": ["a", "a"]}`, nil},
		{`{"allowed": ["../a"]}`, nil},
		{`{"allowed": ["a\ud800"]}`, nil}, // half a surrogate pair
		{"{\"allowed\": [\"a\xff\"]}", nil},
		{`{"allowed": ["a"]`, nil},
		{`{"allowed": ["a",]}`, nil},
		{`{"allowed" ["a"]}`, nil},
		{`{"allowed": ["a"]} x`, nil},
		{`["a"]`, nil},
		{`"{\"allowed\": [\"a\"]}"`, nil}, // text, no object
		{`{"allowed": ["` + strings.Repeat("a", maxMetadata) + `"]}`, nil},
	} {
		got, err := base.Widen("sample-7", []byte(c.metadata))
		switch {
		case c.want == nil && (err == nil || !strings.Contains(err.Error(), `sample "sample-7": `)):
			t.Errorf("%.60s: got %v, %v; want an error that names the sample", c.metadata, got.Allowed(), err)
		case c.want != nil && (err != nil || !slices.Equal(got.Allowed(), c.want)):
			t.Errorf("%.60s: got %q, %v; want %q", c.metadata, got.Allowed(), err, c.want)
		}
	}
	if !slices.Equal(base.Allowed(), []string{"out/*", "/srv/data/**"}) {
		t.Errorf("the first policy became %q", base.Allowed())
	}
}

// What is taken is what encoding/json reads too, and begins with the policy as it was.
func FuzzWiden(f *testing.F) {
	for _, s := range []string{`{"allowed": ["a/**"]}`, `{"allowed": []}`, `{"allowed": ["a"], "allowed": []}`, `{"allowed": ["\u0061"]}`, `{"allowed": [{}]}`, `{`, `null`} {
		f.Add([]byte(s))
	}
	base, err := NewPolicy([]string{"out/*"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, metadata []byte) {
		got, err := base.Widen("s", metadata)
		if err != nil {
			if len(got.Allowed()) != 0 {
				t.Fatalf("got %q with %v", got.Allowed(), err)
			}
			return
		}
		var oracle struct{ Allowed []string }
		d := json.NewDecoder(bytes.NewReader(metadata))
		d.DisallowUnknownFields()
		if err := d.Decode(&oracle); err != nil || !slices.Equal(got.Allowed(), append([]string{"out/*"}, oracle.Allowed...)) {
			t.Fatalf("%q: got %q, want %q, %v", metadata, got.Allowed(), oracle.Allowed, err)
		}
	})
}
