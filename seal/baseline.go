package seal

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/internal/views"
)

// A LeakError says that the task gives its own answer away: the prompt, an
// object of the workspace or the planted file holds ground truth. Nothing can be sealed then, since
// every honest run would match.
type LeakError struct {
	Object    string // "the prompt", a path in the workspace, or of a packed git object "PATH: blob ID"
	Source    string // what of the ground truth it holds
	What      string // "a canary", "a whole object", ...
	Hits      int
	Threshold int
}

func (e *LeakError) Error() string {
	return fmt.Sprintf("the task leaks its own answer: %s holds %s of %s: got %d, want fewer than %d (take it out of the workspace, prompt or planted file, the git history too, or out of the task file)",
		e.Object, e.What, e.Source, e.Hits, e.Threshold)
}

// A Watch sees what a run is given while the task's own answer is searched for in
// it, so that nothing is read twice. It is used by one goroutine.
type Watch interface {
	// Begin is told of each object before it is read: the prompt, a file of the
	// workspace, a packed git object. id names its content: no two contents have
	// the same.
	Begin(name string, id []byte) Look
}

// A Look sees one object. Other objects may begin and end before it is done.
type Look interface {
	Chunk(p []byte)        // the content in order
	End()                  // the content has ended
	Object(content []byte) // one view of it, whole
	Done()                 // nothing more comes, after an error too
}

// blind sees nothing.
type blind struct{}

func (blind) Chunk([]byte)  {}
func (blind) End()          {}
func (blind) Object([]byte) {}
func (blind) Done()         {}

// A search looks for all items of all piles in what a run is given.
type search struct {
	f        *canon.Fingerprinter
	mem      *scratch
	items    *items
	piles    []*pile
	prompted []bool // by number: what the prompt holds
	allowed  []bool // what the prompt or the workspace holds
	warn     func(format string, args ...any)
	watch    Watch // nil if nobody watches
	git      *git  // nil before the first pack
	depth    int   // of packs in objects of packs
}

func newSearch(c *cutter, mem *scratch, warn func(string, ...any)) *search {
	n := len(c.items.list)
	s := &search{items: c.items, piles: c.piles, prompted: make([]bool, n), allowed: make([]bool, n), warn: warn, mem: mem}
	ranks := [2][]uint32{mem.ranks[0][:0], mem.ranks[1][:0]}
	values := mem.values[:0]
	for i := range c.items.list {
		switch it := &c.items.list[i]; {
		case it.class == contraband.ClassShingle:
			ranks[0] = append(ranks[0], it.rank)
		case it.class == contraband.ClassShingle24:
			ranks[1] = append(ranks[1], it.rank)
		case it.class.Filtered():
			values = append(values, c.f.FilterValue(it.class, it.plain))
		}
	}
	s.f = c.f.Everywhere(mem.find, values, ranks[0], ranks[1])
	mem.find, mem.ranks, mem.values = s.f, ranks, values
	return s
}

func (s *search) close() { s.git.close() }

// prompt allows what the prompt holds.
func (s *search) prompt(prompt []byte) error {
	sum := sha256.Sum256(prompt)
	hits, _, err := s.object("the prompt", bytes.NewReader(prompt), int64(len(prompt)), sum[:])
	if err != nil {
		return err
	}
	if err := s.leak("the prompt", hits, true); err != nil {
		return err
	}
	s.allow(hits)
	copy(s.prompted, s.allowed)
	return nil
}

// workspace goes through all files of the baseline.
func (s *search) workspace(root string, baseline *manifest.Manifest) error {
	dir, err := os.OpenRoot(root)
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	defer dir.Close()
	for _, e := range baseline.Entries() {
		if e.Type != manifest.File {
			continue
		}
		if err := s.file(dir, e); err != nil {
			return err
		}
	}
	return nil
}

func (s *search) file(dir *os.Root, e manifest.Entry) error {
	f, err := dir.Open(filepath.FromSlash(e.Path))
	if err != nil {
		return fmt.Errorf("workspace: %w", err)
	}
	defer f.Close() // it is only read
	if err := alternates(e.Path, f, int64(e.Size)); err != nil {
		return err
	}
	sum, err := s.given(e.Path, f, int64(e.Size), e.SHA256[:])
	if err == nil && sum != e.SHA256 {
		err = fmt.Errorf("workspace: %q changed while the task was sealed; seal it again", e.Path)
	}
	return err
}

// given searches one object of what a run is given. id names its content: no
// two contents have the same.
func (s *search) given(name string, r io.ReaderAt, size int64, id []byte) (sum [32]byte, err error) {
	hits, sum, err := s.object(name, r, size, id)
	if err == nil {
		err = s.leak(name, hits, false)
	}
	s.allow(hits)
	return sum, err
}

func (s *search) allow(hits map[int32]bool) {
	for id := range hits {
		s.allowed[id] = true
	}
}

// object returns the wanted items that the object or a view of it holds, and
// its SHA-256. Git packs in it are searched on the way: each object of theirs is
// one of its own.
func (s *search) object(name string, r io.ReaderAt, size int64, id []byte) (hits map[int32]bool, sum [32]byte, err error) {
	emit := func(class contraband.Class, d [32]byte) {
		if id, ok := s.items.find(class, &d); ok {
			if hits == nil {
				hits = map[int32]bool{}
			}
			hits[id] = true
		}
	}
	var other Look = blind{}
	if s.watch != nil {
		other = s.watch.Begin(name, id)
	}
	defer other.Done()
	h := sha256.New()
	stream := s.f.Whole(true)
	var find packFinder
	all := io.MultiWriter(h, &find, writer(func(p []byte) { stream.Chunk(p, emit); other.Chunk(p) }))
	if s.mem.copy == nil {
		s.mem.copy = make([]byte, 32<<10)
	}
	if _, err = io.CopyBuffer(all, io.NewSectionReader(r, 0, size), s.mem.copy); err != nil {
		return nil, sum, fmt.Errorf("%s: %w", name, err)
	}
	stream.End(emit)
	other.End()
	if err = s.packs(name, r, size, find.at); err != nil {
		return nil, sum, err
	}
	result := views.EachAt(r, size, func(v views.View) {
		s.f.Object(v.Content, true, emit)
		other.Object(v.Content)
		if err == nil && v.Kind != "json" && v.Kind != "percent" && v.Kind != "html" { // escapes are of text
			err = s.packs(name, bytes.NewReader(v.Content), int64(len(v.Content)), packsIn(v.Content))
		}
	})
	if err != nil {
		return nil, sum, err
	}
	if result.Bounds != 0 {
		s.warn("%s: nested or packed beyond the bounds, not searched in full", name)
	}
	return hits, [32]byte(h.Sum(nil)), nil
}

type writer func(p []byte)

func (w writer) Write(p []byte) (int, error) { w(p); return len(p), nil }

// leak tells whether one object holds so much of a source that a run which
// reads it would match. Titles, commands and the like may stand anywhere; text
// shingles are too short to accuse; a line counts where lines are all that the
// source has. The prompt may hold fragments, never a canary or a whole object;
// what it holds does not count elsewhere.
func (s *search) leak(object string, hits map[int32]bool, prompt bool) error {
	if len(hits) == 0 {
		return nil
	}
	for _, p := range s.piles {
		if p.kind.OncePerTask() {
			continue
		}
		for class := contraband.ClassCanary; class <= contraband.ClassAtom; class++ {
			what, n := What(class), 0
			switch {
			case class == contraband.ClassShingle24,
				!p.counted(class),
				prompt && class != contraband.ClassCanary && !class.Whole():
				continue
			}
			for _, id := range p.items[class] {
				if hits[id] && !s.prompted[id] {
					n++
				}
			}
			limit := int(contraband.Threshold(class, Padded(len(p.items[class])), len(p.items[class])))
			if n >= limit {
				return &LeakError{Object: object, Source: p.label, What: what, Hits: n, Threshold: limit}
			}
		}
	}
	return nil
}

// What calls one item of a class, or several, as messages do.
func What(class contraband.Class) string { return className[class] }

var className = map[contraband.Class]string{
	contraband.ClassCanary:    "a canary",
	contraband.ClassRaw:       "a whole object",
	contraband.ClassCanonical: "a whole object (but for layout and case)",
	contraband.ClassShingle:   "fragments",
	contraband.ClassShingle24: "short fragments",
	contraband.ClassLine:      "lines",
	contraband.ClassAtom:      "a token",
}
