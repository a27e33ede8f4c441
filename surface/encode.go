package surface

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// Bounds of an observation.
const (
	MaxObservation = 128 << 20 // bytes, encoded
	MaxEntries     = 1 << 17
	maxTexts       = 64 << 20 // bytes of text in all
	maxName        = 1024     // bytes of a kind, version, label or attempt
	maxLabels      = 64
)

// wire is the encoded observation: deterministic CBOR with the integer keys of the
// tags (spec/surface.md). Locations are byte strings, since names are bytes.
type wire struct {
	Version     string        `cbor:"1,keyasint"`
	Kind        string        `cbor:"2,keyasint"`
	Source      string        `cbor:"3,keyasint"`
	Location    []byte        `cbor:"4,keyasint"`
	Glob        bool          `cbor:"5,keyasint"`
	Window      *wireWindow   `cbor:"6,keyasint,omitempty"`
	Labels      []wireLabel   `cbor:"7,keyasint"`
	Attempt     string        `cbor:"8,keyasint"`
	NotApplied  []keyNumber   `cbor:"9,keyasint"`
	Acquisition uint8         `cbor:"10,keyasint"`
	Outside     []wireOutside `cbor:"11,keyasint"`
	Gaps        []wireGap     `cbor:"12,keyasint"`
	Entries     []wireEntry   `cbor:"13,keyasint"`
}

// keyNumber keeps a list of keys from being taken for a byte string.
type keyNumber uint16

type wireWindow struct {
	_        struct{} `cbor:",toarray"`
	From, To int64
}

type wireLabel struct {
	_           struct{} `cbor:",toarray"`
	Name, Value string
}

type wireOutside struct {
	_     struct{} `cbor:",toarray"`
	Key   uint8
	Count uint64
}

type wireGap struct {
	_        struct{} `cbor:",toarray"`
	Reason   string
	Location []byte
	Count    uint64
}

type wireEntry struct {
	Location []byte     `cbor:"1,keyasint"`
	Size     uint64     `cbor:"2,keyasint"`
	SHA256   *[32]byte  `cbor:"3,keyasint,omitempty"`
	Modified *int64     `cbor:"4,keyasint,omitempty"`
	Changed  *int64     `cbor:"5,keyasint,omitempty"`
	Links    uint32     `cbor:"6,keyasint,omitempty"`
	Encoding uint8      `cbor:"7,keyasint,omitempty"`
	Text     string     `cbor:"8,keyasint,omitempty"`
	Gap      string     `cbor:"9,keyasint,omitempty"`
	Event    *wireEvent `cbor:"10,keyasint,omitempty"`
}

type wireEvent struct {
	_         struct{} `cbor:",toarray"`
	Seq       uint64
	Process   uint32
	How, Fate uint8
	End       uint64
	Prior     bool
}

// Format returns the observation's one encoding. The error says what is wrong with it.
func Format(o *Observation) ([]byte, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	w := wire{Version: Version, Kind: o.Source.Kind, Source: o.Source.Version, Location: []byte(o.Location.Path), Glob: o.Location.Glob,
		Attempt: o.Scope.Attempt, Acquisition: uint8(o.Acquisition)}
	if s := o.Scope.Window; s != nil {
		w.Window = &wireWindow{From: s.From, To: s.To}
	}
	for _, l := range o.Scope.Labels {
		w.Labels = append(w.Labels, wireLabel{Name: l.Name, Value: l.Value})
	}
	for _, k := range o.NotApplied {
		w.NotApplied = append(w.NotApplied, keyNumber(k))
	}
	for _, c := range o.Outside {
		w.Outside = append(w.Outside, wireOutside{Key: uint8(c.Key), Count: c.Count})
	}
	for _, g := range o.Gaps {
		w.Gaps = append(w.Gaps, wireGap{Reason: string(g.Reason), Location: []byte(g.Location), Count: g.Count})
	}
	for i := range o.Entries {
		e := &o.Entries[i]
		x := wireEntry{Location: []byte(e.Location), Size: e.Size, SHA256: e.SHA256, Modified: e.Modified, Changed: e.Changed, Links: e.Links,
			Encoding: uint8(e.Encoding), Text: e.Text, Gap: string(e.Gap)}
		if v := e.Event; v != nil {
			x.Event = &wireEvent{Seq: v.Seq, Process: v.Process, How: uint8(v.How), Fate: uint8(v.Fate), End: v.End, Prior: v.Prior}
		}
		w.Entries = append(w.Entries, x)
	}
	b, err := dcbor.Marshal(&w)
	if err == nil && len(b) > MaxObservation {
		err = fmt.Errorf("the observation has %d bytes, want at most %d: observe fewer files", len(b), MaxObservation)
	}
	return b, err
}

// Parse reads what Format writes and nothing else.
func Parse(b []byte) (*Observation, error) {
	if len(b) > MaxObservation {
		return nil, fmt.Errorf("observation: got %d bytes, want at most %d", len(b), MaxObservation)
	}
	var w wire
	if err := dcbor.Unmarshal(b, &w); err != nil {
		return nil, fmt.Errorf("observation: %w", err)
	}
	if w.Version != Version {
		return nil, fmt.Errorf("observation: got version %q, want %s", w.Version, Version)
	}
	o := &Observation{Source: Description{Kind: w.Kind, Version: w.Source}, Location: Location{string(w.Location), w.Glob},
		Scope: Scope{Attempt: w.Attempt}, Acquisition: Acquisition(w.Acquisition)}
	if w.Window != nil {
		o.Scope.Window = &Window{w.Window.From, w.Window.To}
	}
	for _, l := range w.Labels {
		o.Scope.Labels = append(o.Scope.Labels, Label{l.Name, l.Value})
	}
	for _, k := range w.NotApplied {
		if k > keyNumber(KeyPhase) {
			return nil, fmt.Errorf("observation: got key %d of a scope, want a known one", k)
		}
		o.NotApplied = append(o.NotApplied, Key(k))
	}
	for _, c := range w.Outside {
		o.Outside = append(o.Outside, Outside{Key(c.Key), c.Count})
	}
	for _, g := range w.Gaps {
		o.Gaps = append(o.Gaps, Gap{Reason(g.Reason), string(g.Location), g.Count})
	}
	for i := range w.Entries {
		x := &w.Entries[i]
		e := Entry{Location: string(x.Location), Size: x.Size, SHA256: x.SHA256, Modified: x.Modified, Changed: x.Changed, Links: x.Links,
			Encoding: Encoding(x.Encoding), Text: x.Text, Gap: Reason(x.Gap)}
		if v := x.Event; v != nil {
			e.Event = &Event{v.Seq, v.Process, How(v.How), Fate(v.Fate), v.End, v.Prior}
		}
		o.Entries = append(o.Entries, e)
	}
	if err := o.Check(); err != nil {
		return nil, err
	}
	return o, nil
}

// Check refuses an observation that contradicts itself: Judge and Format do not take it.
func (o *Observation) Check() error {
	err := errors.Join(o.Location.Check(), o.Scope.Check())
	if err != nil {
		return fmt.Errorf("observation: %w", err)
	}
	switch {
	case o.Source.Kind == "" || !printable(o.Source.Kind) || !printable(o.Source.Version):
		err = fmt.Errorf("got source %q %q, want at most %d bytes of printable text", o.Source.Kind, o.Source.Version, maxName)
	case o.Acquisition < Complete || o.Acquisition > Failed:
		err = fmt.Errorf("got %v", o.Acquisition)
	case len(o.Entries) > MaxEntries:
		err = fmt.Errorf("got %d entries, want at most %d", len(o.Entries), MaxEntries)
	}
	asked := o.Scope.keys()
	for i, k := range o.NotApplied {
		if !slices.Contains(asked, k) || i > 0 && o.NotApplied[i-1] >= k {
			err = fmt.Errorf("got key %v as not applied, want keys of the scope, in order, each once", k)
		}
	}
	for i, c := range o.Outside {
		if c.Key != KeyPhase && (!slices.Contains(asked, c.Key) || slices.Contains(o.NotApplied, c.Key)) || c.Count == 0 || i > 0 && o.Outside[i-1].Key >= c.Key {
			err = fmt.Errorf("got %d entries outside of key %v, want counts from 1 of keys that were applied, in order, each once", c.Count, c.Key)
		}
	}
	broken := false
	for i, g := range o.Gaps {
		if reasons[g.Reason]&(ofAcquisition|ofCoverage) == 0 || g.Count == 0 || len(g.Location) > MaxLocation || i > 0 && o.Gaps[i-1].Reason >= g.Reason {
			err = fmt.Errorf("got gap %q counted %d, want known reasons of acquisition or coverage, sorted, each once", g.Reason, g.Count)
		}
		broken = broken || reasons[g.Reason] == ofAcquisition
	}
	if err == nil && broken != (o.Acquisition != Complete) {
		err = fmt.Errorf("acquisition is %v, and the gaps say otherwise", o.Acquisition)
	}
	texts := 0
	for i := 0; err == nil && i < len(o.Entries); i++ {
		e := &o.Entries[i]
		if i > 0 && o.Entries[i-1].compare(e) >= 0 {
			err = fmt.Errorf("entry %q: entries are sorted, each once", e.Location)
		} else if err = o.checkEntry(e); err != nil {
			err = fmt.Errorf("entry %q: %w", e.Location, err)
		}
		texts += len(e.Text)
	}
	if err == nil && texts > maxTexts {
		err = fmt.Errorf("got %d bytes of text, want at most %d", texts, maxTexts)
	}
	if err != nil {
		return fmt.Errorf("observation: %w", err)
	}
	return nil
}

func (o *Observation) checkEntry(e *Entry) error {
	switch {
	case Location{Path: e.Location}.Check() != nil || !o.Location.Matches(e.Location):
		return fmt.Errorf("it is not at %v", o.Location)
	case e.Gap != "" && reasons[e.Gap] != ofEntry:
		return fmt.Errorf("got gap %q, want a known reason of an entry", e.Gap)
	case e.Encoding > UTF16BE || !utf8.ValidString(e.Text) || e.Encoding == NoText && (e.Text != "" || e.Gap == ""):
		return fmt.Errorf("got encoding %d with %d bytes of text", e.Encoding, len(e.Text))
	case e.Gap == NotText && e.Encoding != NoText:
		return errors.New("got a text of what is none")
	case o.timing(e) == before:
		return errors.New("it lies outside the window")
	case (e.Event != nil) != (o.Source.Kind == Journal):
		return errors.New("entries of a journal, and no others, have an event")
	}
	if e.Gap == "" {
		raw := encodeText(e.Text, e.Encoding)
		if e.SHA256 == nil || uint64(len(raw)) != e.Size || sum(string(raw)) != *e.SHA256 {
			return errors.New("its text is not the content that size and digest name")
		}
	}
	if v := e.Event; v != nil {
		if v.How < Wrote || v.How > Undated || v.Fate < Kept || v.Fate > Left || (v.How == Found) != (v.Seq == 0) || (v.Fate == Kept) != (v.End == 0) || v.End != 0 && v.End <= v.Seq {
			return fmt.Errorf("got event %d, %v, %v by %d", v.Seq, v.How, v.Fate, v.End)
		}
	}
	return nil
}

// Journal is the kind of a source that sees events.
const Journal = "journal"

func printable(s string) bool {
	if len(s) > maxName || !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return false
		}
	}
	return true
}

// encodeText is the content that a whole text stands for.
func encodeText(s string, e Encoding) []byte {
	if e != UTF16LE && e != UTF16BE {
		return []byte(s)
	}
	add := binary.LittleEndian.AppendUint16
	if e == UTF16BE {
		add = binary.BigEndian.AppendUint16
	}
	out := add(nil, 0xfeff)
	for _, u := range utf16.Encode([]rune(s)) {
		out = add(out, u)
	}
	return out
}

// decodeText is the text of content, or of its beginning if cut is true. ok is false
// if it is neither UTF-8 nor UTF-16 with a byte order mark.
func decodeText(b []byte, cut bool) (s string, e Encoding, ok bool) {
	var order binary.ByteOrder
	switch {
	case len(b) >= 4 && b[0] == 0xff && b[1] == 0xfe && b[2] == 0 && b[3] == 0: // UTF-32
		return "", NoText, false
	case len(b) >= 2 && b[0] == 0xff && b[1] == 0xfe:
		order, e = binary.LittleEndian, UTF16LE
	case len(b) >= 2 && b[0] == 0xfe && b[1] == 0xff:
		order, e = binary.BigEndian, UTF16BE
	default:
		if cut {
			b = b[:len(b)-halfRune(b)]
		}
		return string(b), UTF8, utf8.Valid(b)
	}
	b = b[2:]
	if len(b)%2 != 0 && !cut {
		return "", NoText, false
	}
	units := make([]uint16, len(b)/2)
	for i := range units {
		units[i] = order.Uint16(b[2*i:])
	}
	if n := len(units); cut && n > 0 && units[n-1] >= 0xd800 && units[n-1] < 0xdc00 {
		units = units[:n-1]
	}
	s = string(utf16.Decode(units))
	if !slices.Equal(utf16.Encode([]rune(s)), units) { // a lone surrogate became U+FFFD
		return "", NoText, false
	}
	return s, e, true
}

// halfRune is the number of bytes at the end that begin a rune and do not end it.
func halfRune(b []byte) int {
	for n := 1; n <= min(3, len(b)); n++ {
		if c := b[len(b)-n]; utf8.RuneStart(c) {
			if c >= 0xc0 && !utf8.FullRune(b[len(b)-n:]) {
				return n
			}
			return 0
		}
	}
	return 0
}
