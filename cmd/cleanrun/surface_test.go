package main

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/surface"
)

func init() { commands["fileserver"] = fileServer }

// fileServer is a file-system server of the Model Context Protocol on standard streams.
func fileServer() {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
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
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		var result any
		switch m.Method {
		case "initialize":
			result = map[string]any{"protocolVersion": "2025-06-18", "capabilities": struct{}{}, "serverInfo": map[string]string{"name": "fileserver", "version": "1"}}
		case "tools/list":
			var list []map[string]string
			for _, n := range []string{"list_directory", "directory_tree", "get_file_info", "read_media_file"} {
				list = append(list, map[string]string{"name": n})
			}
			result = map[string]any{"tools": list}
		case "tools/call":
			content, err := fileTool(m.Params.Name, m.Params.Arguments.Path)
			result = map[string]any{"content": []any{content}, "isError": err != nil}
		}
		b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
		if err != nil {
			panic(err)
		}
		fmt.Println(string(b))
	}
}

func fileTool(name, path string) (map[string]any, error) {
	text := ""
	st, err := os.Stat(path)
	switch {
	case err != nil:
	case name == "list_directory":
		var list []os.DirEntry
		list, err = os.ReadDir(path)
		for _, e := range list {
			kind := "[FILE]"
			if e.IsDir() {
				kind = "[DIR]"
			}
			text += kind + " " + e.Name() + "\n"
		}
	case name == "get_file_info":
		text = fmt.Sprintf("size: %d\nmodified: %s\nisDirectory: %v\nisFile: %v", st.Size(), st.ModTime().UTC().Format(time.RFC3339), st.IsDir(), st.Mode().IsRegular())
	case name == "read_media_file":
		var b []byte
		b, err = os.ReadFile(path)
		return map[string]any{"type": "resource", "resource": map[string]string{"uri": "file://" + path, "blob": base64.StdEncoding.EncodeToString(b)}}, err
	}
	return map[string]any{"type": "text", "text": text}, err
}

// The window of a run is that of its files, and a copy that lost their times is refused.
func TestRunWindow(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []string{"journal", "secret"} {
		if err := os.WriteFile(filepath.Join(dir, n), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	set := func(name string, at time.Time) {
		if err := os.Chtimes(filepath.Join(dir, name), at, at); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Unix(1767225600, 0)
	set("secret", start)
	set("journal", start.Add(3*time.Second))
	w, err := runWindow(dir)
	if want := (surface.Window{From: start.Add(-surface.Skew).UnixNano(), To: start.Add(3*time.Second + surface.Skew).UnixNano()}); err != nil || w != want {
		t.Errorf("got %+v %v, want %+v", w, err, want)
	}
	for _, end := range []time.Duration{-time.Second, time.Hour} { // the journal lasted no time at all
		set("journal", start.Add(end))
		if _, err := runWindow(dir); err == nil {
			t.Errorf("a span of %v was taken", end)
		}
	}
}
