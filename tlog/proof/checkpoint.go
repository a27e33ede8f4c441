package proof

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// A Checkpoint says which tree a log has (c2sp.org/tlog-checkpoint).
type Checkpoint struct {
	Origin string   // name of the log
	Size   uint64   // leaves
	Root   [32]byte // RFC 9162, section 2.1.1; of no leaf SHA-256 of nothing
}

// Text is the text that is signed, without extension lines.
func (c Checkpoint) Text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

// An Unverified is a checkpoint as found: nobody has checked a signature.
type Unverified struct {
	checkpoint Checkpoint
	note, text string
	lines      []line
}

// ParseCheckpoint reads a signed note of at most MaxNote bytes and MaxSignatures
// signatures whose text is a checkpoint. Extension lines after the three of a
// checkpoint are taken and mean nothing. The error is an *Error.
func ParseCheckpoint(note []byte) (*Unverified, error) {
	text, lines, err := parseNote(note)
	if err != nil {
		return nil, err
	}
	c, err := parseText(text)
	if err != nil {
		return nil, err
	}
	return &Unverified{checkpoint: c, note: string(note), text: text, lines: lines}, nil
}

func parseText(text string) (Checkpoint, *Error) {
	bad := func(got, want string) (Checkpoint, *Error) {
		return Checkpoint{}, refuse(StageCheckpoint, got, want, "the note may be of another kind: a checkpoint has lines for origin, size and root (c2sp.org/tlog-checkpoint)")
	}
	if !strings.HasSuffix(text, "\n") {
		return bad("a text that does not end in a newline", "lines")
	}
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	if len(lines) < 3 {
		return bad(fmt.Sprintf("%d lines", len(lines)), "origin, size and root")
	}
	for i, l := range lines {
		if l == "" {
			return bad(fmt.Sprintf("an empty line %d", i+1), "no empty line")
		}
	}
	size, ok := parseDecimal(lines[1])
	if !ok {
		return bad("size "+clip(lines[1]), "a decimal number without leading zeros, below 2^64")
	}
	root, ok := parseHash(lines[2])
	if !ok {
		return bad("root "+clip(lines[2]), "strict base64 of 32 bytes")
	}
	if size == 0 && root != sha256.Sum256(nil) {
		return bad(fmt.Sprintf("root %x of an empty tree", root), fmt.Sprintf("%x", sha256.Sum256(nil)))
	}
	return Checkpoint{Origin: lines[0], Size: size, Root: root}, nil
}

// parseDecimal takes the one decimal spelling of a number.
func parseDecimal(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 64)
	return n, err == nil && strconv.FormatUint(n, 10) == s
}

// parseHash takes the one base64 spelling of a hash.
func parseHash(s string) (h [32]byte, ok bool) {
	if len(s) != base64.StdEncoding.EncodedLen(len(h)) {
		return h, false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != len(h) {
		return h, false
	}
	return [32]byte(b), true
}

// Checkpoint is what the note says: not authenticated.
func (u *Unverified) Checkpoint() Checkpoint { return u.checkpoint }

// Note is the signed note, as it was parsed.
func (u *Unverified) Note() []byte { return []byte(u.note) }

// A Verified is a checkpoint that a log signed.
type Verified struct {
	u   Unverified
	log receipt.PublicKey
}

// Verify checks that the note is a checkpoint of this log: the origin is the
// name of the key, and one line is the key's Ed25519 signature (type 0x01). Lines
// of other keys are left alone, as witnesses' are checked by Policy.Check. The
// error is an *Error.
func (u *Unverified) Verify(log receipt.PublicKey) (*Verified, error) {
	if err := checkLogKey(log); err != nil {
		return nil, err
	}
	if u.checkpoint.Origin != log.Name() {
		return nil, refuse(StageOrigin, "a checkpoint of "+clip(u.checkpoint.Origin), log.Name(), "a log's key is good for that log alone")
	}
	l, ok := find(u.lines, log.Name(), log.ID())
	if !ok {
		return nil, unsigned(u.lines, log.Name(), log.ID())
	}
	if err := log.Verify([]byte(u.text), l.sig); err != nil {
		return nil, badSignature(l, err)
	}
	return &Verified{u: *u, log: log}, nil
}

func checkLogKey(log receipt.PublicKey) *Error {
	if log.Alg() != receipt.Ed25519 {
		return refuse(StageKey, fmt.Sprintf("a log key of %v", log.Alg()), "Ed25519 (type 0x01)", "witnesses take no other signature of a log")
	}
	return nil
}

func find(lines []line, name string, id uint32) (line, bool) {
	for _, l := range lines {
		if l.name == name && l.id == id {
			return l, true
		}
	}
	return line{}, false
}

func unsigned(lines []line, name string, id uint32) *Error {
	names := make([]string, 0, len(lines))
	for _, l := range lines {
		names = append(names, fmt.Sprintf("%s %08x", l.name, l.id))
	}
	return refuse(StageUnsigned, "signatures by "+clip(strings.Join(names, ", ")), fmt.Sprintf("one by %s, key id %08x", name, id), "another key signed it, or the policy pins another one")
}

// badSignature is an error for the whole note, as c2sp.org/signed-note asks: who
// put in a false signature may have done other things.
func badSignature(l line, err error) *Error {
	return refuse(StageSignature, fmt.Sprintf("a signature of %s, key id %08x, that does not verify (%v)", clip(l.name), l.id, err), "a signature of this text", "the checkpoint was changed after signing, or the line was made up")
}

// Checkpoint is what the log signed.
func (v *Verified) Checkpoint() Checkpoint { return v.u.checkpoint }

// Note is the signed note, with all its lines, also those of unknown keys.
func (v *Verified) Note() []byte { return v.u.Note() }

// Log is the key that signed it.
func (v *Verified) Log() receipt.PublicKey { return v.log }

// SignCheckpoint signs a checkpoint with the log's Ed25519 key, whose name is the
// origin, and returns the note.
func SignCheckpoint(s receipt.Signer, c Checkpoint) ([]byte, error) {
	key := s.Public()
	if err := checkLogKey(key); err != nil {
		return nil, err
	}
	text := c.Text()
	sig, err := s.Sign([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("signing a checkpoint with %s: %w", key.Name(), err)
	}
	note := []byte(text + "\n" + line{key.Name(), key.ID(), sig}.String())
	// Nothing leaves that our own verifier refuses: an origin of two lines, a size
	// without its root, a faulted signature that gives the key away.
	u, err := ParseCheckpoint(note)
	if err != nil {
		return nil, err
	}
	if u.checkpoint != c {
		return nil, refuse(StageCheckpoint, clip(c.Origin), "an origin of one line", "")
	}
	v, err := u.Verify(key)
	if err != nil {
		return nil, err
	}
	return v.Note(), nil
}
