package surface

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"
)

// held is a source of contents in memory.
func held(contents map[string]string, edit func(string, *Item)) Source {
	return sourceFunc(func(_ context.Context, at Location, c *Collector) {
		for _, p := range slices.Sorted(mapKeys(contents)) {
			if !at.Matches(p) {
				continue
			}
			err := c.File(p, func() (*Item, Reason) {
				it := &Item{Size: int64(len(contents[p])), Content: io.NopCloser(strings.NewReader(contents[p]))}
				if edit != nil {
					edit(p, it)
				}
				return it, ""
			})
			if err != nil {
				return
			}
		}
	})
}

func wide(order binary.AppendByteOrder, s string) string {
	b := order.AppendUint16(nil, 0xfeff)
	for _, u := range utf16.Encode([]rune(s)) {
		b = order.AppendUint16(b, u)
	}
	return string(b)
}

// What a beginning, a digest and a whole text can prove, and what they cannot.
func TestWhatAnEntryProves(t *testing.T) {
	text := "first line\nthe magic word is here\n"
	limits := DefaultLimits
	limits.Text = 16
	short := DefaultLimits
	short.Read, short.Text = 16, 16
	binaryContent := "\xff\xfemagic\x80\x00" // neither: odd UTF-16
	for name, c := range map[string]struct {
		content string
		limits  Limits
		kind    MatcherKind
		text    string
		want    Outcome
		reason  Reason
	}{
		"any content, cut":                     {text, short, None, "", True, ""},
		"beginning holds it":                   {text, limits, Contains, "first", True, ""},
		"beginning does not hold it":           {text, limits, Contains, "magic", Undetermined, TextLimit},
		"beginning of a cut read":              {text, short, Contains, "magic", Undetermined, ReadLimit},
		"regex never by a beginning":           {text, limits, Regex, "first", Undetermined, TextLimit},
		"equals never by a beginning":          {text, short, Equals, "first line\nthe m", Undetermined, ReadLimit},
		"equals by digest":                     {text, limits, Equals, text, True, ""},
		"equals, cut text, no digest":          {text, short, Equals, text, Undetermined, ReadLimit},
		"another text of a cut one":            {text, limits, Equals, "other", Undetermined, TextLimit},
		"no text":                              {binaryContent, DefaultLimits, Contains, "magic", Undetermined, NotText},
		"no text, any content":                 {binaryContent, DefaultLimits, None, "", True, ""},
		"UTF-16 little endian":                 {wide(binary.LittleEndian, text), DefaultLimits, Contains, "magic", True, ""},
		"UTF-16 big endian":                    {wide(binary.BigEndian, text), DefaultLimits, Equals, text, True, ""},
		"UTF-16 without the word":              {wide(binary.BigEndian, text), DefaultLimits, Contains, "wand", False, ""},
		"UTF-16 with a lone surrogate":         {wide(binary.LittleEndian, text) + "\x00\xd8", DefaultLimits, Contains, "wand", Undetermined, NotText},
		"UTF-32":                               {"\xff\xfe\x00\x00m\x00\x00\x00", DefaultLimits, Contains, "m", Undetermined, NotText},
		"exactly the read budget":              {text[:16], short, Contains, "wand", False, ""},
		"exactly the text budget":              {text[:16], limits, Regex, "wand", False, ""},
		"empty, any content":                   {"", DefaultLimits, None, "", False, ""},
		"a rune cut in two is no broken text":  {"first line 1234€ and more", limits, Contains, "1234", True, ""},
		"a rune cut in two, and it is not all": {"first line 1234€ and more", limits, Contains, "€", Undetermined, TextLimit},
	} {
		o := observe(t, held(map[string]string{"f": c.content}, nil), exact("f"), c.limits)
		r := judge(t, condition(t, exact("f"), c.kind, c.text), o)
		if r.Outcome != c.want || c.reason != "" && (len(r.Reasons) != 1 || r.Reasons[0].Reason != c.reason) {
			t.Errorf("%s: got %v %v, want %v %s", name, r.Outcome, r.Reasons, c.want, c.reason)
		}
	}
}

// What is no text is hashed, and not kept.
func TestBinaryIsHashed(t *testing.T) {
	o := observe(t, held(map[string]string{"f": "\x80\x81"}, nil), exact("f"), DefaultLimits)
	if e := o.Entries[0]; e.SHA256 == nil || *e.SHA256 != sum("\x80\x81") || e.Text != "" || e.Gap != NotText || e.Size != 2 {
		t.Errorf("got %+v", e)
	}
}

// The digest is that of all of the content, or not there.
func TestReadBudgetDropsTheDigest(t *testing.T) {
	limits := DefaultLimits
	limits.Read = 5
	o := observe(t, held(map[string]string{"five": "12345", "six": "123456"}, nil), glob("*"), limits)
	if five := o.Entries[0]; five.SHA256 == nil || *five.SHA256 != sum("12345") || five.Gap != "" {
		t.Errorf("at exactly the budget: got %+v, want the digest", five)
	}
	if six := o.Entries[1]; six.SHA256 != nil || six.Gap != ReadLimit || six.Size != 6 || six.Text != "12345" {
		t.Errorf("one byte above the budget: got %+v, want no digest", six)
	}
	limits = DefaultLimits
	limits.Total = 7
	o = observe(t, held(map[string]string{"a": "12345", "b": "12345"}, nil), glob("*"), limits)
	if o.Entries[0].SHA256 == nil || o.Entries[1].SHA256 != nil || o.Entries[1].Text != "12" {
		t.Errorf("budget of all files: got %+v", o.Entries)
	}
}

func TestIgnoreCase(t *testing.T) {
	o := observe(t, held(map[string]string{"f": "Die STRASSE nach ΣΊΣΥΦΟΣ"}, nil), exact("f"), DefaultLimits)
	for text, want := range map[string]Outcome{"straße": True, "σίσυφος": True, "Gasse": False} {
		c, err := NewCondition(exact("f"), Matcher{Kind: Contains, Text: text, IgnoreCase: true})
		if err != nil {
			t.Fatal(err)
		}
		if r := judge(t, c, o); r.Outcome != want {
			t.Errorf("%s: got %v, want %v", text, r.Outcome, want)
		}
	}
}

func TestConditionsThatAreNone(t *testing.T) {
	for name, m := range map[string]Matcher{
		"empty contains": {Kind: Contains}, "empty regex": {Kind: Regex}, "text without matcher": {Text: "x"}, "unknown": {Kind: 9, Text: "x"}, "not UTF-8": {Kind: Equals, Text: "\xff"},
		"bad regex": {Kind: Regex, Text: "("}, "case of equals": {Kind: Equals, Text: "x", IgnoreCase: true}, "too long": {Kind: Contains, Text: strings.Repeat("x", MaxWanted+1)},
		"regex too long": {Kind: Regex, Text: strings.Repeat("x", MaxPattern+1)},
	} {
		if _, err := NewCondition(exact("f"), m); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
	o := observe(t, held(nil, nil), exact("f"), DefaultLimits)
	if _, err := Judge(Condition{Location: exact("f"), Matcher: Matcher{Kind: Regex, Text: "x"}}, o); err == nil {
		t.Error("a condition that was not checked was judged")
	}
}

// A stored observation answers other conditions on its location, and none on another.
func TestReplay(t *testing.T) {
	o := observe(t, held(map[string]string{"out/a": "alpha", "out/b": "beta"}, nil), glob("out/*"), DefaultLimits)
	b, err := Format(o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]Outcome{"alpha": True, "bet": True, "gamma": False} {
		c := condition(t, glob("out/*"), Contains, text)
		if r, s := judge(t, c, o), judge(t, c, again); r.Outcome != want || s.Outcome != want {
			t.Errorf("%s: got %v, stored %v, want %v", text, r.Outcome, s.Outcome, want)
		}
	}
	for _, l := range []Location{exact("out/a"), glob("out/a"), glob("**"), exact("out/*"), glob("out/?")} {
		_, err := Judge(condition(t, l, Contains, "alpha"), again)
		var other *DifferentLocationError
		if !errors.As(err, &other) {
			t.Errorf("%v: got %v, want it refused: that location was not looked at", l, err)
		}
	}
	if c, _ := Format(again); !bytes.Equal(b, c) {
		t.Error("two encodings of one observation")
	}
}

func at(v int64) *int64 { return &v }

// The window goes by what a writer cannot choose, where the source has it.
func TestWindow(t *testing.T) {
	scope := Scope{Window: &Window{100, 200}}
	for name, c := range map[string]struct {
		modified, changed *int64
		match, none       Outcome // for a content that matches, and one that does not
		outside           bool
	}{
		"in the window":                          {at(150), at(150), True, False, false},
		"older":                                  {at(50), at(50), False, False, true},
		"older, time forged into the window":     {at(150), at(50), False, False, true},
		"written in it, time set back":           {at(50), at(150), Undetermined, False, false},
		"older and renamed in it":                {at(50), at(150), Undetermined, False, false},
		"copied after it with its times":         {at(150), at(250), Undetermined, False, false},
		"written after it":                       {at(250), at(250), Undetermined, False, false},
		"a time alone, in it":                    {at(150), nil, True, False, false},
		"a time alone, before it: may be forged": {at(50), nil, Undetermined, False, false},
		"no time":                                {nil, nil, Undetermined, False, false},
	} {
		for text, want := range map[string]Outcome{"yes": c.match, "no": c.none} {
			s := described{held(map[string]string{"f": text}, func(_ string, it *Item) { it.Modified, it.Changed = c.modified, c.changed }), Description{Kind: "test", Applies: []Key{KeyWindow}}}
			o, err := Observe(context.Background(), s, exact("f"), scope, DefaultLimits)
			if err != nil {
				t.Fatal(err)
			}
			r := judge(t, condition(t, exact("f"), Equals, "yes"), o)
			if r.Outcome != want || r.Outcome == True && r.Basis != ByTime || r.Outcome == Undetermined && r.Reasons[0].Reason != TimeUnproven {
				t.Errorf("%s, %s: got %v %s %v, want %v", name, text, r.Outcome, r.Basis, r.Reasons, want)
			}
			if got := len(o.Outside) == 1 && o.Outside[0] == (Outside{KeyWindow, 1}); got != c.outside {
				t.Errorf("%s: got %v outside the scope", name, o.Outside)
			}
		}
	}
}

type described struct {
	Source
	d Description
}

func (d described) Describe() Description { return d.d }

// A key that the source cannot apply: a match stands, with the mark; nothing at the
// location is still a no; anything else at it may have replaced what is asked for.
func TestScopeThatIsNotApplied(t *testing.T) {
	scope := Scope{Window: &Window{1, 2}, Labels: []Label{{"task", "x"}}, Attempt: "a1"}
	c := condition(t, glob("*"), Equals, "yes")
	for name, v := range map[string]struct {
		contents map[string]string
		want     Outcome
		reasons  []string
	}{
		"a match": {map[string]string{"f": "yes"}, True, nil}, "nothing": {nil, False, nil},
		"something else": {map[string]string{"f": "no"}, Undetermined, []string{"scope-not-applied  1"}},
	} {
		o, err := Observe(context.Background(), held(v.contents, nil), glob("*"), scope, DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		r := judge(t, c, o)
		t.Log(name)
		want(t, r, v.want, v.reasons...)
		if !slices.Equal(r.NotApplied, []Key{KeyWindow, KeyLabels, KeyAttempt}) || r.Outcome == True && r.Basis != ByLocation {
			t.Errorf("%s: got %v not applied, basis %s", name, r.NotApplied, r.Basis)
		}
	}
}

func TestLabelsAndAttempt(t *testing.T) {
	s := described{held(map[string]string{"a": "yes", "b": "yes", "c": "yes"}, func(p string, it *Item) {
		it.Attempt, it.Labels = p, []Label{{"team", p}, {"task", "x"}}
	}), Description{Kind: "test", Applies: []Key{KeyLabels, KeyAttempt}}}
	o, err := Observe(context.Background(), s, glob("*"), Scope{Labels: []Label{{"task", "x"}}, Attempt: "b"}, DefaultLimits)
	if err != nil || len(o.Entries) != 1 || o.Entries[0].Location != "b" || !slices.Equal(o.Outside, []Outside{{KeyAttempt, 2}}) {
		t.Errorf("got %+v %v, want b alone and two of other attempts", o, err)
	}
	o, err = Observe(context.Background(), s, glob("*"), Scope{Labels: []Label{{"task", "x"}, {"team", "c"}}}, DefaultLimits)
	if err != nil || len(o.Entries) != 1 || o.Entries[0].Location != "c" || !slices.Equal(o.Outside, []Outside{{KeyLabels, 2}}) {
		t.Errorf("got %+v %v, want c alone", o, err)
	}
}

// The walk leaves folders out that cannot hold a match. The oracle walks everything.
func TestWalkAgainstOracle(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 8))
	root := t.TempDir()
	names := []string{"a", "b", "ab", "c.txt", "a.txt"}
	var all []string
	for range 60 {
		var parts []string
		for range 1 + r.IntN(4) {
			parts = append(parts, names[r.IntN(len(names))])
		}
		p := filepath.Join(root, filepath.Join(parts...))
		if os.MkdirAll(filepath.Dir(p), 0o700) == nil && os.WriteFile(p, []byte("x"), 0o600) == nil {
			all = append(all, strings.Join(parts, "/"))
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	pieces := []string{"a", "b", "*", "**", "?", "a*", "{a,b}", "{a/b,c.txt}", "[ab]", "*.txt", `\a`, "c.txt", "a[^x]b"}
	matched := 0
	for range 1500 {
		var parts []string
		for range 1 + r.IntN(4) {
			parts = append(parts, pieces[r.IntN(len(pieces))])
		}
		l := glob(strings.Join(parts, "/"))
		var expect []string
		for _, p := range all {
			if l.Matches(p) {
				expect = append(expect, p)
			}
		}
		o := observe(t, &Folder{Path: root}, l, DefaultLimits)
		var got []string
		for _, e := range o.Entries {
			got = append(got, e.Location)
		}
		if !slices.Equal(got, expect) || len(o.Gaps) > 0 {
			t.Fatalf("%v: got %q %v, want %q", l, got, o.Gaps, expect)
		}
		for _, p := range expect {
			if d := filepath.ToSlash(filepath.Dir(p)); d != "." && !l.MayLieBelow(d) {
				t.Fatalf("%v: %s is said to hold nothing, and holds %s", l, d, p)
			}
		}
		matched += len(got)
	}
	if matched < 1000 {
		t.Errorf("got %d matches in all, want a test that sees some", matched)
	}
}
