package mcp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

const (
	protocol   = "2025-06-18"
	maxMessage = 96 << 20 // bytes of one message: base64 of the largest file that is read
	maxForeign = 10_000   // messages of the server's own while an answer is waited for
	maxPages   = 100      // of its list of tools

	// answerTime is how long one answer is waited for: a server may be fetched first, and
	// a large tree takes a while.
	answerTime = 2 * time.Minute
)

// tools that a server must offer.
var tools = []string{"directory_tree", "get_file_info", "list_directory", "read_media_file"}

// A Client is a session with one server. It is not for two goroutines.
type Client struct {
	conn   io.ReadWriteCloser
	in     *bufio.Reader
	id     int64
	name   string // what the server says of itself
	broken error  // the session cannot go on
	wait   time.Duration
}

// message of JSON-RPC 2.0, either way.
type message struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Dial begins a session over a connection, one message a line.
func Dial(ctx context.Context, conn io.ReadWriteCloser) (*Client, error) {
	return dialFor(ctx, conn, answerTime)
}

func dialFor(ctx context.Context, conn io.ReadWriteCloser, wait time.Duration) (*Client, error) {
	c := &Client{conn: conn, in: bufio.NewReaderSize(conn, 64<<10), wait: wait}
	var hello struct {
		Server struct {
			Name    string `json:"name"`
			Version string `json:"version"`
		} `json:"serverInfo"`
		Protocol string `json:"protocolVersion"`
	}
	err := c.request(ctx, "initialize", map[string]any{"protocolVersion": protocol, "capabilities": struct{}{},
		"clientInfo": map[string]string{"name": "cleanrun", "version": "1"}}, &hello)
	if err != nil {
		return nil, fmt.Errorf("mcp: initialize: %w", err)
	}
	c.name = printed(hello.Server.Name + " " + hello.Server.Version + ", protocol " + hello.Protocol)
	if err := c.send(message{Version: "2.0", Method: "notifications/initialized"}); err != nil {
		return nil, fmt.Errorf("mcp: initialize: %w", err)
	}
	return c, c.offers(ctx)
}

// offers looks for the tools in the server's list.
func (c *Client) offers(ctx context.Context) error {
	has := map[string]bool{}
	cursor := ""
	for page := 0; ; page++ {
		var list struct {
			Tools []struct {
				Name string `json:"name"`
			} `json:"tools"`
			Next string `json:"nextCursor"`
		}
		params := map[string]any{}
		if cursor != "" {
			params["cursor"] = cursor
		}
		if err := c.request(ctx, "tools/list", params, &list); err != nil {
			return fmt.Errorf("mcp: tools/list: %w", err)
		}
		for _, t := range list.Tools {
			has[t.Name] = true
		}
		if cursor = list.Next; cursor == "" || page == maxPages {
			break
		}
	}
	for _, t := range tools {
		if !has[t] {
			return fmt.Errorf("mcp: %s offers no tool %s; want a file-system server with %s", c.name, t, strings.Join(tools, ", "))
		}
	}
	return nil
}

// Close ends the session.
func (c *Client) Close() error { return c.conn.Close() }

func (c *Client) send(m message) error {
	b, err := json.Marshal(m)
	if err != nil {
		return err
	}
	_, err = c.conn.Write(append(b, '\n'))
	return err
}

// request asks, and waits for the answer, wait long at most. After an error of the session, an
// unexpected answer included, nothing more is asked.
func (c *Client) request(ctx context.Context, method string, params, result any) error {
	if c.broken != nil {
		return c.broken
	}
	ctx, cancel := context.WithTimeoutCause(ctx, c.wait, fmt.Errorf("got no answer to %s in %v", method, c.wait))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { c.conn.Close() })
	defer stop()
	c.id++
	id := json.RawMessage(fmt.Sprint(c.id))
	if err := c.send(message{Version: "2.0", ID: id, Method: method, Params: params}); err != nil {
		return c.fail(ctx, err)
	}
	for range maxForeign {
		m, err := c.receive()
		switch {
		case err != nil:
			return c.fail(ctx, err)
		case m.Method != "" && len(m.ID) == 0:
			continue // a notification
		case m.Method != "":
			if err := c.answer(m); err != nil {
				return c.fail(ctx, err)
			}
			continue
		case string(m.ID) != string(id):
			return c.fail(ctx, fmt.Errorf("got an answer to %.40q, want one to %s", m.ID, id))
		case m.Error != nil:
			return fmt.Errorf("the server says: %.200q (%d)", m.Error.Message, m.Error.Code)
		}
		if err := json.Unmarshal(m.Result, result); err != nil {
			return c.fail(ctx, err)
		}
		return nil
	}
	return c.fail(ctx, errors.New("no answer among too many other messages"))
}

func (c *Client) fail(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	c.broken = err
	return err
}

// answer replies to a request of the server: it may ping, and gets nothing else.
func (c *Client) answer(m *message) error {
	reply := message{Version: "2.0", ID: m.ID}
	if m.Method == "ping" {
		reply.Result = json.RawMessage("{}")
		return c.send(reply)
	}
	_, err := fmt.Fprintf(c.conn, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"error\":{\"code\":-32601,\"message\":\"not offered\"}}\n", m.ID)
	return err
}

// receive reads one line.
func (c *Client) receive() (*message, error) {
	var line []byte
	for {
		part, err := c.in.ReadSlice('\n')
		if len(line)+len(part) > maxMessage {
			return nil, fmt.Errorf("got a message of more than %d bytes", maxMessage)
		}
		line = append(line, part...)
		if err == nil {
			break
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			if err == io.EOF {
				err = errors.New("the server ended")
			}
			return nil, err
		}
	}
	m := &message{}
	if err := json.Unmarshal(line, m); err != nil {
		return nil, fmt.Errorf("got %.60q, want a line of JSON-RPC: %w", line, err)
	}
	if m.Version != "2.0" {
		return nil, fmt.Errorf("got JSON-RPC %q, want 2.0", m.Version)
	}
	return m, nil
}

// A result of a tool.
type result struct {
	Content []struct {
		Type     string `json:"type"`
		Text     string `json:"text"`
		Data     string `json:"data"`
		Resource *struct {
			Blob *string `json:"blob"`
		} `json:"resource"`
	} `json:"content"`
	IsError bool `json:"isError"`
}

// errTool says that a tool reported a failure; the session goes on.
var errTool = errors.New("the tool failed")

func (c *Client) call(ctx context.Context, tool, path string) (*result, error) {
	r := &result{}
	err := c.request(ctx, "tools/call", map[string]any{"name": tool, "arguments": map[string]string{"path": path}}, r)
	if err == nil && (r.IsError || len(r.Content) != 1) {
		err = errTool
	}
	return r, err
}

// Start starts a server that speaks on its standard streams. Close ends it. What it
// writes to its error output is shown only if it does not begin a session.
func Start(ctx context.Context, argv []string) (*Client, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	log := &tail{}
	cmd.Stderr, cmd.WaitDelay = log, 2*time.Second
	w, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{Reader: r, WriteCloser: w, cmd: cmd}
	c, err := Dial(ctx, p)
	if err != nil {
		p.Close()
		if s := strings.TrimSpace(string(log.b)); s != "" {
			err = fmt.Errorf("%w; it wrote %q", err, s)
		}
		return nil, err
	}
	return c, nil
}

// A tail keeps the last bytes that were written to it.
type tail struct{ b []byte }

const tailSize = 400

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	t.b = t.b[max(0, len(t.b)-tailSize):]
	return len(p), nil
}

// A process is a server's standard streams.
type process struct {
	io.Reader
	io.WriteCloser
	cmd  *exec.Cmd
	once sync.Once
}

// Close closes its input, which ends a server, and kills it if it does not end.
func (p *process) Close() error {
	p.once.Do(func() {
		p.WriteCloser.Close()
		late := time.AfterFunc(2*time.Second, func() { _ = p.cmd.Process.Kill() })
		_ = p.cmd.Wait()
		late.Stop()
	})
	return nil
}
