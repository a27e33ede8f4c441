// Package mcp is a file-system server of the Model Context Protocol
// (modelcontextprotocol.io, 2025-06-18) as a source of surface: JSON-RPC over standard
// streams, with the tools of the reference server @modelcontextprotocol/server-filesystem.
//
// Limits first. Everything is what the server says: it can leave out, invent and change.
// Use a server that the run could not touch. Its times have whole seconds and are those
// that a file's writer chooses. It spells a name that is no UTF-8 with U+FFFD, and a
// link like a file; so of these nothing is said, and of a link what lies behind it is
// read as the server reads it.
//
// For one path, each folder above it is listed; so what is absent is told from what cannot
// be read without the words of an error. For a glob the tree of its base is asked for,
// whole. Files are read as bytes (base64), never through the server's text tools, which
// replace what they cannot decode.
package mcp

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"path"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/surface"
)

// A Source is one folder of a server.
type Source struct {
	Client *Client
	Root   string // the folder as the server names it
}

// Describe gives the server's own words on itself.
func (s *Source) Describe() surface.Description {
	return surface.Description{Kind: "mcp", Version: s.Client.name, Applies: []surface.Key{surface.KeyWindow}}
}

func printed(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s[:min(len(s), 512)])
}

// List asks the server.
func (s *Source) List(ctx context.Context, at surface.Location, c *surface.Collector) {
	w := &walk{s, ctx, at, c}
	if !utf8.ValidString(at.Path) {
		c.Gap(surface.UnsafeName, at.Path) // JSON cannot ask for it
		return
	}
	first, err := w.list("")
	if w.ended(err) {
		return
	}
	if err != nil {
		_ = c.Break(surface.Unavailable)
		return
	}
	if !at.Glob {
		if w.walkTo(first, at.Path, true) {
			_ = w.file(at.Path)
		}
		return
	}
	base := at.Base()
	if base == "." {
		base = ""
	} else if !w.walkTo(first, base, false) {
		return
	}
	w.tree(base)
}

type walk struct {
	*Source
	ctx context.Context
	at  surface.Location
	c   *surface.Collector
}

// ended tells whether the session cannot go on, which the observation then says.
func (w *walk) ended(err error) bool {
	switch {
	case err == nil || errors.Is(err, errTool):
		return false
	case w.ctx.Err() != nil:
		_ = w.c.Listed() // which says so
		return true
	case w.Client.broken != nil:
		_ = w.c.Break(surface.Failed)
		return true
	}
	return false
}

func (w *walk) full(p string) string {
	if p == "" {
		return w.Root
	}
	return strings.TrimSuffix(w.Root, "/") + "/" + p
}

// list is the text of a folder's listing: a line "[FILE] name" or "[DIR] name" each.
func (w *walk) list(dir string) (string, error) {
	if err := w.c.Listed(); err != nil {
		return "", err
	}
	r, err := w.Client.call(w.ctx, "list_directory", w.full(dir))
	if err != nil {
		return "", err
	}
	return r.Content[0].Text, nil
}

// walkTo goes down to a path, and tells whether something is there. A name that holds
// a newline can forge lines that say that something is there, never hide one.
func (w *walk) walkTo(listing, p string, file bool) bool {
	if strings.Contains(p, "\n") {
		w.c.Gap(surface.UnsafeName, p)
		return false
	}
	done := ""
	left := strings.Split(p, "/")
	for i, name := range left {
		isFile, isDir := false, false
		for line := range strings.SplitSeq(listing, "\n") {
			isFile = isFile || line == "[FILE] "+name
			isDir = isDir || line == "[DIR] "+name
			if strings.ContainsRune(line, utf8.RuneError) && strings.ContainsRune(name, utf8.RuneError) {
				w.c.Gap(surface.UnsafeName, p)
				return false
			}
		}
		last := i == len(left)-1
		switch {
		case !isFile && !isDir:
			return false
		case last && file:
			return true
		case !isDir:
			// A link to a folder looks like a file.
			if info, err := w.info(path.Join(done, name)); w.ended(err) {
				return false
			} else if err != nil || info.dir {
				w.c.Gap(surface.LinkNotFollowed, p)
			}
			return false
		case last:
			return true
		}
		done = path.Join(done, name)
		var err error
		if listing, err = w.list(done); err != nil {
			if !w.ended(err) {
				w.c.Gap(surface.ListingFailed, done)
			}
			return false
		}
	}
	return false
}

// A fileInfo is what get_file_info says.
type fileInfo struct {
	size      int64
	modified  *int64
	dir, file bool
}

// jsTime is how a server on Node spells a time.
const jsTime = "Mon Jan 02 2006 15:04:05 GMT-0700"

func (w *walk) info(p string) (fileInfo, error) {
	r, err := w.Client.call(w.ctx, "get_file_info", w.full(p))
	if err != nil {
		return fileInfo{}, err
	}
	return parseInfo(r.Content[0].Text)
}

// parseInfo reads lines "key: value". Size, kind and nothing twice are asked for.
func parseInfo(text string) (fileInfo, error) {
	values := map[string]string{}
	for line := range strings.SplitSeq(text, "\n") {
		k, v, ok := strings.Cut(line, ": ")
		if _, twice := values[k]; !ok || twice {
			return fileInfo{}, errTool
		}
		values[k] = v
	}
	size, err := strconv.ParseInt(values["size"], 10, 64)
	if err != nil || size < 0 {
		return fileInfo{}, errTool
	}
	i := fileInfo{size: size}
	for k, p := range map[string]*bool{"isDirectory": &i.dir, "isFile": &i.file} {
		if *p = values[k] == "true"; !*p && values[k] != "false" {
			return fileInfo{}, errTool
		}
	}
	m, _, _ := strings.Cut(values["modified"], " (")
	if t, err := time.Parse(jsTime, m); err == nil {
		i.modified = surface.Stamp(t)
	} else if t, err := time.Parse(time.RFC3339, m); err == nil {
		i.modified = surface.Stamp(t)
	}
	return i, nil
}

// errEnd ends a walk; the observation says why.
var errEnd = errors.New("mcp: the observation ends here")

// file reads one file. It is asked about before and after.
func (w *walk) file(p string) error {
	end := false
	err := w.c.File(p, func() (*surface.Item, surface.Reason) {
		before, err := w.info(p)
		if end = w.ended(err); err != nil {
			return nil, surface.ReadFailed
		}
		if !before.file {
			return nil, surface.NotAFile
		}
		it := &surface.Item{Size: before.size, Modified: before.modified}
		if before.size > w.c.ReadLimit() {
			it.Gap = surface.ReadLimit // it would come as one message
			return it, ""
		}
		r, err := w.Client.call(w.ctx, "read_media_file", w.full(p))
		if end = w.ended(err); err != nil {
			return nil, surface.ReadFailed
		}
		content, ok := bytesOf(r)
		if !ok {
			return nil, surface.ReadFailed
		}
		it.Content = io.NopCloser(bytes.NewReader(content))
		it.After = func() surface.Reason {
			after, err := w.info(p)
			switch {
			case err != nil:
				end = w.ended(err)
				return surface.ReadFailed
			case after.size != before.size || !same(after.modified, before.modified):
				return surface.Changed
			}
			return ""
		}
		return it, ""
	})
	if err == nil && end {
		return errEnd
	}
	return err
}

func same(a, b *int64) bool { return a == b || a != nil && b != nil && *a == *b }

// bytesOf is the content of a read_media_file.
func bytesOf(r *result) ([]byte, bool) {
	x := r.Content[0]
	data := x.Data
	if x.Type == "resource" {
		if x.Resource == nil || x.Resource.Blob == nil {
			return nil, false
		}
		data = *x.Resource.Blob
	} else if x.Type != "image" && x.Type != "audio" && x.Type != "blob" {
		return nil, false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(data)
	return b, err == nil
}

// A treeNode is one entry of a directory_tree.
type treeNode struct {
	Name     string      `json:"name"`
	Type     string      `json:"type"`
	Children *[]treeNode `json:"children"`
}

func (w *walk) tree(base string) {
	r, err := w.Client.call(w.ctx, "directory_tree", w.full(base))
	if w.ended(err) {
		return
	}
	var list []treeNode
	if err != nil || json.Unmarshal([]byte(r.Content[0].Text), &list) != nil {
		w.c.Gap(surface.ListingFailed, base)
		return
	}
	_ = w.nodes(base, list, 0)
}

const maxDepth = 200

func (w *walk) nodes(dir string, list []treeNode, depth int) error {
	if depth > maxDepth {
		w.c.Gap(surface.DepthLimit, "")
		return nil
	}
	names := map[string]bool{}
	for _, n := range list {
		if err := w.c.Listed(); err != nil {
			return err
		}
		p := n.Name
		if dir != "" {
			p = dir + "/" + n.Name
		}
		bad := strings.Contains(n.Name, "/") || strings.ContainsRune(n.Name, utf8.RuneError) || names[n.Name] || (surface.Location{Path: p}).Check() != nil
		names[n.Name] = true
		var err error
		switch {
		case bad, n.Type != "file" && n.Type != "directory", (n.Type == "directory") != (n.Children != nil):
			w.c.Gap(surface.UnsafeName, "")
		case n.Type == "directory":
			if w.at.MayLieBelow(p) {
				err = w.nodes(p, *n.Children, depth+1)
			}
		case w.at.Matches(p):
			err = w.file(p)
		case w.at.MayLieBelow(p):
			err = w.link(p)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// link asks whether what looks like a file is a link to a folder.
func (w *walk) link(p string) error {
	info, err := w.info(p)
	if w.ended(err) {
		return errEnd
	}
	if err != nil || info.dir {
		w.c.Gap(surface.LinkNotFollowed, p)
	}
	return nil
}
