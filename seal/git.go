package seal

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/manifest"
)

// A git pack holds objects compressed and as differences from each other
// (gitformat-pack), so an answer in a repository's history shows in no file of
// it. What a run reads of a pack of the workspace is baseline and exempt:
// sealing is when it must be found.
//
// Packs are read by git, in an empty repository of our own. The repository in
// the workspace is never run: its configuration, hooks, alternates and indexes
// do not count, and objects that no branch reaches are seen like all others.
const (
	maxUnpacked = 64 << 20 // larger objects go through a file
	maxHistory  = 16 << 30 // bytes of all objects of all packs
	maxPacks    = 64       // in one file or view
	packDepth   = 3        // packs in objects of packs
)

// packMagic begins a pack, before the low byte of its version, 2 or 3.
var packMagic = []byte("PACK\x00\x00\x00")

// bundleMagic begins a bundle (gitformat-bundle): a header of text and a pack.
var bundleMagic = []byte("# v")

// A packFinder collects where packs may begin in what is written to it.
type packFinder struct {
	at   []int64
	tail []byte // the last bytes, which may begin the magic
	end  int64
}

func (f *packFinder) Write(p []byte) (int, error) {
	f.tail = append(f.tail, p...)
	f.end += int64(len(p))
	for _, i := range packsIn(f.tail) {
		f.at = append(f.at, f.end-int64(len(f.tail))+i)
	}
	f.tail = append(f.tail[:0], f.tail[max(0, len(f.tail)-packHead+1):]...)
	return len(p), nil
}

// packHead is the length of the magic with the version.
const packHead = 8

func packsIn(b []byte) (at []int64) {
	for i := 0; ; i++ {
		k := bytes.Index(b[i:], packMagic)
		if i += k; k < 0 || i+packHead > len(b) {
			return at
		}
		if v := b[i+packHead-1]; v == 2 || v == 3 {
			at = append(at, int64(i))
		}
	}
}

// packs searches the packs that begin at the given places of r. One that git
// cannot read is refused if r is a pack or a bundle; elsewhere the magic may be
// by chance, and there is a warning.
func (s *search) packs(name string, r io.ReaderAt, size int64, at []int64) error {
	if len(at) == 0 {
		return nil
	}
	refused := func(format string, args ...any) error {
		return &manifest.RefusedError{Path: name, Reason: fmt.Sprintf(format, args...)}
	}
	switch {
	case len(at) > maxPacks:
		return refused("got %d git packs in one file, want at most %d; unpack them, or leave them out", len(at), maxPacks)
	case s.depth == packDepth:
		return refused("got git packs nested over %d deep; leave them out", packDepth)
	}
	if s.git == nil {
		var err error
		if s.git, err = newGit(); err != nil {
			return refused("it holds a git pack, which is searched with git: %v; install git, or take the history out of the workspace", err)
		}
	}
	var head [16]byte
	n, _ := r.ReadAt(head[:], 0) // a failed read is reported below
	pure := at[0] == 0 || bytes.HasPrefix(head[:n], bundleMagic) && bytes.HasSuffix(head[:n], []byte(" git bundle\n"))
	s.depth++
	defer func() { s.depth-- }()
	for _, off := range at {
		repository, err := s.git.unpack(func() io.Reader { return io.NewSectionReader(r, off, size-off) })
		switch {
		case err == nil:
			err = s.git.each(repository, func(o gitObject, content io.ReaderAt) error {
				_, err := s.given(fmt.Sprintf("%s: %s %s", repositoryOf(name), o.kind, o.id), content, o.size, []byte("git "+o.kind+" "+o.id))
				return err
			})
			if e := new(gitError); errors.As(err, &e) {
				return refused("its git history cannot be searched to the end: %v; take it out of the workspace", err)
			}
			if err != nil {
				return err
			}
		case pure:
			return refused("git cannot read it: %v; repair it, or leave it out", err)
		default:
			s.warn("%s: got what looks like a git pack at byte %d, which git cannot read: not searched", name, off)
		}
	}
	return nil
}

// repositoryOf shortens the path of a pack to that of its repository.
func repositoryOf(name string) string {
	if dir := path.Dir(name); path.Ext(name) == ".pack" && (dir == "objects/pack" || strings.HasSuffix(dir, "/objects/pack")) {
		return path.Clean(strings.TrimSuffix(dir, "objects/pack"))
	}
	return name
}

// alternates refuses a list of object folders (gitrepository-layout,
// objects/info/alternates) that leads out of the workspace: what a run would
// read there is not searched.
func alternates(name string, r io.ReaderAt, size int64) error {
	if name != "objects/info/alternates" && !strings.HasSuffix(name, "/objects/info/alternates") {
		return nil
	}
	objects := path.Dir(path.Dir(name))
	lines := bufio.NewScanner(io.NewSectionReader(r, 0, size))
	for lines.Scan() {
		line := lines.Text()
		if line == "" || line[0] == '#' {
			continue
		}
		if to := path.Join(objects, line); line[0] == '"' || path.IsAbs(line) || filepath.IsAbs(line) || to == ".." || strings.HasPrefix(to, "../") {
			return &manifest.RefusedError{Path: name, Reason: fmt.Sprintf("git objects outside the workspace, in %.200q, cannot be searched; copy them in (git repack -a -d) and remove the file", line)}
		}
	}
	return lines.Err()
}

// A git runs the installed git on packs, in a folder of its own.
type git struct {
	command string
	dir     string
	count   int
	seen    map[string]bool // ids of objects
	bytes   int64
}

// A gitError is what git says of a pack.
type gitError struct{ got string }

func (e *gitError) Error() string { return e.got }

type gitObject struct {
	id, kind string
	size     int64
}

func newGit() (*git, error) {
	command, err := exec.LookPath("git")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "cleanrun-seal-")
	if err != nil {
		return nil, err
	}
	return &git{command: command, dir: dir, seen: map[string]bool{}}, nil
}

func (g *git) close() {
	if g != nil {
		os.RemoveAll(g.dir) // a copy of what is in the workspace; nothing depends on it
	}
}

// run prepares git on one of our own repositories. Of the caller's environment
// it sees the search path alone: no configuration, template, replacement,
// promised object or transport, and no question to a terminal.
func (g *git) run(ctx context.Context, repository string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	cmd := exec.CommandContext(ctx, g.command, append([]string{"-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.DevNull, "-c", "gc.auto=0"}, args...)...)
	cmd.Dir = g.dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + g.dir, "TMPDIR=" + g.dir, "LC_ALL=C", "GIT_DIR=" + repository,
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=" + os.DevNull, "GIT_CONFIG_GLOBAL=" + os.DevNull,
		"GIT_TEMPLATE_DIR=", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "GIT_OPTIONAL_LOCKS=0",
		"GIT_ALLOW_PROTOCOL=none", "GIT_TERMINAL_PROMPT=0",
	}
	stderr := new(bytes.Buffer)
	cmd.Stderr = &bounded{stderr, 4 << 10}
	return cmd, stderr
}

// bounded keeps the first bytes.
type bounded struct {
	b    *bytes.Buffer
	left int
}

func (w *bounded) Write(p []byte) (int, error) {
	n := min(len(p), w.left)
	w.left -= n
	w.b.Write(p[:n])
	return len(p), nil
}

func gitFailed(err error, stderr *bytes.Buffer) error {
	line, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
	return &gitError{fmt.Sprintf("%v: %.200q", err, line)}
}

// unpack makes a repository of one pack and returns its folder. git makes the
// index anew and checks every object against its id. A pack does not say which
// hash its ids are of, so both are tried; the error is that of SHA-1.
func (g *git) unpack(pack func() io.Reader) (repository string, first error) {
	for _, format := range [][]string{nil, {"--object-format=sha256"}} {
		g.count++
		repository = filepath.Join(g.dir, strconv.Itoa(g.count))
		cmd, stderr := g.run(context.Background(), repository, append([]string{"init", "--quiet", "--bare"}, format...)...)
		err := cmd.Run()
		if err == nil {
			cmd, stderr = g.run(context.Background(), repository, "index-pack", "--stdin")
			cmd.Stdin = pack()
			err = cmd.Run()
		}
		if err == nil {
			return repository, nil
		}
		if first == nil {
			first = gitFailed(err, stderr)
		}
		os.RemoveAll(repository)
	}
	return "", first
}

// each visits the objects of a repository that none before had, and removes it.
// The error is a *gitError or what visit returned.
func (g *git) each(repository string, visit func(o gitObject, content io.ReaderAt) error) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer os.RemoveAll(repository)
	cmd, stderr := g.run(ctx, repository, "cat-file", "--batch-all-objects", "--batch", "--unordered", "--buffer")
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return &gitError{err.Error()}
	}
	if err = g.read(bufio.NewReaderSize(pipe, 1<<16), visit); err != nil {
		cancel()
	}
	if failed := cmd.Wait(); err == nil && failed != nil {
		err = gitFailed(failed, stderr)
	}
	cancel()
	return err
}

// read takes what git cat-file --batch writes: a line of id, type and size, the
// content and a line feed, for each object.
func (g *git) read(r *bufio.Reader, visit func(o gitObject, content io.ReaderAt) error) error {
	var buf []byte
	for {
		line, err := r.ReadString('\n')
		if err == io.EOF && line == "" {
			return nil
		}
		o, ok := parseObject(line)
		if err != nil || !ok {
			return &gitError{fmt.Sprintf("got %.100q, want an object's id, type and size", line)}
		}
		if g.bytes += o.size; g.bytes > maxHistory {
			return &gitError{fmt.Sprintf("got more than %d GiB of objects", maxHistory>>30)}
		}
		content := io.LimitReader(r, o.size)
		switch {
		case g.seen[o.id]:
			_, err = io.Copy(io.Discard, content)
		case o.size > maxUnpacked:
			err = g.spool(content, o, visit)
		default:
			buf = slices.Grow(buf[:0], int(o.size))[:o.size]
			if _, err = io.ReadFull(content, buf); err == nil {
				err = visit(o, bytes.NewReader(buf))
			}
		}
		if err == nil {
			g.seen[o.id] = true
			_, err = r.Discard(1)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			err = &gitError{fmt.Sprintf("object %s is cut short", o.id)}
		}
		if err != nil {
			return err
		}
	}
}

func parseObject(line string) (o gitObject, ok bool) {
	f := strings.Fields(line)
	if len(f) != 3 || !strings.HasSuffix(line, "\n") {
		return o, false
	}
	size, err := strconv.ParseInt(f[2], 10, 64)
	return gitObject{f[0], f[1], size}, err == nil && size >= 0 && size <= maxHistory
}

// spool visits an object that is too large for memory.
func (g *git) spool(content io.Reader, o gitObject, visit func(o gitObject, content io.ReaderAt) error) error {
	f, err := os.CreateTemp(g.dir, "object-")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close() // it is read back before
	n, err := io.Copy(f, content)
	if err == nil && n < o.size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return err
	}
	return visit(o, f)
}
