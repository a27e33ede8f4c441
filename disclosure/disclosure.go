// Package disclosure shows single events of a run to somebody who has the run's
// receipt. spec/disclosure.md is the format.
//
// Limits first. A disclosure proves what the recorder committed to, not that it
// saw the truth. It shows the events that its maker chose: what is left out may say
// more. Where secrets were replaced before they were stored, it shows the
// replacement.
//
// The package is pure: bytes in, values out. Verify needs a head that the caller
// trusts, such as that of a verified bundle.
package disclosure

import (
	"crypto/sha256"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// Version of the format.
const Version = "cleanrun/disclosure/v1"

// Bounds of a disclosure.
const (
	MaxEvents = 1024
	MaxFile   = 512 << 20 // bytes
)

// A File is one disclosure. One that Parse returned is not verified.
type File struct {
	Version string   `cbor:"1,keyasint"`
	Run     [16]byte `cbor:"2,keyasint"`
	Events  []Event  `cbor:"3,keyasint"` // by event, each once
}

// An Event is one opened row.
type Event struct {
	_       struct{} `cbor:",toarray"`
	Opening []byte   // journal.FormatDisclosure
	Content *[]byte  // of the row, or null; a text row has its content in the opening
}

// Shown is what a verified disclosure shows of one event.
type Shown struct {
	*journal.Opened
	Content []byte // nil if it is not disclosed
}

// An Error says why a disclosure does not hold.
type Error struct {
	Event     uint64 // 0 if it concerns the file
	Got, Want string
}

func (e *Error) Error() string {
	if e.Event == 0 {
		return fmt.Sprintf("disclosure: got %s, want %s", e.Got, e.Want)
	}
	return fmt.Sprintf("disclosure of event %d: got %s, want %s", e.Event, e.Got, e.Want)
}

// Format returns the deterministic encoding.
func Format(f *File) ([]byte, error) {
	raw, err := dcbor.Marshal(f)
	if err == nil && len(raw) > MaxFile {
		err = &Error{0, fmt.Sprintf("%d bytes", len(raw)), fmt.Sprintf("at most %d: disclose fewer contents", MaxFile)}
	}
	return raw, err
}

// Parse decodes what Format writes and nothing else.
func Parse(raw []byte) (*File, error) {
	if len(raw) > MaxFile {
		return nil, &Error{0, fmt.Sprintf("%d bytes", len(raw)), fmt.Sprintf("at most %d", MaxFile)}
	}
	f := new(File)
	if err := dcbor.Unmarshal(raw, f); err != nil {
		return nil, &Error{0, err.Error(), "deterministic CBOR of the closed schema"}
	}
	if f.Version != Version {
		return nil, &Error{0, fmt.Sprintf("version %q", f.Version), Version}
	}
	if n := len(f.Events); n == 0 || n > MaxEvents {
		return nil, &Error{0, fmt.Sprintf("%d events", n), fmt.Sprintf("1 to %d", MaxEvents)}
	}
	return f, nil
}

// Verify checks each event against a head that the caller trusts. Errors: an
// *Error, or a *journal.RuleError of an event that does not open its row.
func (f *File) Verify(head journal.Head) ([]Shown, error) {
	if f.Run != head.Run {
		return nil, &Error{0, fmt.Sprintf("events of run %x", f.Run), fmt.Sprintf("run %x, which the receipt is about", head.Run)}
	}
	var out []Shown
	for i, e := range f.Events {
		d, err := journal.ParseDisclosure(e.Opening)
		if err != nil {
			return nil, fmt.Errorf("disclosure, place %d: %w", i+1, err)
		}
		o, err := d.Verify(head)
		if err != nil {
			return nil, fmt.Errorf("disclosure, place %d: %w", i+1, err)
		}
		if len(out) > 0 && o.Row.Seq <= out[len(out)-1].Row.Seq {
			return nil, &Error{o.Row.Seq, "a place after event " + fmt.Sprint(out[len(out)-1].Row.Seq), "events in rising order, each once"}
		}
		s := Shown{Opened: o}
		if e.Content != nil {
			if err := checkContent(o, *e.Content); err != nil {
				return nil, err
			}
			s.Content = *e.Content
		}
		if err := checkText(o); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, nil
}

// checkContent holds a content to the digest in the opened detail.
func checkContent(o *journal.Opened, content []byte) error {
	bad := func(got, want string) error { return &Error{o.Row.Seq, got, want} }
	if o.Row.Size == 0 || o.Row.Flags&journal.FlagText != 0 {
		return bad("a content", "none: the event has none outside its detail")
	}
	if uint64(len(content)) != o.Row.Size {
		return bad(fmt.Sprintf("a content of %d bytes", len(content)), fmt.Sprintf("%d, as the event says", o.Row.Size))
	}
	if sum := sha256.Sum256(content); string(sum[:]) != string(o.Detail.SHA256) {
		return bad(fmt.Sprintf("a content with SHA-256 %x", sum), fmt.Sprintf("%x, which the recorder committed to", o.Detail.SHA256))
	}
	return nil
}

// checkText holds the text of a text row to the size that the row says.
func checkText(o *journal.Opened) error {
	if o.Row.Flags&journal.FlagText != 0 && uint64(len(o.Detail.Text)) != o.Row.Size {
		return &Error{o.Row.Seq, fmt.Sprintf("a text of %d bytes", len(o.Detail.Text)), fmt.Sprintf("%d, as the event says", o.Row.Size)}
	}
	return nil
}
