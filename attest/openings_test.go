package attest_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// openedPack is a run whose rows are partly opened: two paths, two rows of stdout with
// their contents, and the marker.
func openedPack(t testing.TB) *fixture.Pack {
	t.Helper()
	set, err := fixture.Set(fixture.Groups(), func(s *contraband.Set) {
		s.Scope.Grants = []contraband.Grant{{Path: "/srv/skill.md", Mode: uint8(scope.ReadOne)}}
		s.Expect = &contraband.Expect{Read: "/srv/skill.md", Template: "say " + expect.Placeholder, Reply: expect.Stdout}
	})
	if err != nil {
		t.Fatal(err)
	}
	r := fixture.NewRun(set, sha256.Sum256([]byte("sealed")), nil)
	r.Control()
	r.Phase = journal.PhaseAgent
	r.Make("/work/a")
	r.Make("/work/b")
	var said []uint64
	for _, text := range []string{"one\n", "two\n"} {
		sum := sha256.Sum256([]byte(text))
		said = append(said, r.Add(journal.Row{Op: journal.OpStdout, Dir: journal.DirOut, Origin: journal.OriginRun}, journal.Detail{SHA256: sum[:]}, &fixture.Content{Size: uint64(len(text))}))
	}
	r.Close(journal.Final{})
	p, err := r.Pack()
	if err != nil {
		t.Fatal(err)
	}
	r.OpenPaths(p, "/work/a", "/work/b compiled")
	for i, text := range []string{"one\n", "two\n"} {
		if err := r.OpenRow(p, said[i], []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	seed := journal.Secret{7}.Marker()
	p.Trailer.Openings.Marker = seed[:]
	return p
}

// An opening that opens nothing is refused, each for its own reason.
func TestBrokenOpenings(t *testing.T) {
	if _, err := attest.ReadEvidence(openedPack(t).Bytes()); err != nil {
		t.Fatalf("control: %v", err)
	}
	content := func(s string) *[]byte { b := []byte(s); return &b }
	for name, c := range map[string]struct {
		brk  func(o *attest.Openings)
		says string // in Got
	}{
		"nothing":               {func(o *attest.Openings) { *o = attest.Openings{} }, "openings of nothing"},
		"paths unsorted":        {func(o *attest.Openings) { slices.Reverse(o.Paths) }, `path "/work/a" after "/work/b"`},
		"path repeated":         {func(o *attest.Openings) { o.Paths = append(o.Paths, o.Paths[1]) }, `path "/work/b" after "/work/b"`},
		"path with two keys":    {func(o *attest.Openings) { o.Paths = slices.Insert(o.Paths, 1, o.Paths[0]); o.Paths[1].Key[0]++ }, `path "/work/a" after "/work/a"`},
		"path under a key":      {func(o *attest.Openings) { o.Paths[0].Key[31] ^= 1 }, "paths that no row names: 1"},
		"path of another key":   {func(o *attest.Openings) { o.Paths[0].Key = o.Paths[1].Key }, "paths that no row names: 1"},
		"path that nobody used": {func(o *attest.Openings) { o.Paths[1].Path = "/work/c" }, "paths that no row names: 1"},
		"path not clean":        {func(o *attest.Openings) { o.Paths[1].Path = "/work/./b" }, "clean path"},
		"path relative":         {func(o *attest.Openings) { o.Paths[0].Path = "a" }, "want an absolute path"},
		"row's salt":            {func(o *attest.Openings) { o.Rows[0].Salt[0] ^= 1 }, "does not commit to"},
		"row's detail":          {func(o *attest.Openings) { o.Rows[0].Detail[len(o.Rows[0].Detail)-1] ^= 1 }, "does not commit to"},
		"detail of another row": {func(o *attest.Openings) { o.Rows[0].Detail, o.Rows[0].Salt = o.Rows[1].Detail, o.Rows[1].Salt }, "does not commit to"},
		"content of another":    {func(o *attest.Openings) { o.Rows[0].Content = o.Rows[1].Content }, "4 bytes of content"},
		"content cut":           {func(o *attest.Openings) { o.Rows[0].Content = content("one") }, "3 bytes of content"},
		"content empty":         {func(o *attest.Openings) { o.Rows[0].Content = content("") }, "0 bytes of content"},
		"content too large":     {func(o *attest.Openings) { o.Rows[0].Content = content(strings.Repeat("a", attest.MaxOpened+1)) }, "bytes of content"},
		"rows unsorted":         {func(o *attest.Openings) { slices.Reverse(o.Rows) }, "row "},
		"row repeated":          {func(o *attest.Openings) { o.Rows = append(o.Rows, o.Rows[1]) }, "row "},
		"row that is not there": {func(o *attest.Openings) { o.Rows[1].Seq = 1 << 40 }, "row 1099511627776 of"},
		"marker of another":     {func(o *attest.Openings) { o.Marker[0] ^= 1 }, "a marker of 32 bytes"},
		"marker cut":            {func(o *attest.Openings) { o.Marker = o.Marker[:31] }, "a marker of 31 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			p := openedPack(t)
			c.brk(p.Trailer.Openings)
			_, err := attest.ReadEvidence(p.Bytes())
			var e *attest.EvidenceError
			if !errors.As(err, &e) || e.Rule != attest.RuleOpenings || !strings.Contains(e.Got, c.says) {
				t.Fatalf("got %v, want rule %s: %s", err, attest.RuleOpenings, c.says)
			}
		})
	}
	// A marker where the start row binds none.
	p := pack(t)
	p.Trailer.Openings = &attest.Openings{Marker: make([]byte, 32)}
	var e *attest.EvidenceError
	if _, err := attest.ReadEvidence(p.Bytes()); !errors.As(err, &e) || e.Rule != attest.RuleOpenings {
		t.Errorf("got %v, want rule %s", err, attest.RuleOpenings)
	}
}

// A trailer has one spelling with openings, and one without.
func TestOpeningsSpelling(t *testing.T) {
	p := openedPack(t)
	openings, err := dcbor.Marshal(p.Trailer.Openings)
	if err != nil {
		t.Fatal(err)
	}
	bare := *p
	bare.Trailer.Openings = nil
	without := bare.Bytes()
	trailer := bare.Trailer.Append(nil)
	at := len(without) - len(trailer)
	if trailer[0] != 0x84 {
		t.Fatalf("got trailer head 0x%02x", trailer[0])
	}
	five := func(rest []byte) []byte { return slices.Concat(without[:at], []byte{0x85}, trailer[1:], rest) }
	if !bytes.Equal(five(openings), p.Bytes()) {
		t.Fatal("control: the parts are not the whole")
	}
	for _, good := range [][]byte{without, five(openings)} {
		if _, err := attest.ReadEvidence(good); err != nil {
			t.Fatalf("control: %v", err)
		}
	}
	for name, data := range map[string][]byte{
		"null":                   five([]byte{0xf6}),
		"undefined":              five([]byte{0xf7}),
		"false":                  five([]byte{0xf4}),
		"an array":               five([]byte{0x80}),
		"five, and nothing":      five(nil),
		"four, and openings":     slices.Concat(without, openings),
		"six":                    slices.Concat(without[:at], []byte{0x86}, trailer[1:], openings, openings),
		"a key more":             five(slices.Concat([]byte{openings[0] + 1}, openings[1:], []byte{4, 0x40})),
		"keys out of order":      five([]byte{0xa2, 3, 0x41, 0, 2, 0x80}),
		"an empty list":          five(slices.Concat([]byte{0xa2, 2, 0x80}, openings[bytes.LastIndex(openings, []byte{3, 0x58, 32}):])),
		"a key twice":            five(slices.Concat([]byte{openings[0] + 1}, openings[1:], openings[bytes.LastIndex(openings, []byte{3, 0x58, 32}):])),
		"RT60_a long map head":   five(slices.Concat([]byte{0xb8, openings[0] & 31}, openings[1:])),
		"RT60_indefinite":        five(slices.Concat([]byte{0xbf}, openings[1:], []byte{0xff})),
		"RT61_trailing":          append(p.Bytes(), 0),
		"RT61_cut":               p.Bytes()[:len(p.Bytes())-1],
		"RT63_a length of 2 GB":  five([]byte{0xa1, 3, 0x5a, 0x7f, 0xff, 0xff, 0xff}),
		"RT63_2^32 paths":        five([]byte{0xa1, 1, 0x9b, 0, 0, 0, 1, 0, 0, 0, 0}),
		"a path that is no UTF8": five(slices.Concat([]byte{0xa1, 1, 0x81, 0x83, 0x62, '/', 0xff, 0x58, 32}, make([]byte, 32), []byte{0xf4})),
	} {
		t.Run(name, func(t *testing.T) {
			ev, err := attest.ReadEvidence(data)
			var e *attest.EvidenceError
			if !errors.As(err, &e) || ev != nil || e.Rule != attest.RuleShape {
				t.Fatalf("got %v, want rule %s", err, attest.RuleShape)
			}
		})
	}
}

// Any changed bit of the openings is noticed, but the one word of the attester.
func TestOpeningsTamper(t *testing.T) {
	good := openedPack(t).Bytes()
	bare := *openedPack(t)
	bare.Trailer.Openings = nil
	accepted := map[string]bool{}
	for at := len(bare.Bytes()); at < len(good); at++ {
		for bit := range 8 {
			broken := bytes.Clone(good)
			broken[at] ^= 1 << bit
			if _, err := attest.ReadEvidence(broken); err == nil {
				accepted[fmt.Sprintf("%02x to %02x", good[at], broken[at])] = true
			}
		}
	}
	if len(accepted) != 2 || !accepted["f4 to f5"] || !accepted["f5 to f4"] {
		t.Errorf("accepted %v, want false to true and true to false: whether a path is compiled", accepted)
	}
}
