package surface

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Version of the observation format.
const Version = "cleanrun/observation/v1"

// An Acquisition says how far a source could be asked.
type Acquisition uint8

// The states.
const (
	Complete    Acquisition = iota + 1 // to the end
	Partial                            // it was cancelled, or a budget was used up
	Unavailable                        // there is no such source
	Failed                             // it broke off
)

var acquisitionNames = [...]string{"", "complete", "partial", "unavailable", "failed"}

// String is the state's name.
func (a Acquisition) String() string {
	if a >= Complete && a <= Failed {
		return acquisitionNames[a]
	}
	return fmt.Sprintf("acquisition %d", a)
}

// A Reason is why something is not known. The list is closed (spec/surface.md).
type Reason string

// The reasons.
const (
	SourceUnavailable Reason = "source-unavailable" // there is no such folder, archive, bucket or run
	SourceFailed      Reason = "source-failed"      // it broke off, or is damaged
	Cancelled         Reason = "cancelled"          //
	EntryLimit        Reason = "entry-limit"        // more entries were listed than the budget
	FileLimit         Reason = "file-limit"         // more files are at the location than the budget
	TotalLimit        Reason = "total-limit"        // more bytes in an archive than the budget
	DepthLimit        Reason = "depth-limit"        // folders in folders
	ListingFailed     Reason = "listing-failed"     // a folder cannot be listed; nothing of it counts
	LinkNotFollowed   Reason = "link-not-followed"  // a link to a folder
	LinkOutside       Reason = "link-outside"       // a link that leads out of the root
	LinkDangling      Reason = "link-dangling"      // a link to nothing
	NotAFile          Reason = "not-a-file"         // a folder, pipe, socket or device is at the location
	ReadFailed        Reason = "read-failed"        // it cannot be opened or read
	Replaced          Reason = "replaced"           // another file or folder took its place meanwhile
	Unconfined        Reason = "unconfined"         // where the open file lies could not be shown to be inside the root
	UnsafeName        Reason = "unsafe-name"        // a name that is no location, or that the source spells ambiguously
	ReadLimit         Reason = "read-limit"         // more bytes than the budget: no digest
	TextLimit         Reason = "text-limit"         // more text than is kept
	NotText           Reason = "not-text"           // neither UTF-8 nor marked UTF-16: size and digest only
	Changed           Reason = "changed"            // it changed while it was read
	NotKept           Reason = "not-kept"           // the run folder does not hold the content
	SecretsRemoved    Reason = "secrets-removed"    // what is stored is not what was written
	JournalOpen       Reason = "journal-open"       // the journal has no final row, or breaks off
	EventsLost        Reason = "events-lost"        // the recorder lost events, or could not explain a change
	TimeUnproven      Reason = "time-unproven"      // it matches, but its times do not show that it lies in the window
	NotDated          Reason = "not-dated"          // it may have been written only after the location had lost the file
	ScopeNotApplied   Reason = "scope-not-applied"  // the source cannot tell whose entry it is
)

// in which part of an observation a reason can stand
type place uint8

const (
	ofAcquisition place = 1 << iota
	ofCoverage
	ofEntry
	ofResult
)

var reasons = map[Reason]place{
	SourceUnavailable: ofAcquisition, SourceFailed: ofAcquisition, Cancelled: ofAcquisition, EntryLimit: ofAcquisition, TotalLimit: ofAcquisition, JournalOpen: ofAcquisition,
	EventsLost: ofCoverage, FileLimit: ofCoverage, DepthLimit: ofCoverage, ListingFailed: ofCoverage, LinkNotFollowed: ofCoverage, LinkOutside: ofCoverage,
	LinkDangling: ofCoverage, NotAFile: ofCoverage, ReadFailed: ofCoverage, Replaced: ofCoverage, Unconfined: ofCoverage, UnsafeName: ofCoverage,
	ReadLimit: ofEntry, TextLimit: ofEntry, NotText: ofEntry, Changed: ofEntry, NotKept: ofEntry, SecretsRemoved: ofEntry,
	TimeUnproven: ofResult, NotDated: ofResult, ScopeNotApplied: ofResult,
}

// A Gap is what could not be looked at. Of each reason the first location and the
// number of times are kept.
type Gap struct {
	Reason   Reason
	Location string // "" if it is of the whole
	Count    uint64 // at least 1
}

// String is the gap as screens show it.
func (g Gap) String() string {
	s := string(g.Reason)
	if g.Location != "" {
		s += fmt.Sprintf(" %q", g.Location)
	}
	if g.Count > 1 {
		s += fmt.Sprintf(" and %d more", g.Count-1)
	}
	return s
}

// An Encoding is how an entry's text stood in the content.
type Encoding uint8

// The encodings. UTF-16 is taken with a byte order mark only, and the text is without it.
const (
	NoText Encoding = iota
	UTF8
	UTF16LE
	UTF16BE
)

// An Entry is one file at the location, or one version of it that a run wrote.
type Entry struct {
	Location string
	Size     uint64    // bytes of content
	SHA256   *[32]byte // of all of the content; nil if it was not read to its end
	Modified *int64    // ns since 1970, as the file says: whoever writes it chooses it; nil if unknown
	Changed  *int64    // ns since 1970, as the system that keeps it set it at the last change; nil if unknown
	Links    uint32    // names that the file has, 0 if unknown. With more than one, others may have written it elsewhere
	Encoding Encoding  //
	Text     string    // UTF-8: the content, or its beginning if Gap is not empty
	Gap      Reason    // why Text is not the whole content, "" if it is
	Event    *Event    // of a journal only
}

// How a version came to its location.
type How uint8

// The ways. Only the first two are the run's writing.
const (
	Wrote   How = iota + 1 // the run wrote it
	Moved                  // the run wrote it elsewhere, and renamed or linked it here
	Linked                 // a hard link or a rename of content that the run did not write
	Found                  // it was there before
	Undated                // the run wrote it, perhaps only after the location had lost the file
)

var howNames = [...]string{"", "wrote", "moved", "linked", "found", "undated"}

func (h How) String() string {
	if h >= Wrote && h <= Undated {
		return howNames[h]
	}
	return fmt.Sprintf("how %d", h)
}

// Fate is what became of a version before the run's end.
type Fate uint8

// The fates.
const (
	Kept    Fate = iota + 1
	Rewrote      // the run wrote or moved another version over it
	Deleted      //
	Left         // renamed to another location
)

var fateNames = [...]string{"", "kept", "replaced", "deleted", "moved away"}

func (f Fate) String() string {
	if f >= Kept && f <= Left {
		return fateNames[f]
	}
	return fmt.Sprintf("fate %d", f)
}

// An Event is what a journal says of a version.
type Event struct {
	Seq     uint64 // the row that gave the location this version; 0 of what was there before
	Process uint32 // who did it, 0 of what was there before
	How     How
	Fate    Fate
	End     uint64 // the row that ended it, 0 if Kept
	Prior   bool   // the location was seen to hold a file before the run
}

// An Observation is what a source held at a location, as far as could be seen. It is
// not authenticated: who hands it on can have changed it. Times in it are the source's.
type Observation struct {
	Source      Description
	Location    Location
	Scope       Scope
	NotApplied  []Key // keys of Scope that the source cannot apply, in order of the keys
	Acquisition Acquisition
	Outside     []Outside // entries outside the scope, by key, in order of the keys
	Gaps        []Gap     // sorted by reason; of acquisition and coverage
	Entries     []Entry   // sorted by location, then event
}

// A Description names a source.
type Description struct {
	Kind    string // "folder", "tar", "oci", "blob", "mcp", "journal"
	Version string // of what was asked: a server's own words, a run's id; may be empty
	Applies []Key  // keys of a scope that its entries can be held to, in order; not stored
}

// Outside counts the entries that a key of the scope left out.
type Outside struct {
	Key   Key
	Count uint64
}

// Gap returns the gap of a reason.
func (o *Observation) Gap(r Reason) (Gap, bool) {
	for _, g := range o.Gaps {
		if g.Reason == r {
			return g, true
		}
	}
	return Gap{}, false
}

// complete tells whether nothing is missing but parts of texts.
func (o *Observation) complete() bool { return o.Acquisition == Complete && len(o.Gaps) == 0 }

func sum(s string) [32]byte { return sha256.Sum256([]byte(s)) }

// compare orders entries: by location, then row, then how.
func (e *Entry) compare(f *Entry) int {
	if c := strings.Compare(e.Location, f.Location); c != 0 {
		return c
	}
	var a, b Event
	if e.Event != nil {
		a = *e.Event
	}
	if f.Event != nil {
		b = *f.Event
	}
	return cmp.Or(cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.How, b.How))
}

// Skew is how far two clocks of one machine and file system may be apart: FAT keeps
// times of two seconds.
const Skew = 2 * time.Second

// A Key is one part of a scope.
type Key uint8

// The keys. Phase is not asked for: what grading wrote is never the run's.
const (
	KeyWindow Key = iota + 1
	KeyLabels
	KeyAttempt
	KeyPhase
)

var keyNames = [...]string{"", "window", "labels", "attempt", "phase"}

// String is the key's name.
func (k Key) String() string {
	if k >= KeyWindow && k <= KeyPhase {
		return keyNames[k]
	}
	return fmt.Sprintf("key %d", k)
}

// A Window is a span of time, both ends included, in nanoseconds since 1970.
type Window struct{ From, To int64 }

// WindowOf is the window of a run: from its first event less a clock skew to its last
// event and the skew.
func WindowOf(first, last time.Time, skew time.Duration) (Window, error) {
	from, to := Stamp(first.Add(-skew)), Stamp(last.Add(skew))
	if from == nil || to == nil || skew < 0 || last.Before(first) {
		return Window{}, fmt.Errorf("got a window from %v to %v, want one that ends after it begins, between 1678 and 2262", first, last)
	}
	return Window{*from, *to}, nil
}

// Stamp is a time as an entry holds it, nil if there is none or it does not fit.
func Stamp(t time.Time) *int64 {
	if y := t.UTC().Year(); t.IsZero() || y < 1679 || y > 2261 {
		return nil
	}
	n := t.UnixNano()
	return &n
}

// A Label is one key and value that a source keeps with what it holds.
type Label struct{ Name, Value string }

// A Scope says whose entries count. The zero value is everything.
type Scope struct {
	Window  *Window
	Labels  []Label // sorted by name, unique; an entry must have them all
	Attempt string  // id of an attempt
}

// Check refuses a scope that is none.
func (s *Scope) Check() error {
	if s.Window != nil && s.Window.To < s.Window.From {
		return errors.New("the window ends before it begins")
	}
	for i, l := range s.Labels {
		if l.Name == "" || i > 0 && s.Labels[i-1].Name >= l.Name {
			return fmt.Errorf("label %q: labels are sorted by name and have one, each once", l.Name)
		}
		if !printable(l.Name) || !printable(l.Value) {
			return fmt.Errorf("label %q: want at most %d bytes of printable text", l.Name, maxName)
		}
	}
	if len(s.Labels) > maxLabels || !printable(s.Attempt) {
		return fmt.Errorf("got a scope with %d labels and attempt %q, want at most %d and printable text", len(s.Labels), s.Attempt, maxLabels)
	}
	return nil
}

// keys of the scope that are set.
func (s *Scope) keys() (out []Key) {
	if s.Window != nil {
		out = append(out, KeyWindow)
	}
	if len(s.Labels) > 0 {
		out = append(out, KeyLabels)
	}
	if s.Attempt != "" {
		out = append(out, KeyAttempt)
	}
	return out
}

// timing is how an entry lies to a window.
type timing uint8

const (
	within   timing = iota // its times say so
	before                 // it was not changed since before the window, whatever was done to its times
	unproven               // its times do not say
)

// timing decides by what a writer cannot choose where there is such a time. A file that
// the system last changed before the window was not written in it. One that was
// changed since, but says that it was modified outside, can be an older file that was
// renamed, or a new one whose time was set back; nobody can tell from here. A
// modification time alone, inside the window, is taken as it is (and says nothing of
// who wrote); outside of it, it may be forged.
func (w *Window) timing(e *Entry) timing {
	in := func(t *int64) bool { return t != nil && *t >= w.From && *t <= w.To }
	switch {
	case e.Changed != nil && *e.Changed < w.From:
		return before
	case e.Changed != nil && in(e.Changed) && in(e.Modified):
		return within
	case e.Changed == nil && in(e.Modified):
		return within
	}
	return unproven
}

// timing of an entry in an observation.
func (o *Observation) timing(e *Entry) timing {
	if o.Scope.Window == nil || slices.Contains(o.NotApplied, KeyWindow) {
		return within
	}
	return o.Scope.Window.timing(e)
}
