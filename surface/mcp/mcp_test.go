package mcp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/surface"
)

// pipe is both ends of a connection.
type pipe struct {
	io.Reader
	io.Writer
	close func()
}

func (p pipe) Close() error { p.close(); return nil }

// serve answers each line with the lines that answer gives.
func serve(answer func(method, tool, path, id string) []string) io.ReadWriteCloser {
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	go func() {
		defer toClient.Close()
		lines := make(chan []byte, 1<<16) // so that what the client answers never waits
		go func() {
			defer close(lines)
			for in := bufio.NewScanner(fromClient); in.Scan(); {
				lines <- bytes.Clone(in.Bytes())
			}
		}()
		for line := range lines {
			var m struct {
				ID     json.RawMessage `json:"id"`
				Method string          `json:"method"`
				Params struct {
					Name      string `json:"name"`
					Arguments struct {
						Path string `json:"path"`
					} `json:"arguments"`
				} `json:"params"`
			}
			if json.Unmarshal(line, &m) != nil {
				return
			}
			for _, line := range answer(m.Method, m.Params.Name, m.Params.Arguments.Path, string(m.ID)) {
				if _, err := io.WriteString(toClient, line+"\n"); err != nil {
					return
				}
			}
		}
	}()
	return pipe{fromServer, toServer, func() { fromServer.Close(); toServer.Close(); fromClient.Close(); toClient.Close() }}
}

// A fake is a server's answers by tool and path; "!" is a failure of the tool.
type fake map[string]string

func (f fake) answer(method, tool, path, id string) []string {
	reply := func(result string) []string {
		return []string{`{"jsonrpc":"2.0","method":"notifications/message","params":{}}`, `{"jsonrpc":"2.0","id":"s1","method":"ping"}`, `{"jsonrpc":"2.0","id":7,"method":"roots/list"}`,
			`{"jsonrpc":"2.0","id":` + id + `,"result":` + result + `}`}
	}
	switch method {
	case "initialize":
		return reply(`{"protocolVersion":"2025-06-18","serverInfo":{"name":"fake\u0007","version":"1"}}`)
	case "tools/list":
		return reply(`{"tools":[{"name":"list_directory"},{"name":"directory_tree"},{"name":"get_file_info"},{"name":"read_media_file"}]}`)
	case "tools/call":
		v, ok := f[tool+" "+path]
		if !ok || v == "!" {
			return reply(`{"content":[{"type":"text","text":"Error: no"}],"isError":true}`)
		}
		if strings.HasPrefix(v, "{") && tool == "read_media_file" {
			return reply(`{"content":[` + v + `]}`)
		}
		text, _ := json.Marshal(v)
		return reply(`{"content":[{"type":"text","text":` + string(text) + `}]}`)
	}
	return nil
}

func info(size int, kind string) string {
	return fmt.Sprintf("size: %d\ncreated: x\nmodified: Thu Jan 01 1970 00:16:40 GMT+0000 (Coordinated Universal Time)\naccessed: x\nisDirectory: %v\nisFile: %v\npermissions: 644", size, kind == "dir", kind == "file")
}

func media(s string) string {
	return `{"type":"resource","resource":{"uri":"file:///x","mimeType":"application/octet-stream","blob":"` + base64.StdEncoding.EncodeToString([]byte(s)) + `"}}`
}

func dial(t testing.TB, f fake) *Source {
	t.Helper()
	c, err := Dial(context.Background(), serve(f.answer))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &Source{c, "/r"}
}

func exact(p string) surface.Location { return surface.Location{Path: p} }
func glob(p string) surface.Location  { return surface.Location{Path: p, Glob: true} }

func ask(t testing.TB, s surface.Source, l surface.Location, text string, scope surface.Scope) (surface.Result, *surface.Observation) {
	t.Helper()
	c, err := surface.NewCondition(l, surface.Matcher{Kind: surface.Contains, Text: text})
	if err != nil {
		t.Fatal(err)
	}
	limits := surface.DefaultLimits
	limits.Read = 1 << 20
	o, err := surface.Observe(context.Background(), s, l, scope, limits)
	if err != nil {
		t.Fatal(err)
	}
	r, err := surface.Judge(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return r, o
}

func want(t *testing.T, name string, r surface.Result, outcome surface.Outcome, reasons ...string) {
	t.Helper()
	var got []string
	for _, g := range r.Reasons {
		got = append(got, strings.TrimSpace(fmt.Sprint(g.Reason, " ", g.Location)))
	}
	if r.Outcome != outcome || !slices.Equal(got, reasons) {
		t.Errorf("%s: got %v %q, want %v %q", name, r.Outcome, got, outcome, reasons)
	}
}

func TestServer(t *testing.T) {
	f := fake{
		"list_directory /r": "[FILE] a.txt\n[DIR] d\n[FILE] link\n[FILE] big\n[FILE] pipe\n[FILE] broken\n[FILE] short", "list_directory /r/d": "[FILE] b.txt\n[DIR] closed", "list_directory /r/d/closed": "!",
		"get_file_info /r/a.txt": info(10, "file"), "read_media_file /r/a.txt": media("the answer"),
		"get_file_info /r/d/b.txt": info(3, "file"), "read_media_file /r/d/b.txt": `{"type":"image","mimeType":"image/png","data":"YWJj"}`,
		"get_file_info /r/link": info(0, "dir"), "get_file_info /r/big": info(2<<20, "file"), "get_file_info /r/pipe": info(0, "other"),
		"get_file_info /r/broken": info(3, "file"), "read_media_file /r/broken": `{"type":"image","data":"YWJ"}`,
		"get_file_info /r/short": info(4, "file"), "read_media_file /r/short": media("abc"),
		"directory_tree /r":   `[{"name":"a.txt","type":"file"},{"name":"d","type":"directory","children":[{"name":"b.txt","type":"file"}]}]`,
		"directory_tree /r/d": `[{"name":"b.txt","type":"file"},{"name":"n\nl.md","type":"file"}]`, "get_file_info /r/d/n\nl.md": info(3, "file"), "read_media_file /r/d/n\nl.md": media("new"),
	}
	s := dial(t, f)
	for _, c := range []struct {
		at      surface.Location
		text    string
		outcome surface.Outcome
		reasons []string
	}{
		{exact("a.txt"), "answer", surface.True, nil}, {exact("a.txt"), "question", surface.False, nil}, {exact("d/b.txt"), "abc", surface.True, nil},
		{exact("gone"), "x", surface.False, nil}, {exact("gone/x"), "x", surface.False, nil}, {exact("d/gone"), "x", surface.False, nil}, {exact("a.txt/x"), "x", surface.False, nil},
		{exact("d/closed/x"), "x", surface.Undetermined, []string{"listing-failed d/closed"}}, {exact("link/x"), "x", surface.Undetermined, []string{"link-not-followed link/x"}},
		{exact("link"), "x", surface.Undetermined, []string{"not-a-file link"}}, {exact("pipe"), "x", surface.Undetermined, []string{"not-a-file pipe"}},
		{exact("d"), "x", surface.False, nil}, {exact("big"), "x", surface.Undetermined, []string{"read-limit big"}}, {exact("broken"), "x", surface.Undetermined, []string{"read-failed broken"}},
		{exact("short"), "x", surface.Undetermined, []string{"changed short"}}, {exact("a\nb"), "x", surface.Undetermined, []string{"unsafe-name a\nb"}}, {exact("\xff"), "x", surface.Undetermined, []string{"unsafe-name \xff"}},
		{glob("**/*.txt"), "answer", surface.True, nil}, {glob("**/*.txt"), "question", surface.False, nil}, {glob("d/*.md"), "new", surface.True, nil}, {glob("gone/*"), "x", surface.False, nil},
	} {
		if c.at == exact("d") { // a folder is no file here either
			c.outcome, c.reasons = surface.Undetermined, []string{"not-a-file d"}
			f["get_file_info /r/d"] = info(0, "dir")
		}
		r, o := ask(t, s, c.at, c.text, surface.Scope{})
		want(t, fmt.Sprintf("%v %s", c.at, c.text), r, c.outcome, c.reasons...)
		if o.Source.Version != "fake? 1, protocol 2025-06-18" {
			t.Errorf("got version %q", o.Source.Version)
		}
	}
	w := surface.Scope{Window: &surface.Window{From: 2e12, To: 3e12}} // the file is of second 1000
	r, _ := ask(t, s, exact("a.txt"), "answer", w)
	want(t, "outside the window by a time that can be forged", r, surface.Undetermined, "time-unproven a.txt")
	r, _ = ask(t, &Source{s.Client, "/elsewhere"}, exact("a.txt"), "answer", surface.Scope{})
	want(t, "no such root", r, surface.Undetermined, "source-unavailable")
}

// Names of a tree that are none, or come twice, hide nothing.
func TestNamesOfATree(t *testing.T) {
	for name, tree := range map[string]string{
		"slash": `[{"name":"a/b","type":"file"}]`, "climbs": `[{"name":"..","type":"directory","children":[]}]`, "not UTF-8": `[{"name":"a\ufffd","type":"file"}]`,
		"twice": `[{"name":"a","type":"directory","children":[]},{"name":"a","type":"directory","children":[]}]`, "another type": `[{"name":"a","type":"socket"}]`,
		"folder without children": `[{"name":"a","type":"directory"}]`, "empty": `[{"name":"","type":"file"}]`,
	} {
		r, _ := ask(t, dial(t, fake{"list_directory /r": "", "directory_tree /r": tree}), glob("**"), "x", surface.Scope{})
		want(t, name, r, surface.Undetermined, "unsafe-name")
	}
	for _, tree := range []string{"!", "not json", `{"name":1}`} {
		r, _ := ask(t, dial(t, fake{"list_directory /r": "", "directory_tree /r": tree}), glob("**"), "x", surface.Scope{})
		want(t, tree, r, surface.Undetermined, "listing-failed")
	}
	r, _ := ask(t, dial(t, fake{"list_directory /r": "", "directory_tree /r": "[]"}), glob("**"), "x", surface.Scope{})
	want(t, "an empty folder", r, surface.False)
}

// A server that does not speak the protocol ends the session, and the answer is not no.
func TestServerThatMisbehaves(t *testing.T) {
	f := fake{"list_directory /r": "[FILE] a"}
	for name, line := range map[string]func(id string) []string{
		"another id":       func(id string) []string { return []string{`{"jsonrpc":"2.0","id":99,"result":{}}`} },
		"an id as text":    func(id string) []string { return []string{`{"jsonrpc":"2.0","id":"` + id + `","result":{}}`} },
		"no JSON":          func(id string) []string { return []string{"starting up..."} },
		"another protocol": func(id string) []string { return []string{`{"jsonrpc":"1.0","id":` + id + `,"result":{}}`} },
		"no result":        func(id string) []string { return []string{`{"jsonrpc":"2.0","id":` + id + `}`} },
		"only noise": func(id string) []string {
			return slices.Repeat([]string{`{"jsonrpc":"2.0","method":"x"}`}, maxForeign+1)
		},
	} {
		c, err := Dial(context.Background(), serve(func(method, tool, path, id string) []string {
			if method == "tools/call" && tool == "get_file_info" {
				return line(id)
			}
			return f.answer(method, tool, path, id)
		}))
		if err != nil {
			t.Fatal(err)
		}
		r, o := ask(t, &Source{c, "/r"}, exact("a"), "x", surface.Scope{})
		want(t, name, r, surface.Undetermined, "read-failed a", "source-failed")
		if o.Acquisition != surface.Failed {
			t.Errorf("%s: got %v", name, o.Acquisition)
		}
		c.Close()
	}
	for name, answer := range map[string]func(method, tool, path, id string) []string{
		"an error": func(_, _, _, id string) []string {
			return []string{`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-32600,"message":"no"}}`}
		},
		"no tools": func(m, tool, path, id string) []string {
			if m == "tools/list" {
				return []string{`{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":[{"name":"list_directory"}]}}`}
			}
			return f.answer(m, tool, path, id)
		},
		"pages without end": func(m, tool, path, id string) []string {
			if m == "tools/list" {
				return []string{`{"jsonrpc":"2.0","id":` + id + `,"result":{"tools":[],"nextCursor":"more"}}`}
			}
			return f.answer(m, tool, path, id)
		},
	} {
		if _, err := Dial(context.Background(), serve(answer)); err == nil || !strings.HasPrefix(err.Error(), "mcp: ") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestCancelWhileTheServerIsSilent(t *testing.T) {
	f := fake{"list_directory /r": "[FILE] a"}
	ctx, cancel := context.WithCancel(context.Background())
	c, err := Dial(context.Background(), serve(func(method, tool, path, id string) []string {
		if tool == "get_file_info" {
			cancel()
			return nil
		}
		return f.answer(method, tool, path, id)
	}))
	if err != nil {
		t.Fatal(err)
	}
	o, err := surface.Observe(ctx, &Source{c, "/r"}, exact("a"), surface.Scope{}, surface.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := o.Gap(surface.Cancelled); !ok || o.Acquisition != surface.Partial {
		t.Errorf("got %v %v, want it cancelled", o.Acquisition, o.Gaps)
	}
}

// A server that never answers ends the session, and nothing is concluded from it.
func TestServerThatNeverAnswers(t *testing.T) {
	f := fake{"list_directory /r": "[FILE] a", "get_file_info /r/a": info(1, "file"), "read_media_file /r/a": media("x")}
	for _, silent := range []bool{false, true} {
		c, err := Dial(context.Background(), serve(func(method, tool, path, id string) []string {
			if silent && tool != "" {
				return nil
			}
			return f.answer(method, tool, path, id)
		}))
		if err != nil {
			t.Fatal(err)
		}
		if silent {
			c.wait = time.Millisecond
		}
		r, o := ask(t, &Source{c, "/r"}, exact("a"), "y", surface.Scope{})
		if !silent {
			want(t, "control", r, surface.False)
			continue
		}
		if r.Outcome != surface.Undetermined || o.Acquisition != surface.Failed || c.broken == nil || !strings.Contains(c.broken.Error(), "got no answer to tools/call in 1ms") {
			t.Errorf("got %v, %v, %v", r.Outcome, o.Acquisition, c.broken)
		}
	}
}

func TestParseInfo(t *testing.T) {
	if i, err := parseInfo(info(5, "file")); err != nil || i.size != 5 || !i.file || i.dir || i.modified == nil || *i.modified != 1000e9 {
		t.Errorf("got %+v %v", i, err)
	}
	for _, bad := range []string{"", "size", info(5, "file") + "\nsize: 6", strings.Replace(info(5, "file"), "size: 5", "size: -5", 1), strings.Replace(info(5, "file"), "isFile: true", "isFile: yes", 1)} {
		if _, err := parseInfo(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func FuzzServer(f *testing.F) {
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"result":{"serverInfo":{"name":"x"}}}` + "\n" + `{"jsonrpc":"2.0","id":2,"result":{"tools":[{"name":"list_directory"},{"name":"directory_tree"},{"name":"get_file_info"},{"name":"read_media_file"}]}}` + "\n" +
		`{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"[FILE] a"}]}}` + "\n" + `{"jsonrpc":"2.0","id":4,"result":{"content":[{"type":"text","text":"[{\"name\":\"a\",\"type\":\"file\"}]"}]}}` + "\n" +
		`{"jsonrpc":"2.0","id":5,"result":{"content":[{"type":"text","text":"size: 1\nisDirectory: false\nisFile: true"}]}}` + "\n" + `{"jsonrpc":"2.0","id":6,"result":{"content":[{"type":"image","data":"YQ=="}]}}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Dial(context.Background(), pipe{bytes.NewReader(b), io.Discard, func() {}})
		if err != nil {
			return
		}
		o, err := surface.Observe(context.Background(), &Source{c, "/r"}, glob("**"), surface.Scope{}, surface.DefaultLimits)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := surface.Format(o); err != nil {
			t.Fatal(err)
		}
	})
}

// The reference server, from npm.
func TestReferenceServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: nothing is fetched from npm")
	}
	for _, p := range []string{"node", "npm"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dir := t.TempDir()
	install := exec.CommandContext(ctx, "npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefer-offline", "--fetch-retries=0", "--fetch-timeout=20000", "--prefix", dir, "@modelcontextprotocol/server-filesystem@2026.8.31")
	install.Dir, install.WaitDelay = dir, 5*time.Second
	if out, err := install.CombinedOutput(); err != nil {
		t.Skipf("the reference server cannot be had from npm: %v: %.300s", err, out)
	}
	root := filepath.Join(dir, "root")
	for name, text := range map[string]string{"out/a.txt": "the answer", "out/deep/b.txt": "secret", "out/raw": "\xff\xfe\x00", "n\nl.txt": "new line", "out/pic.png": "no picture", "empty": ""} {
		p := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(p), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("out", filepath.Join(root, "dirlink")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(context.Background(), 3*time.Minute) // its own time: npm may have been slow
	defer cancel()
	c, err := Start(ctx, []string{"node", filepath.Join(dir, "node_modules/@modelcontextprotocol/server-filesystem/dist/index.js"), root})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s := &Source{c, root}
	for _, q := range []struct {
		at      surface.Location
		text    string
		outcome surface.Outcome
		reasons []string
	}{
		{exact("out/a.txt"), "answer", surface.True, nil}, {exact("out/a.txt"), "question", surface.False, nil}, {exact("out/gone.txt"), "x", surface.False, nil}, {exact("gone/deep/x"), "x", surface.False, nil},
		{exact("out/pic.png"), "no picture", surface.True, nil}, {exact("out/raw"), "x", surface.Undetermined, []string{"not-text out/raw"}}, {exact("empty"), "x", surface.False, nil},
		{exact("out"), "x", surface.Undetermined, []string{"not-a-file out"}}, {exact("dirlink/a.txt"), "answer", surface.Undetermined, []string{"link-not-followed dirlink/a.txt"}},
		{glob("out/**/*.txt"), "secret", surface.True, nil}, {glob("out/**/*.txt"), "question", surface.False, nil}, {glob("*.txt"), "new line", surface.True, nil},
		{glob("**/*.txt"), "question", surface.Undetermined, []string{"link-not-followed dirlink"}},
	} {
		r, _ := ask(t, s, q.at, q.text, surface.Scope{})
		want(t, fmt.Sprintf("%v %s", q.at, q.text), r, q.outcome, q.reasons...)
	}
	_, o := ask(t, s, exact("out/a.txt"), "answer", surface.Scope{})
	if !strings.HasPrefix(o.Source.Version, "secure-filesystem-server 0.") || o.Entries[0].Modified == nil {
		t.Errorf("got %+v", o)
	}
	r, _ := ask(t, &Source{c, filepath.Dir(root)}, exact("x"), "y", surface.Scope{})
	want(t, "a folder that the server does not allow", r, surface.Undetermined, "source-unavailable")
}
