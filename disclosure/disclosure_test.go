package disclosure

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

type buffer struct{ bytes.Buffer }

func (*buffer) Sync() error { return nil }

// bench is a small journal.
type bench struct {
	rows, details buffer
	head          journal.Head
	content       []byte
}

var secret = journal.Secret{1, 2, 3}

func newBench(t testing.TB, run byte) *bench {
	t.Helper()
	b := &bench{content: []byte("what the file held")}
	w, err := journal.NewWriter(journal.Config{
		Rows: &b.rows, Details: &b.details, SaveHead: func([]byte) error { return nil }, Clock: func() uint64 { return 0 }, Secret: secret,
		Start: journal.Start{Run: [16]byte{run}, Roots: []scope.Root{{Path: "/", Mode: scope.ReadOne, Class: scope.System}, {Path: "/work", Mode: scope.WriteTree}},
			Workspace: "/work", Recorder: "test", Backend: "test"},
	})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.content)
	for _, e := range []struct {
		r journal.Row
		d journal.Detail
	}{
		{journal.Row{Phase: journal.PhaseAgent, Op: journal.OpFork, Child: 1}, journal.Detail{}},
		{journal.Row{Phase: journal.PhaseAgent, Proc: 1, Op: journal.OpOpen, Flags: journal.FlagRead, Dir: journal.DirIn, Origin: journal.OriginInput, Size: uint64(len(b.content)), Object: 1},
			journal.Detail{Path: "/work/a/b", SHA256: sum[:]}},
		{journal.Row{Phase: journal.PhaseAgent, Proc: 1, Op: journal.OpMkdir, Flags: journal.FlagText, Dir: journal.DirOut, Origin: journal.OriginRun, Size: 3},
			journal.Detail{Path: "/work/new", Text: []byte("new")}},
		{journal.Row{Phase: journal.PhaseAgent, Proc: 1, Op: journal.OpExit}, journal.Detail{}},
	} {
		if err := w.Append(&e.r, &e.d); err != nil {
			t.Fatal(err)
		}
	}
	if b.head, err = w.Final(journal.Final{Outcome: journal.Completed}, nil); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) opening(t testing.TB, seq uint64) []byte {
	t.Helper()
	d, err := journal.Disclose(bytes.NewReader(b.rows.Bytes()), bytes.NewReader(b.details.Bytes()), secret, seq)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := journal.FormatDisclosure(d)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// Rows of newBench: start, fork, dir /work, dir /work/a, open, mkdir, exit, final.
const (
	openRow  = 4
	mkdirRow = 5
)

func file(b *bench, events ...Event) *File {
	return &File{Version: Version, Run: b.head.Run, Events: events}
}

func TestVerify(t *testing.T) {
	b, other := newBench(t, 1), newBench(t, 2)
	good := b.content
	text := []byte("new")
	changed := []byte("What the file held")
	shorter := good[1:]
	for name, c := range map[string]struct {
		file *File
		want string // part of the error, "" if it holds
	}{
		"ok with content":    {file(b, Event{Opening: b.opening(t, openRow), Content: &good}), ""},
		"ok without content": {file(b, Event{Opening: b.opening(t, openRow)}, Event{Opening: b.opening(t, mkdirRow)}), ""},
		"ok start and final": {file(b, Event{Opening: b.opening(t, 0)}, Event{Opening: b.opening(t, 7)}), ""},
		"content changed":    {file(b, Event{Opening: b.opening(t, openRow), Content: &changed}), "SHA-256"},
		"content shorter":    {file(b, Event{Opening: b.opening(t, openRow), Content: &shorter}), "as the event says"},
		"content of text":    {file(b, Event{Opening: b.opening(t, mkdirRow), Content: &text}), "none: the event has none"},
		"content of a fork":  {file(b, Event{Opening: b.opening(t, 1), Content: &text}), "none: the event has none"},
		"order":              {file(b, Event{Opening: b.opening(t, mkdirRow)}, Event{Opening: b.opening(t, openRow)}), "rising order"},
		"twice":              {file(b, Event{Opening: b.opening(t, openRow)}, Event{Opening: b.opening(t, openRow)}), "rising order"},
		"another run's row":  {file(b, Event{Opening: other.opening(t, openRow)}), "rule "},
		"another run":        {file(other, Event{Opening: other.opening(t, openRow)}), "which the receipt is about"},
	} {
		raw, err := Format(c.file)
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(raw)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		shown, err := back.Verify(b.head)
		if c.want == "" {
			if err != nil || len(shown) != len(c.file.Events) {
				t.Errorf("%s: got %v, %v", name, shown, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), c.want) || shown != nil {
			t.Errorf("%s: got %v, %v, want an error with %q and nothing shown", name, shown, err, c.want)
		}
	}
	shown, err := file(b, Event{Opening: b.opening(t, openRow), Content: &good}).Verify(b.head)
	if err != nil || shown[0].Detail.Path != "/work/a/b" || string(shown[0].Content) != string(good) {
		t.Errorf("got %+v, %v", shown, err)
	}
}

func TestParseIsStrict(t *testing.T) {
	b := newBench(t, 1)
	raw, err := Format(file(b, Event{Opening: b.opening(t, openRow)}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(raw); err != nil { // positive control
		t.Fatal(err)
	}
	version, err := dcbor.Marshal(&File{Version: "cleanrun/disclosure/v2", Run: b.head.Run, Events: []Event{{Opening: []byte{1}}}})
	if err != nil {
		t.Fatal(err)
	}
	none, err := Format(file(b))
	if err != nil {
		t.Fatal(err)
	}
	many := make([]Event, MaxEvents+1)
	tooMany, err := Format(file(b, many...))
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"empty": {}, "trailing": append(bytes.Clone(raw), 0), "cut": raw[:len(raw)-1], "version": version, "no events": none, "too many": tooMany,
		"key missing": {0xa1, 1, 0x60}, "indefinite": append([]byte{0xbf}, append(bytes.Clone(raw[1:]), 0xff)...),
	} {
		var e *Error
		if f, err := Parse(bad); !errors.As(err, &e) || f != nil || e.Want == "" {
			t.Errorf("%s: got %v, %v", name, f, err)
		}
	}
}

// No changed byte shows something else.
func TestChangedBytes(t *testing.T) {
	b := newBench(t, 1)
	good := b.content
	raw, err := Format(file(b, Event{Opening: b.opening(t, openRow), Content: &good}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range raw {
		c := bytes.Clone(raw)
		c[i] ^= 1
		f, err := Parse(c)
		if err != nil {
			continue
		}
		if shown, err := f.Verify(b.head); err == nil {
			t.Errorf("byte %d changed: shown %v", i, shown)
		}
	}
}

func FuzzParse(f *testing.F) {
	b := newBench(f, 1)
	raw, err := Format(file(b, Event{Opening: b.opening(f, openRow), Content: &b.content}))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte{0xa3})
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := Parse(data)
		if err != nil {
			return
		}
		again, err := Format(d)
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("got another encoding of what was parsed (%v)", err)
		}
		if shown, err := d.Verify(b.head); err == nil {
			for _, s := range shown {
				if s.Start.Run != b.head.Run {
					t.Errorf("shown of run %x", s.Start.Run)
				}
			}
		}
	})
}
