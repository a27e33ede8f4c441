package scanner

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/views"
	"github.com/cleanrun-dev/cleanrun/journal"
)

const (
	checkRows  = 16        // rows that are derived again
	checkSize  = 256 << 10 // bytes of one such row, at most: the slow way is slow
	checkViews = 2 << 20   // bytes of its views, at most; with more, only the raw bytes are checked
)

// A CheckError says that the scanner did not derive what it should: no evidence
// may be used.
type CheckError struct {
	Event     uint64
	Got, Want string
}

func (e *CheckError) Error() string {
	return fmt.Sprintf("scanner self-check failed: event %d: got %s, want %s (this is a fault of this program: report it)", e.Event, e.Got, e.Want)
}

// checks picks rows by the head while items are written and derives them again
// at the end. A row without digests is looked at on the spot.
type checks struct {
	head   []byte
	picked []pick // sorted by rank
}

type pick struct {
	rank      uint64
	c         *content
	digests   []byte
	canonical uint64
}

func newChecks(head journal.Head) *checks { return &checks{head: journal.FormatHead(head)} }

// rank orders rows by SHA-256(head || seq), so that nobody chooses which are
// checked.
func (k *checks) rank(seq uint64) uint64 {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(k.head[:len(k.head):len(k.head)], seq))
	return binary.BigEndian.Uint64(sum[:])
}

// row takes a row with content whose digests are about to be written.
func (k *checks) row(s *session, j *job) error {
	c, f := j.c, j.finding
	if declared(&c.row) {
		return nil
	}
	if f.digests.n == 0 {
		return empty(s, c)
	}
	if c.row.Size > checkSize || f.digests.disk != nil {
		return nil
	}
	own := *c // the job forgets its text
	p := pick{k.rank(c.row.Seq), &own, f.digests.all, f.canonical}
	at := 0
	for at < len(k.picked) && k.picked[at].rank < p.rank {
		at++
	}
	if at < checkRows {
		k.picked = append(k.picked[:at], append([]pick{p}, k.picked[at:]...)...)
		k.picked = k.picked[:min(len(k.picked), checkRows)]
	}
	return nil
}

// empty checks that a content without digests holds too few letters and digits
// to have one, in the simplest way: ASCII ones are canonical bytes each.
func empty(s *session, c *content) error {
	var n uint64
	count := func(b []byte) {
		for _, x := range b {
			if x >= '0' && x <= '9' || x|0x20 >= 'a' && x|0x20 <= 'z' {
				n++
			}
		}
	}
	if c.text {
		count(c.inline)
	} else {
		r, err := s.folder.store.Open(c.sum)
		if err != nil {
			return &ContentError{Event: c.row.Seq, Err: err}
		}
		defer r.Close()
		buf := make([]byte, 1<<16)
		for {
			k, err := r.Read(buf)
			count(buf[:k])
			if err == io.EOF {
				break
			}
			if err != nil {
				return &ContentError{Event: c.row.Seq, Err: err}
			}
		}
	}
	if n >= least(c.text) {
		return &CheckError{c.row.Seq, "no digest", fmt.Sprintf("at least one: the content has %d letters and digits", n)}
	}
	return nil
}

// run derives the picked rows the slow way. It returns how many there were.
func (k *checks) run(s *session) (int, error) {
	n := newNaive(s.cfg.Key, s.cfg.Set.Filter)
	for _, p := range k.picked {
		if err := p.compare(s, n); err != nil {
			return 0, err
		}
	}
	return len(k.picked), nil
}

// compare holds the digests of one row against the naive derivation: of a chunk
// those of the chunk by itself must be there, of other content all and no
// others.
func (p *pick) compare(s *session, n *naive) error {
	b, _, err := p.c.read(s.folder.store)
	if err != nil {
		return err
	}
	want := map[[attest.DigestSize]byte]bool{}
	add := func(it item) { want[contraband.RunDigest(s.salt, n.digest(it))] = true }
	canonical := n.items(b, p.c.text, add)
	var size int
	views.Each(b, func(v views.View) { size += len(v.Content) })
	exact := size <= checkViews && !chunked(&p.c.row)
	if exact {
		views.Each(b, func(v views.View) { n.items(v.Content, p.c.text, add) })
	}
	if len(want) == 0 && uint64(canonical) >= least(p.c.text) {
		add(item{contraband.ClassRaw, string(p.c.sum[:])})
	}
	have := map[[attest.DigestSize]byte]bool{}
	for i := 0; i < len(p.digests); i += attest.DigestSize {
		have[[attest.DigestSize]byte(p.digests[i:])] = true
	}
	missing := 0
	for d := range want {
		if !have[d] {
			missing++
		}
	}
	if missing > 0 || exact && len(have) != len(want) {
		return &CheckError{p.c.row.Seq, fmt.Sprintf("%d digests, %d missing", len(have), missing), fmt.Sprintf("the %d of the slow derivation", len(want))}
	}
	if !chunked(&p.c.row) && uint64(canonical) != p.canonical {
		return &CheckError{p.c.row.Seq, fmt.Sprintf("%d canonical bytes", p.canonical), fmt.Sprint(canonical)}
	}
	return nil
}
