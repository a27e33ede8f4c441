package trillian

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

const (
	configName = "trillian" // which tree it is; marks the folder as a log on Trillian
	signedName = "signed"   // the last checkpoint that was signed

	configHeader = "cleanrun trillian log v1"
	maxConfig    = 4 << 10
	maxSigned    = proof.MaxNote + 64*45 + 1
)

// config names a tree.
type config struct {
	server string // host:port, or tls:host:port
	tree   int64
}

// format is the only spelling of a config.
func (c config) format() []byte {
	return fmt.Appendf(nil, "%s\nserver %s\ntree %d\n", configHeader, c.server, c.tree)
}

func parseConfig(data []byte) (config, error) {
	var c config
	lines := strings.Split(string(data), "\n")
	if len(lines) != 4 || lines[0] != configHeader {
		return c, fmt.Errorf("got %.80q, want three lines, the first %q", data, configHeader)
	}
	server, ok1 := strings.CutPrefix(lines[1], "server ")
	digits, ok2 := strings.CutPrefix(lines[2], "tree ")
	tree, err := strconv.ParseInt(digits, 10, 64)
	c = config{server, tree}
	if !ok1 || !ok2 || err != nil || !bytes.Equal(c.format(), data) {
		return config{}, fmt.Errorf("got %.200q, want lines \"server HOST:PORT\" and \"tree ID\"", data)
	}
	return c, checkServer(server)
}

func checkServer(server string) error {
	if host := strings.TrimPrefix(server, "tls:"); host == "" || strings.ContainsAny(server, " \t\r\n") {
		return fmt.Errorf("got server %.80q, want HOST:PORT, or tls:HOST:PORT", server)
	}
	return nil
}

// Is tells whether a folder is that of a log on Trillian.
func Is(dir string) bool {
	_, err := regular.Read(filepath.Join(dir, configName), maxConfig)
	return err == nil
}

// signed is the tree as we signed it: enough to derive the root of any later one
// from its further leaves.
type signed struct {
	note  *proof.Verified
	tree  *compact.Range
	bytes []byte // the note
}

var ranges = compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}

// format writes the hashes of the complete subtrees, the largest first, a line
// each, an empty line and the note.
func (s *signed) format() []byte {
	var b []byte
	for _, h := range s.tree.Hashes() {
		b = append(base64.StdEncoding.AppendEncode(b, h), '\n')
	}
	return append(append(b, '\n'), s.bytes...)
}

func parseSigned(data []byte, key receipt.PublicKey) (*signed, error) {
	var hashes [][]byte
	rest := data
	for {
		line, after, ok := bytes.Cut(rest, []byte("\n"))
		rest = after
		if !ok || len(hashes) > 64 {
			return nil, errors.New("got no empty line after at most 64 hashes")
		}
		if len(line) == 0 {
			break
		}
		h, err := base64.StdEncoding.Strict().DecodeString(string(line))
		if err != nil || len(h) != 32 {
			return nil, fmt.Errorf("got hash %.60q, want base64 of 32 bytes", line)
		}
		hashes = append(hashes, h)
	}
	s := &signed{bytes: rest}
	u, err := proof.ParseCheckpoint(rest)
	if err != nil {
		return nil, err
	}
	if s.note, err = u.Verify(key); err != nil {
		return nil, err
	}
	cp := s.note.Checkpoint()
	if s.tree, err = ranges.NewRange(0, cp.Size, hashes); err != nil {
		return nil, fmt.Errorf("got %d hashes of a tree of size %d: %w", len(hashes), cp.Size, err)
	}
	if root, err := rootOf(s.tree); err != nil || root != cp.Root {
		return nil, fmt.Errorf("got hashes of root %x, want %x of the checkpoint", root, cp.Root)
	}
	if !bytes.Equal(s.format(), data) {
		return nil, errors.New("got another spelling, want line ends of one byte")
	}
	return s, nil
}

func rootOf(r *compact.Range) ([32]byte, error) {
	if r.End() == 0 {
		return [32]byte(rfc6962.DefaultHasher.EmptyRoot()), nil
	}
	root, err := r.GetRootHash(nil)
	if err != nil {
		return [32]byte{}, err
	}
	return [32]byte(root), nil
}

// sign signs a tree that follows from one that was signed before, and keeps it
// before anybody sees it.
func (f *folder) sign(tree *compact.Range) (*signed, error) {
	root, err := rootOf(tree)
	if err != nil {
		return nil, err
	}
	note, err := proof.SignCheckpoint(f.key, proof.Checkpoint{Origin: f.key.Public().Name(), Size: tree.End(), Root: root})
	if err != nil {
		return nil, err
	}
	u, err := proof.ParseCheckpoint(note)
	if err != nil {
		return nil, err
	}
	v, err := u.Verify(f.key.Public())
	if err != nil {
		return nil, err
	}
	for _, c := range f.also {
		line, err := c.Cosign(v, uint64(f.now().Unix()))
		if err != nil {
			return nil, err
		}
		if note, err = proof.AddSignatures(note, line); err != nil {
			return nil, err
		}
	}
	s := &signed{v, tree, note}
	return s, durable.WriteFile(filepath.Join(f.dir, signedName), s.format(), 0o600)
}

// read returns what was signed last.
func (f *folder) read() (*signed, error) {
	name := filepath.Join(f.dir, signedName)
	data, err := regular.Read(name, maxSigned)
	if err != nil {
		return nil, err
	}
	s, err := parseSigned(data, f.key.Public())
	if err != nil {
		return nil, fmt.Errorf("%s: it is not what %s signed last; restore the file, never an older one: %w", name, f.key.Public().Name(), err)
	}
	return s, nil
}

// config says which tree it is: tlog.ErrNoLog.
func (f *folder) config() (config, error) {
	name := filepath.Join(f.dir, configName)
	data, err := regular.Read(name, maxConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return config{}, fmt.Errorf("%s: %w", f.dir, tlog.ErrNoLog)
	}
	if err != nil {
		return config{}, err
	}
	c, err := parseConfig(data)
	if err != nil {
		return config{}, fmt.Errorf("%s: %w", name, err)
	}
	return c, nil
}
