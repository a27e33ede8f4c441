package surface

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Limits are the budgets of one observation. None may be zero or less.
type Limits struct {
	Entries int   // names that are listed
	Files   int   // files at the location that are opened
	Read    int64 // bytes that are read of one file
	Total   int64 // bytes that are read in all; of an archive, unpacked
	Text    int64 // bytes of text that are kept of one file
}

// DefaultLimits are enough for a workspace.
var DefaultLimits = Limits{Entries: 100_000, Files: 1_000, Read: 16 << 20, Total: 8 << 30, Text: 1 << 20}

// Check refuses limits that leave nothing, or more than an observation can hold.
func (l Limits) Check() error {
	if l.Entries <= 0 || l.Files <= 0 || l.Read <= 0 || l.Total <= 0 || l.Text <= 0 {
		return fmt.Errorf("got limits %+v, want each above zero", l)
	}
	if l.Files > MaxEntries || l.Text > maxTexts {
		return fmt.Errorf("got limits %+v, want at most %d files and %d bytes of text", l, MaxEntries, maxTexts)
	}
	return nil
}

// A Source is a place where content can have been written. Its one job is to name what
// is at a location; budgets, scope, digests and texts are the Collector's.
type Source interface {
	Describe() Description
	// List hands every file at the location to the Collector, and what it cannot look
	// at. It ends at once when a call of the Collector fails.
	List(ctx context.Context, at Location, c *Collector)
}

// An Item is one file that a source opened.
type Item struct {
	Size     int64 // -1 if only reading tells
	Modified *int64
	Changed  *int64
	Links    uint32
	Labels   []Label
	Attempt  string
	Event    *Event
	Gap      Reason        // why the content cannot be all there, "" if it is: NotKept, SecretsRemoved
	Content  io.ReadCloser // nil with NotKept
	// Digest is the content's, where it is known although the content is not there.
	Digest *[32]byte
	// After is called when the content was read. It may say that the content Changed,
	// or give a reason of coverage, and then there is no entry. May be nil.
	After func() Reason
}

// A Collector makes an observation of what a source lists.
type Collector struct {
	ctx     context.Context
	o       *Observation
	limits  Limits
	gaps    gaps
	outside map[Key]uint64
	applied []Key
	listed  int
	files   int
	total   int64
	texts   int64
	ended   bool
}

// errStop is what a Collector's calls return when the source shall end: it was cancelled,
// or the budget of entries is used up. The observation says so.
var errStop = errors.New("surface: the observation ends here")

// Observe asks a source what is at a location. The observation tells what could not be
// seen, cancelling included; an error is one of the question itself.
func Observe(ctx context.Context, s Source, at Location, scope Scope, limits Limits) (*Observation, error) {
	if err := errors.Join(at.Check(), scope.Check(), limits.Check()); err != nil {
		return nil, err
	}
	d := s.Describe()
	c := &Collector{ctx: ctx, limits: limits, gaps: gaps{}, outside: map[Key]uint64{}, o: &Observation{Location: at, Scope: scope, Acquisition: Complete}}
	for _, k := range scope.keys() {
		if slices.Contains(d.Applies, k) {
			c.applied = append(c.applied, k)
		} else {
			c.o.NotApplied = append(c.o.NotApplied, k)
		}
	}
	s.List(ctx, at, c)
	d = s.Describe() // a server says its version when it is asked
	c.o.Source = Description{Kind: d.Kind, Version: d.Version}
	c.o.Gaps = c.gaps.sorted()
	for k := KeyWindow; k <= KeyPhase; k++ {
		if n := c.outside[k]; n > 0 {
			c.o.Outside = append(c.o.Outside, Outside{k, n})
		}
	}
	slices.SortStableFunc(c.o.Entries, func(a, b Entry) int { return a.compare(&b) })
	if err := c.o.Check(); err != nil {
		return nil, fmt.Errorf("source %s: %w", d.Kind, err)
	}
	return c.o, nil
}

// Listed counts one name that the source met, wanted or not.
func (c *Collector) Listed() error {
	if err := c.ctx.Err(); err != nil {
		return c.stop(Partial, Cancelled)
	}
	if c.listed++; c.listed > c.limits.Entries {
		return c.stop(Partial, EntryLimit)
	}
	return nil
}

// ReadLimit is the budget of bytes of one file.
func (c *Collector) ReadLimit() int64 { return c.limits.Read }

// Gap notes what could not be looked at.
func (c *Collector) Gap(r Reason, location string) {
	if len(location) > MaxLocation {
		location = ""
	}
	c.gaps.add(r, location)
}

// Break ends the source's listing: it is Unavailable or Failed.
func (c *Collector) Break(a Acquisition) error {
	if a == Unavailable {
		return c.stop(a, SourceUnavailable)
	}
	return c.stop(Failed, SourceFailed)
}

// Open notes that a journal has no end. The listing goes on.
func (c *Collector) Open() {
	c.o.Acquisition = Partial
	c.gaps.add(JournalOpen, "")
}

// stop ends the observation. The first reason is the one: what comes after is of it.
func (c *Collector) stop(a Acquisition, r Reason) error {
	if !c.ended {
		c.ended = true
		c.o.Acquisition = max(c.o.Acquisition, a)
		c.gaps.add(r, "")
	}
	return errStop
}

// OutsidePhase counts a file that grading wrote.
func (c *Collector) OutsidePhase() { c.outside[KeyPhase]++ }

// File takes one file at the location: open is called if there is still room for one
// more. It gives the file, or the reason of coverage why there is none. The error ends
// the listing.
func (c *Collector) File(location string, open func() (*Item, Reason)) error {
	if err := c.ctx.Err(); err != nil {
		return c.stop(Partial, Cancelled)
	}
	if c.files++; c.files > c.limits.Files {
		c.Gap(FileLimit, location)
		return nil
	}
	it, reason := open()
	if reason != "" {
		c.Gap(reason, location)
		return nil
	}
	if it.Content != nil {
		defer it.Content.Close()
	}
	e := Entry{Location: location, Modified: it.Modified, Changed: it.Changed, Links: it.Links, Event: it.Event, Gap: it.Gap, SHA256: it.Digest}
	if k := c.excludes(it, &e); k != 0 {
		c.outside[k]++
		return nil
	}
	return c.read(&e, it)
}

// excludes is the key of the scope that leaves an entry out, 0 if none does.
func (c *Collector) excludes(it *Item, e *Entry) Key {
	for _, k := range c.applied {
		switch k {
		case KeyWindow:
			if c.o.Scope.Window.timing(e) == before {
				return k
			}
		case KeyLabels:
			for _, l := range c.o.Scope.Labels {
				if !slices.Contains(it.Labels, l) {
					return k
				}
			}
		case KeyAttempt:
			if it.Attempt != c.o.Scope.Attempt {
				return k
			}
		}
	}
	return 0
}

const chunk = 64 << 10

// read takes an entry's content.
func (c *Collector) read(e *Entry, it *Item) error {
	if it.Content == nil {
		e.Size = uint64(max(0, it.Size))
		c.o.Entries = append(c.o.Entries, *e)
		return nil
	}
	h := sha256.New()
	var text []byte
	keep := min(c.limits.Text, maxTexts-c.texts)
	n, end := int64(0), false
	buf := make([]byte, chunk)
	for !end {
		if c.ctx.Err() != nil {
			return c.stop(Partial, Cancelled)
		}
		left := min(c.limits.Read-n, c.limits.Total-c.total)
		// One more byte than the budget tells a file that ends exactly there.
		got, err := it.Content.Read(buf[:min(chunk, left+1)])
		over := int64(got) > left
		got = int(min(int64(got), left))
		h.Write(buf[:got])
		if room := keep - int64(len(text)); room > 0 {
			text = append(text, buf[:min(int64(got), room)]...)
		}
		n += int64(got)
		c.total += int64(got)
		if over {
			break
		}
		switch {
		case errors.Is(err, io.EOF):
			end = true
		case errors.Is(err, errStop):
			return err
		case c.ctx.Err() != nil:
			return c.stop(Partial, Cancelled)
		case err != nil:
			c.Gap(ReadFailed, e.Location)
			return nil
		}
	}
	e.Size = uint64(max(n, it.Size))
	var reason Reason
	if it.After != nil {
		reason = it.After()
	}
	if reason != "" && reason != Changed {
		c.Gap(reason, e.Location)
		return nil
	}
	if end && it.Size >= 0 && n != it.Size {
		reason = Changed
		e.Size = uint64(n)
	}
	if !end {
		e.Size = max(e.Size, uint64(n)+1)
	}
	c.finish(e, text, h.Sum(nil), n, end, reason)
	return nil
}

// finish sets what an entry says of its content.
func (c *Collector) finish(e *Entry, text, digest []byte, n int64, end bool, reason Reason) {
	cut := !end || int64(len(text)) < n
	s, encoding, ok := decodeText(text, cut)
	switch {
	case e.Gap != "": // what is stored is not what was written
	case reason == Changed:
		e.Gap = Changed
	case !ok:
		e.Gap = NotText
	case !end:
		e.Gap = ReadLimit
	case cut:
		e.Gap = TextLimit
	}
	if end && reason == "" && (e.Gap == "" || e.Gap == NotText || e.Gap == TextLimit) {
		d := [32]byte(digest)
		e.SHA256 = &d
	}
	if ok {
		e.Encoding, e.Text = encoding, s
	}
	c.texts += int64(len(text))
	c.o.Entries = append(c.o.Entries, *e)
}

// Meter is a reader that ends when the observation is cancelled. If count is set, its
// bytes are of the budget of bytes in all; what File reads counts by itself.
func (c *Collector) Meter(r io.Reader, count bool) io.Reader { return &meter{c, r, count} }

type meter struct {
	c     *Collector
	r     io.Reader
	count bool
}

func (m *meter) Read(p []byte) (int, error) {
	if m.c.ctx.Err() != nil {
		return 0, m.c.stop(Partial, Cancelled)
	}
	if !m.count {
		return m.r.Read(p)
	}
	left := m.c.limits.Total - m.c.total
	if left <= 0 {
		return 0, m.c.stop(Partial, TotalLimit)
	}
	n, err := m.r.Read(p[:min(int64(len(p)), left)])
	m.c.total += int64(n)
	return n, err
}
