package surface

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// One thing is wrong with each, and it is named.
func TestParseRefuses(t *testing.T) {
	good := func() *Observation {
		d := sum("x")
		return &Observation{Source: Description{Kind: "test"}, Location: glob("*"), Scope: Scope{Window: &Window{1, 9}, Labels: []Label{{"a", "b"}}, Attempt: "t"},
			NotApplied: []Key{KeyLabels}, Acquisition: Partial, Outside: []Outside{{KeyWindow, 2}, {KeyAttempt, 1}}, Gaps: []Gap{{Cancelled, "", 1}, {ReadFailed, "q", 3}},
			Entries: []Entry{{Location: "a", Size: 1, SHA256: &d, Modified: at(3), Encoding: UTF8, Text: "x"}, {Location: "b", Size: 4, Gap: ReadLimit, Encoding: UTF8, Text: "y"}}}
	}
	if b, err := Format(good()); err != nil {
		t.Fatal(err)
	} else if _, err := Parse(b); err != nil {
		t.Fatal(err)
	}
	other := sum("y")
	for name, c := range map[string]struct {
		edit func(*Observation)
		want string
	}{
		"no kind":                         {func(o *Observation) { o.Source.Kind = "" }, "source"},
		"acquisition":                     {func(o *Observation) { o.Acquisition = 5 }, "acquisition 5"},
		"complete, yet cancelled":         {func(o *Observation) { o.Acquisition = Complete }, "say otherwise"},
		"partial without a reason":        {func(o *Observation) { o.Gaps = o.Gaps[1:] }, "say otherwise"},
		"unknown reason":                  {func(o *Observation) { o.Gaps[0].Reason = "because" }, "gap"},
		"reason of an entry":              {func(o *Observation) { o.Gaps[1].Reason = TextLimit }, "gap"},
		"gaps unsorted":                   {func(o *Observation) { slices.Reverse(o.Gaps) }, "gap"},
		"gap counted 0":                   {func(o *Observation) { o.Gaps[1].Count = 0 }, "gap"},
		"not applied, not asked":          {func(o *Observation) { o.Scope.Labels = nil }, "not applied"},
		"outside of what was not applied": {func(o *Observation) { o.Outside[1].Key = KeyLabels }, "outside"},
		"outside counted 0":               {func(o *Observation) { o.Outside[0].Count = 0 }, "outside"},
		"window backwards":                {func(o *Observation) { o.Scope.Window.To = 0 }, "window"},
		"labels unsorted":                 {func(o *Observation) { o.Scope.Labels = []Label{{"b", ""}, {"a", ""}} }, "label"},
		"location climbs":                 {func(o *Observation) { o.Location.Path = "../*" }, ".."},
		"entry elsewhere":                 {func(o *Observation) { o.Entries[0].Location = "a/b" }, "not at"},
		"entry twice":                     {func(o *Observation) { o.Entries[1].Location = "a" }, "sorted"},
		"entries unsorted":                {func(o *Observation) { slices.Reverse(o.Entries) }, "sorted"},
		"text of another digest":          {func(o *Observation) { o.Entries[0].SHA256 = &other }, "size and digest"},
		"text of another size":            {func(o *Observation) { o.Entries[0].Size = 2 }, "size and digest"},
		"whole without digest":            {func(o *Observation) { o.Entries[0].SHA256 = nil }, "size and digest"},
		"whole without encoding":          {func(o *Observation) { o.Entries[0].Encoding = NoText }, "encoding"},
		"unknown encoding":                {func(o *Observation) { o.Entries[0].Encoding = 4 }, "encoding"},
		"text not UTF-8":                  {func(o *Observation) { o.Entries[0].Text = "\xff" }, "encoding"},
		"gap of coverage":                 {func(o *Observation) { o.Entries[1].Gap = ReadFailed }, "gap"},
		"text of what is none":            {func(o *Observation) { o.Entries[1].Gap = NotText }, "what is none"},
		"before the window":               {func(o *Observation) { o.Entries[0].Changed = at(0) }, "outside the window"},
		"event without a journal":         {func(o *Observation) { o.Entries[0].Event = &Event{Seq: 1, How: Wrote, Fate: Kept} }, "have an event"},
		"journal without events":          {func(o *Observation) { o.Source.Kind = Journal }, "have an event"},
	} {
		o := good()
		c.edit(o)
		err := o.Check()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want it to say %q", name, err, c.want)
		}
		if _, err := Format(o); err == nil {
			t.Errorf("%s: it was written", name)
		}
		if _, err := Judge(Condition{Location: o.Location}, o); err == nil {
			t.Errorf("%s: it was judged", name)
		}
	}
	for name, e := range map[string]*Event{
		"how": {Seq: 1, How: 0, Fate: Kept}, "found with a row": {Seq: 1, How: Found, Fate: Kept}, "wrote without a row": {How: Wrote, Fate: Kept},
		"kept and ended": {Seq: 1, How: Wrote, Fate: Kept, End: 2}, "deleted without a row": {Seq: 1, How: Wrote, Fate: Deleted}, "ended before": {Seq: 3, How: Wrote, Fate: Deleted, End: 3},
	} {
		o := good()
		o.Source.Kind, o.Entries = Journal, o.Entries[:1]
		o.Entries[0].Event = e
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), "got event") {
			t.Errorf("event %s: got %v", name, err)
		}
	}
}

func TestParseIsStrict(t *testing.T) {
	b, err := Format(observe(t, held(map[string]string{"f": "text"}, nil), exact("f"), DefaultLimits))
	if err != nil {
		t.Fatal(err)
	}
	for i := range b {
		for _, bit := range []byte{1, 0x20, 0x80} {
			c := bytes.Clone(b)
			c[i] ^= bit
			if o, err := Parse(c); err == nil {
				if d, err := Format(o); err != nil || !bytes.Equal(c, d) {
					t.Fatalf("byte %d: %x was read and is written otherwise", i, c)
				}
			}
		}
	}
	if _, err := Parse(append(bytes.Clone(b), 0)); err == nil {
		t.Error("a byte behind was taken")
	}
	if _, err := Parse(bytes.Replace(b, []byte(Version), []byte("cleanrun/observation/v2"), 1)); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("another version: %v", err)
	}
	var w wire
	if err := dcbor.Unmarshal(b, &w); err != nil {
		t.Fatal(err)
	}
	w.NotApplied = []keyNumber{300}
	if b, err := dcbor.Marshal(&w); err != nil {
		t.Fatal(err)
	} else if _, err := Parse(b); err == nil {
		t.Error("a key of 300 was taken")
	}
}

func FuzzParse(f *testing.F) {
	d := sum("x")
	for _, o := range []*Observation{
		{Source: Description{Kind: "test", Version: "1"}, Location: glob("**"), Scope: Scope{Window: &Window{1, 9}}, Acquisition: Complete,
			Outside: []Outside{{KeyWindow, 2}}, Gaps: []Gap{{ReadFailed, "q", 3}}, Entries: []Entry{{Location: "a\n\xff", Size: 1, SHA256: &d, Modified: at(3), Encoding: UTF8, Text: "x"}}},
		{Source: Description{Kind: Journal}, Location: exact("a"), Acquisition: Complete, Entries: []Entry{{Location: "a", Size: 1, SHA256: &d, Encoding: UTF8, Text: "x", Event: &Event{Seq: 4, How: Wrote, Fate: Deleted, End: 9}}}},
	} {
		b, err := Format(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := Parse(b)
		if err != nil {
			return
		}
		if c, err := Format(o); err != nil || !bytes.Equal(b, c) {
			t.Fatalf("%x is written as %x (%v)", b, c, err)
		}
		for _, m := range []Matcher{{}, {Kind: Contains, Text: "x"}, {Kind: Equals, Text: "x"}} {
			r, err := Judge(Condition{Location: o.Location, Matcher: m}, o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Outcome == False && (o.Acquisition != Complete || len(o.Gaps) > 0) {
				t.Fatal("a no from what was not all seen")
			}
		}
	})
}

func FuzzDecodeText(f *testing.F) {
	for _, s := range []string{"text", "€", "\xff\xfea\x00", "\xfe\xff\xd8\x00\xdc\x00", "\xff\xfe\x00\x00"} {
		f.Add([]byte(s), true)
		f.Add([]byte(s), false)
	}
	f.Fuzz(func(t *testing.T, b []byte, cut bool) {
		s, e, ok := decodeText(b, cut)
		if !ok {
			return
		}
		back := encodeText(s, e)
		if !cut && !bytes.Equal(back, b) || cut && (!bytes.HasPrefix(b, back) || len(b)-len(back) > 3) {
			t.Fatalf("%x, cut %v: text %q stands for %x", b, cut, s, back)
		}
	})
}
