package witness

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
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// askWithin bounds one witness's answer, retries included.
const askWithin = 10 * time.Second

// ErrNoQuorum is wrapped when too few witnesses cosigned. The error is a *QuorumError.
var ErrNoQuorum = errors.New("too few witnesses cosigned")

// A QuorumError says which witnesses of the policy did not cosign, and why.
type QuorumError struct {
	Quorum string // what the policy asks for
	Got    proof.Quorum
	Failed []Failure
}

// A Failure is why there is no cosignature of a witness.
type Failure struct {
	Name, URL string
	Err       error
}

func (e *QuorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v: got %d of %d, which is not quorum %s", ErrNoQuorum, e.Got.Got, e.Got.Want, e.Quorum)
	for _, f := range e.Failed {
		fmt.Fprintf(&b, "; %s: %v", f.Name, f.Err)
	}
	return b.String()
}

// Unwrap gives ErrNoQuorum.
func (e *QuorumError) Unwrap() error { return ErrNoQuorum }

// A Client asks the witnesses of a policy. Its methods may be called from many
// goroutines at a time; a witness is asked one thing at a time.
type Client struct {
	policy *proof.Policy
	log    receipt.PublicKey
	http   *http.Client
	peers  []*peer
	stop   context.CancelFunc
	ctx    context.Context
	asking sync.WaitGroup
}

// peer is a witness as the log knows it.
type peer struct {
	proof.Witness
	endpoint string
	turn     chan struct{} // holds one token
	size     uint64        // that it cosigned last, as far as is known
}

// NewClient makes a client for the log with this key. Without h, http.DefaultTransport
// is used; redirects are not followed.
func NewClient(p *proof.Policy, log receipt.PublicKey, h http.RoundTripper) (*Client, error) {
	if err := p.Done(); err != nil {
		return nil, err
	}
	if p.Quorum == "" {
		return nil, errors.New("witnesses: got a policy without a quorum line, want one: quorum none asks for no witness")
	}
	if l, ok := p.FindLog(log.Name()); len(p.Logs) > 0 && (!ok || l.Key != log) {
		return nil, fmt.Errorf("witnesses: got a policy that does not pin %s, want its log line", log)
	}
	c := &Client{policy: p, log: log, http: &http.Client{Transport: h, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	for _, w := range p.Witnesses {
		w := &peer{Witness: w, turn: make(chan struct{}, 1)}
		w.turn <- struct{}{}
		if w.URL != "" {
			endpoint, err := url.JoinPath(w.URL, "add-checkpoint")
			if err != nil {
				return nil, fmt.Errorf("witness %s: %w", w.Name, err)
			}
			w.endpoint = endpoint
		}
		c.peers = append(c.peers, w)
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// Close ends what is still being asked.
func (c *Client) Close() {
	c.stop()
	c.asking.Wait()
	c.http.CloseIdleConnections()
}

// Prove gives consistency proofs of the log that is witnessed, as tlog.Log does.
type Prove func(ctx context.Context, older, newer uint64) ([][32]byte, error)

// Cosign returns a checkpoint of the log with cosignatures added, as soon as they
// meet the policy's quorum; a witness that is slower is still told of it. A quorum
// that is met already asks nobody. Only lines that verify are added. Error: a
// *QuorumError.
func (c *Client) Cosign(ctx context.Context, note []byte, prove Prove) ([]byte, proof.Quorum, error) {
	v, err := verify(note, c.log)
	if err != nil {
		return nil, proof.Quorum{}, err
	}
	q, err := c.policy.Check(v)
	if err != nil || q.Met {
		return v.Note(), q, err
	}
	type answer struct {
		peer *peer
		line []byte
		err  error
	}
	answers := make(chan answer, len(c.peers))
	asked, submitted := 0, v
	for _, w := range c.peers {
		if _, ok, err := w.Key.Verify(v); ok && err == nil {
			continue
		}
		asked++
		c.asking.Go(func() {
			within, done := context.WithTimeoutCause(c.ctx, askWithin, fmt.Errorf("no answer within %v", askWithin))
			defer done()
			line, err := c.ask(within, w, submitted, prove)
			if cause := context.Cause(within); err != nil && cause != nil {
				err = cause
			}
			answers <- answer{w, line, err}
		})
	}
	failed := map[*peer]error{}
	for left := asked; err == nil && !q.Met; left-- {
		if left == 0 {
			return nil, q, c.short(q, failed)
		}
		select {
		case <-ctx.Done():
			return nil, q, ctx.Err()
		case a := <-answers:
			if a.err != nil {
				failed[a.peer] = a.err
				continue
			}
			if v, err = c.with(v, a.line); err == nil {
				q, err = c.policy.Check(v)
			}
		}
	}
	if err != nil {
		return nil, q, err
	}
	return v.Note(), q, nil
}

// with adds a line that verified.
func (c *Client) with(v *proof.Verified, line []byte) (*proof.Verified, error) {
	note, err := proof.AddSignatures(v.Note(), line)
	if err != nil {
		return nil, err
	}
	return verify(note, c.log)
}

// short names the witnesses in the order of the policy.
func (c *Client) short(q proof.Quorum, failed map[*peer]error) error {
	e := &QuorumError{Quorum: c.policy.Quorum, Got: q}
	for _, w := range c.peers {
		if err := failed[w]; err != nil {
			e.Failed = append(e.Failed, Failure{w.Name, w.URL, err})
		}
	}
	return e
}

// ask gets one witness's signature line for a checkpoint.
func (c *Client) ask(ctx context.Context, w *peer, v *proof.Verified, prove Prove) ([]byte, error) {
	if w.endpoint == "" {
		return nil, errors.New("the policy gives no URL for it")
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-w.turn:
		defer func() { w.turn <- struct{}{} }()
	}
	cp := v.Checkpoint()
	// The size is a guess at first, and after another client of the same log.
	for range 3 {
		if w.size > cp.Size {
			return nil, fmt.Errorf("it cosigned size %d, which is after size %d: this is an old checkpoint, or the log went back", w.size, cp.Size)
		}
		var path [][32]byte
		if 0 < w.size && w.size < cp.Size {
			var err error
			if path, err = prove(ctx, w.size, cp.Size); err != nil {
				return nil, err
			}
		}
		status, kind, body, err := c.post(ctx, w.endpoint, formatRequest(w.size, path, v.Note()))
		if err != nil {
			return nil, err
		}
		switch {
		case status == http.StatusOK:
			line, err := c.line(w, v, body)
			if err == nil {
				w.size = cp.Size
			}
			return line, err
		case status == http.StatusConflict && kind == sizeType:
			size, err := parseSize(body)
			if err != nil {
				return nil, err
			}
			if size == w.size {
				return nil, fmt.Errorf("got a conflict with its own size %d", size)
			}
			w.size = size
		case status == http.StatusConflict:
			return nil, fmt.Errorf("it knows another tree of size %d, so the log has shown two: %.200s", cp.Size, bytes.TrimSpace(body))
		default:
			return nil, fmt.Errorf("%s answered %d %s: %.200q", w.endpoint, status, http.StatusText(status), bytes.TrimSpace(body))
		}
	}
	return nil, fmt.Errorf("%s names another size each time", w.endpoint)
}

func (c *Client) post(ctx context.Context, endpoint string, body []byte) (status int, kind string, answer []byte, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, bytes.NewReader(body))
	if err != nil {
		return 0, "", nil, err
	}
	res, err := c.http.Do(r)
	if err != nil {
		return 0, "", nil, err
	}
	defer res.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(res.Body, proof.MaxNote+1))
	if err == nil && len(answer) > proof.MaxNote {
		err = fmt.Errorf("%s: got an answer of more than %d bytes", endpoint, proof.MaxNote)
	}
	return res.StatusCode, res.Header.Get("Content-Type"), answer, err
}

// line takes the witness's own line out of its answer, once it verified. Lines of
// other keys are left out.
func (c *Client) line(w *peer, v *proof.Verified, lines []byte) ([]byte, error) {
	signed, err := c.with(v, lines)
	if err != nil {
		return nil, fmt.Errorf("its answer cannot be read: %w", err)
	}
	line, ok, err := w.Key.Line(signed)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, fmt.Errorf("got an answer without a cosignature of %s, key id %08x: the policy pins another key", w.Key.Name(), w.Key.ID())
	}
	return line, nil
}

func parseSize(body []byte) (uint64, error) {
	digits, ok := strings.CutSuffix(string(body), "\n")
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || !ok || strconv.FormatUint(n, 10) != digits {
		return 0, fmt.Errorf("got %.40q as its size, want a decimal number and a newline", body)
	}
	return n, nil
}
