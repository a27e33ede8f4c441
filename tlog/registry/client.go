package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
)

const (
	maxAnswer  = 16 << 20 // bytes; MaxIndexes paths of 64 hashes are 9 MB
	maxPath    = 64       // hashes; a tree of 2^64 entries
	askWithin  = answerWithin + 15*time.Second
	tries      = 4
	firstPause = 250 * time.Millisecond // doubled each time
)

// DialOptions of a Client.
type DialOptions struct {
	// Key pins the log's key: a server with another one is refused. Without it
	// the server's word is taken, and Key is what it said.
	Key receipt.PublicKey
	// HTTP asks. http.DefaultTransport if nil.
	HTTP http.RoundTripper
}

// A Client is a Registry on a server. It checks what can be checked with the log's
// key: signatures, and that a receipt is of the entry that was added. Whether the
// log shows everybody the same tree is for verify and a monitor to find out.
type Client struct {
	base string
	http *http.Client
	key  receipt.PublicKey
}

var _ Registry = (*Client)(nil)

// Dial asks the server at base, an http or https URL, for its key.
func Dial(ctx context.Context, base string, o DialOptions) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("got %.200q, want the http or https URL of a log, without query", base)
	}
	transport := o.HTTP
	if transport == nil {
		transport = http.DefaultTransport
	}
	c := &Client{base: strings.TrimRight(base, "/"), http: &http.Client{
		Transport:     transport,
		Timeout:       askWithin,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	text, err := c.get(ctx, "/cleanrun/v1/key", 4<<10)
	if err != nil {
		return nil, err
	}
	if c.key, err = receipt.ParseVKey(strings.TrimSuffix(string(text), "\n")); err != nil {
		return nil, fmt.Errorf("%s: the log's key: %w", c.base, err)
	}
	if o.Key != (receipt.PublicKey{}) && c.key != o.Key {
		return nil, fmt.Errorf("%s: got the log %s, want %s: this is another log, or its key was changed", c.base, c.key, o.Key)
	}
	return c, nil
}

// Key implements Registry.
func (c *Client) Key() receipt.PublicKey { return c.key }

// Close implements Registry.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// ask sends a request until it is answered otherwise than that the log is not
// available. All requests may be repeated: the bytes of an entry that is in the
// log already give its index again.
func (c *Client) ask(ctx context.Context, method, path string, body []byte, limit int64, want int) ([]byte, error) {
	pause := firstPause
	for try := 1; ; try++ {
		b, err := c.once(ctx, method, path, body, limit, want)
		if err == nil || !errors.Is(err, ErrUnavailable) || try == tries {
			return b, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
		pause *= 2
	}
}

func (c *Client) once(ctx context.Context, method, path string, body []byte, limit int64, want int) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", typeCOSE)
	}
	r.Header.Set("Accept-Encoding", "identity") // what is read is bounded, not what it unpacks to
	a, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer a.Body.Close()
	if a.StatusCode != want {
		limit = maxProblem
	}
	b, err := io.ReadAll(io.LimitReader(a.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("%w: the answer to %s broke off: %w", ErrUnavailable, c.base+path, err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("%s: got more than %d bytes", c.base+path, limit)
	}
	if a.StatusCode != want {
		return nil, parseProblem(a.StatusCode, a.Header.Get("Content-Type"), b)
	}
	return b, nil
}

func (c *Client) get(ctx context.Context, path string, limit int64) ([]byte, error) {
	return c.ask(ctx, http.MethodGet, path, nil, limit, http.StatusOK)
}

// Add implements Registry. It has checked that the receipt is the log's, and of
// this statement.
func (c *Client) Add(ctx context.Context, statement []byte) (Logged, error) {
	b, err := c.ask(ctx, http.MethodPost, "/entries", statement, receipt.MaxLogReceipt, http.StatusCreated)
	if err != nil {
		return Logged{}, err
	}
	in, err := c.inclusion(b, statement)
	if err != nil {
		return Logged{}, fmt.Errorf("%s: the receipt: %w", c.base, err)
	}
	return Logged{in.Index, b}, nil
}

// inclusion checks a receipt of inclusion of a statement.
func (c *Client) inclusion(b, statement []byte) (*receipt.Inclusion, error) {
	u, err := receipt.ParseLogReceipt(b)
	if err != nil {
		return nil, err
	}
	r, err := u.VerifyInclusion(c.key, statement)
	if err != nil {
		return nil, err
	}
	return r.Inclusion(), nil
}

// Entry implements Registry. Nothing proves that it is what the log signed before
// its inclusion is checked.
func (c *Client) Entry(ctx context.Context, index uint64) ([]byte, error) {
	return c.get(ctx, "/cleanrun/v1/entry/"+strconv.FormatUint(index, 10), tlog.MaxEntry)
}

// Seal implements Registry. The server's word is taken for it: the entry at the index shows.
func (c *Client) Seal(ctx context.Context, digest [32]byte) (uint64, error) {
	b, err := c.get(ctx, fmt.Sprintf("/cleanrun/v1/seal/%x", digest), 32)
	if errors.Is(err, ErrNoEntry) {
		return 0, fmt.Errorf("%w: %x", ErrNoSeal, digest)
	}
	if err != nil {
		return 0, err
	}
	return parseNumber(strings.TrimSuffix(string(b), "\n"))
}

// Checkpoint is the newest checkpoint, whose signature it has checked.
func (c *Client) Checkpoint(ctx context.Context) ([]byte, error) {
	b, err := c.get(ctx, "/checkpoint", maxAnswer)
	if err != nil {
		return nil, err
	}
	_, err = openNote(b, c.key)
	return b, err
}

// Proofs implements Registry. It has checked that the checkpoint is the log's, and
// that all is about the indexes and sizes asked for; what the paths prove shows
// only with the entries.
func (c *Client) Proofs(ctx context.Context, indexes, from []uint64) (*Proofs, error) {
	if err := checkCounts(indexes, from); err != nil {
		return nil, err
	}
	q := make([]string, 0, len(indexes)+len(from))
	for _, i := range indexes {
		q = append(q, "index="+strconv.FormatUint(i, 10))
	}
	for _, n := range from {
		q = append(q, "from="+strconv.FormatUint(n, 10))
	}
	b, err := c.get(ctx, "/cleanrun/v1/proofs?"+strings.Join(q, "&"), maxAnswer)
	if err != nil {
		return nil, err
	}
	p, err := c.parseProofs(b, indexes, from)
	if err != nil {
		return nil, fmt.Errorf("%s: proofs: %w", c.base, err)
	}
	return p, nil
}

func (c *Client) parseProofs(b []byte, indexes, from []uint64) (*Proofs, error) {
	var a proofsAnswer
	if err := dcbor.Unmarshal(b, &a); err != nil {
		return nil, err
	}
	cp, err := openNote(a.Checkpoint, c.key)
	if err != nil {
		return nil, err
	}
	if len(a.Inclusion) != len(indexes) || len(a.Consistency) != len(from) || (len(a.Receipt) == 0) != (len(indexes) == 0) {
		return nil, fmt.Errorf("got %d paths and %d consistency receipts, want %d and %d", len(a.Inclusion), len(a.Consistency), len(indexes), len(from))
	}
	for n, path := range a.Inclusion {
		if indexes[n] >= cp.Size || len(path) > maxPath {
			return nil, fmt.Errorf("got a path of %d hashes for entry %d of %d", len(path), indexes[n], cp.Size)
		}
	}
	if len(indexes) > 0 {
		last := indexes[len(indexes)-1]
		u, err := receipt.ParseLogReceipt(a.Receipt)
		if err != nil {
			return nil, err
		}
		if in := u.Unauthenticated().Inclusion; in == nil || in.Index != last || in.Size != cp.Size {
			return nil, fmt.Errorf("got another receipt than that of entry %d in the tree of %d", last, cp.Size)
		}
	}
	for n, r := range a.Consistency {
		u, err := receipt.ParseLogReceipt(r)
		if err != nil {
			return nil, err
		}
		if k := u.Unauthenticated().Consistency; k == nil || k.Older != from[n] || k.Newer != cp.Size {
			return nil, fmt.Errorf("got another receipt than that of consistency from %d to %d", from[n], cp.Size)
		}
	}
	p := &Proofs{Checkpoint: a.Checkpoint, Inclusion: a.Inclusion, Consistency: a.Consistency}
	if len(indexes) > 0 {
		p.Receipt = a.Receipt
	}
	return p, nil
}
