package attest

import (
	"bytes"
	"crypto/sha256"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// Openings show what rows hide, as far as the sealed set asks for it: the names of
// paths that the run changed (Set.Footprint), the details and contents of rows with the
// reply and the named path, and the marker (Set.Expect). Each is held to what the rows
// bind. They are at least one.
type Openings struct {
	Paths  []OpenedPath `cbor:"1,keyasint,omitempty"` // sorted by path, unique
	Rows   []OpenedRow  `cbor:"2,keyasint,omitempty"` // sorted by number, unique
	Marker []byte       `cbor:"3,keyasint,omitempty"` // the seed, 32 bytes: expect.Commit of it is in the start row
}

// OpenedPath shows the path of a digest in the rows.
type OpenedPath struct {
	_        struct{} `cbor:",toarray"`
	Path     string   // as in a detail: a byte that is not UTF-8 is \xNN
	Key      [32]byte // scope.Key
	Compiled bool     // asserted: a cached module of Python that is what its source compiles to
}

// OpenedRow shows a row's detail, and perhaps its content.
type OpenedRow struct {
	_       struct{} `cbor:",toarray"`
	Seq     uint64
	Salt    [32]byte
	Detail  []byte
	Content *[]byte // null: not shown
}

// MaxOpened bounds the contents that a pack shows, in bytes together.
const MaxOpened = 1 << 20

func (o *Openings) append(b []byte) []byte {
	data, err := dcbor.Marshal(o)
	if err != nil {
		panic(err) // the type holds nothing that cannot be encoded
	}
	return append(b, data...)
}

// named is where Openings leads: what the rows hide, by what they show.
type named struct {
	paths map[[32]byte]*OpenedPath
	rows  map[uint64]openedRow
}

// openedRow is a row whose detail is the one that it commits to.
type openedRow struct {
	detail  journal.Detail
	content *[]byte // if shown, the row's whole content
}

// checkOpenings holds each opening to the rows.
func (e *Evidence) checkOpenings() error {
	o := e.trailer.Openings
	if o == nil {
		return nil
	}
	bad := func(event uint64, got, want string) error {
		return &EvidenceError{Rule: RuleOpenings, Event: event, Got: got, Want: want}
	}
	if len(o.Paths)+len(o.Rows)+len(o.Marker) == 0 {
		return bad(0, "openings of nothing", "at least one, or none at all")
	}
	if len(o.Marker) > 0 {
		if len(o.Marker) != 32 || len(e.start.Marker) != 32 || expect.Commit([32]byte(o.Marker)) != [32]byte(e.start.Marker) {
			return bad(0, fmt.Sprintf("a marker of %d bytes", len(o.Marker)), "the one that the start row binds")
		}
	}
	e.named.paths = make(map[[32]byte]*OpenedPath, len(o.Paths))
	for i := range o.Paths {
		p := &o.Paths[i]
		if err := scope.CheckPath(p.Path); err != nil {
			return bad(0, err.Error(), "a path of a row")
		}
		if i > 0 && o.Paths[i-1].Path >= p.Path {
			return bad(0, fmt.Sprintf("path %.200q after %.200q", p.Path, o.Paths[i-1].Path), "paths sorted, each once")
		}
		e.named.paths[scope.Digest(p.Key, p.Path)] = p
	}
	e.named.rows = make(map[uint64]openedRow, len(o.Rows))
	unseen := len(e.named.paths)
	seen := make(map[[32]byte]bool, unseen)
	next, shown := 0, 0
	for i := range o.Rows {
		if i > 0 && o.Rows[i-1].Seq >= o.Rows[i].Seq {
			return bad(o.Rows[i].Seq, fmt.Sprintf("row %d after %d", o.Rows[i].Seq, o.Rows[i-1].Seq), "rows sorted, each once")
		}
		if c := o.Rows[i].Content; c != nil {
			shown += len(*c)
		}
	}
	if shown > MaxOpened {
		return bad(0, fmt.Sprintf("%d bytes of content", shown), fmt.Sprintf("at most %d", MaxOpened))
	}
	var failed error
	e.items(0, func(seq uint64, it *item) bool {
		row := parsed(it.row)
		for _, ref := range [...]*journal.PathRef{row.Path, row.Path2} {
			if ref != nil && !seen[ref.Digest] && e.named.paths[ref.Digest] != nil {
				seen[ref.Digest] = true
				unseen--
			}
		}
		if next < len(o.Rows) && o.Rows[next].Seq == seq {
			opened, err := o.Rows[next].open(row)
			if err != nil {
				failed = bad(seq, err.Error(), "the detail and the content that the row binds")
				return false
			}
			e.named.rows[seq] = opened
			next++
		}
		return true
	})
	if failed != nil {
		return failed
	}
	if next < len(o.Rows) {
		return bad(0, fmt.Sprintf("row %d of %d", o.Rows[next].Seq, e.Size()), "rows that are there")
	}
	if unseen > 0 {
		return bad(0, fmt.Sprintf("paths that no row names: %d", unseen), "paths of rows only")
	}
	return nil
}

// open holds an opening to its row.
func (o *OpenedRow) open(row *journal.Row) (openedRow, error) {
	if !row.Opens(o.Salt, o.Detail) {
		return openedRow{}, fmt.Errorf("a detail that the row does not commit to")
	}
	d, err := journal.ParseDetail(o.Detail)
	if err != nil {
		return openedRow{}, err
	}
	if o.Content == nil {
		return openedRow{detail: d}, nil
	}
	content := *o.Content
	sum := sha256.Sum256(content)
	if uint64(len(content)) != row.Size || !bytes.Equal(sum[:], d.SHA256) {
		return openedRow{}, fmt.Errorf("%d bytes of content with SHA-256 %x", len(content), sum)
	}
	return openedRow{d, o.Content}, nil
}
