package scanner

import (
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/cleanrun-dev/cleanrun/internal/objects"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// ObjectsDir is the content store's folder in the run folder.
const ObjectsDir = "objects"

// small contents are held in memory whole; larger ones are read in pieces.
const small = 32 << 20

// A content is what one row exposes.
type content struct {
	row    journal.Row
	raw    []byte // the row's bytes
	sum    [32]byte
	inline []byte // of a text row
	text   bool
}

// A ContentError says that the content of one row is not what the journal
// commits to.
type ContentError struct {
	Event     uint64
	Got, Want string
	Err       error // of the file system or the store, or nil
}

func (e *ContentError) Error() string {
	text := fmt.Sprintf("event %d: content: got %s, want %s", e.Event, e.Got, e.Want)
	if e.Err != nil {
		text = fmt.Sprintf("event %d: content: %v", e.Event, e.Err)
	}
	return text + " (the run folder is damaged: record the run again)"
}

func (e *ContentError) Unwrap() error { return e.Err }

// contentOf checks a row's detail against the row's commitment and says where the
// row's content is.
func contentOf(line journal.Line, detail []byte, secret journal.Secret) (*content, error) {
	r := line.Row
	bad := func(got, want string, args ...any) error {
		return &ContentError{Event: r.Seq, Got: got, Want: fmt.Sprintf(want, args...)}
	}
	if !r.Opens(secret.Salt(r.Seq), detail) {
		return nil, bad("a detail that does not open the row", "the detail that it commits to")
	}
	if r.Size == 0 {
		return nil, nil
	}
	d, err := journal.ParseDetail(detail)
	if err != nil {
		return nil, &ContentError{Event: r.Seq, Err: err}
	}
	c := &content{row: r, raw: line.Raw, text: r.Flags&journal.FlagText != 0}
	if c.text {
		if uint64(len(d.Text)) != r.Size {
			return nil, bad(fmt.Sprintf("a text of %d bytes", len(d.Text)), "%d, as the row says", r.Size)
		}
		c.inline, c.sum = d.Text, sha256.Sum256(d.Text)
		return c, nil
	}
	if len(d.SHA256) != len(c.sum) {
		return nil, bad(fmt.Sprintf("a detail with a digest of %d bytes", len(d.SHA256)), "%d", len(c.sum))
	}
	c.sum = [32]byte(d.SHA256)
	return c, nil
}

// read returns the content, checked, or for a larger one the open object.
func (c *content) read(store objects.Source) (b []byte, large *objects.ReaderAt, err error) {
	if c.text {
		return c.inline, nil, nil
	}
	fail := func(err error) ([]byte, *objects.ReaderAt, error) {
		return nil, nil, &ContentError{Event: c.row.Seq, Err: err}
	}
	if c.row.Size > small {
		f, err := c.open(store)
		if err != nil {
			return fail(err)
		}
		return nil, f, nil
	}
	b, err = store.ReadAll(c.sum, int64(c.row.Size))
	if err != nil {
		return fail(err)
	}
	if uint64(len(b)) != c.row.Size {
		return nil, nil, c.size(uint64(len(b)))
	}
	return b, nil, nil
}

func (c *content) size(got uint64) error {
	return &ContentError{Event: c.row.Seq, Got: fmt.Sprintf("an object of %d bytes", got), Want: fmt.Sprintf("%d, as the row says", c.row.Size)}
}

// open opens a large object and checks it, so that what is read from it
// afterwards is what the journal commits to, as long as nobody changes the store
// meanwhile.
func (c *content) open(store objects.Source) (*objects.ReaderAt, error) {
	r, err := store.Open(c.sum)
	if err != nil {
		return nil, err
	}
	n, err := io.Copy(io.Discard, r)
	r.Close()
	if err != nil {
		return nil, err
	}
	if uint64(n) != c.row.Size {
		return nil, c.size(uint64(n))
	}
	return store.OpenAt(c.sum)
}
