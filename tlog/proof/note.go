package proof

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a signed note. c2sp.org/signed-note asks for at least 16 signatures;
// one of ML-DSA-44 has 3,300 bytes as text.
const (
	MaxNote       = 64 << 10 // bytes
	MaxSignatures = 64
)

// A line is one signature line of a note: nobody has checked it.
type line struct {
	name string
	id   uint32
	sig  []byte // without the key id
}

func (l line) String() string {
	b := binary.BigEndian.AppendUint32(nil, l.id)
	return "\u2014 " + l.name + " " + base64.StdEncoding.EncodeToString(append(b, l.sig...)) + "\n"
}

// parseNote takes a signed note apart (c2sp.org/signed-note). There is one note
// for each text and list of lines, and at most one line of each name and key id:
// of two, one reader would take the first and another the last.
func parseNote(data []byte) (text string, lines []line, err *Error) {
	if len(data) > MaxNote {
		return "", nil, refuse(StageSize, fmt.Sprintf("a note of %d bytes", len(data)), fmt.Sprintf("at most %d", MaxNote), "")
	}
	s := string(data)
	if !utf8.ValidString(s) {
		return "", nil, refuse(StageNote, "bytes that are not UTF-8", "a signed note", "")
	}
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\n' {
			return "", nil, refuse(StageNote, fmt.Sprintf("control character 0x%02x at offset %d", s[i], i), "no control character but newline", "")
		}
	}
	// The text may hold empty lines: the last one ends it.
	split := strings.LastIndex(s, "\n\n")
	if split < 0 {
		return "", nil, refuse(StageNote, "no empty line", "a text, an empty line and signature lines", "a checkpoint is a signed note: c2sp.org/signed-note")
	}
	lines, err = parseLines(s[split+2:])
	return s[:split+1], lines, err
}

func parseLines(s string) ([]line, *Error) {
	type key struct {
		name string
		id   uint32
	}
	var lines []line
	seen := map[key]bool{}
	for text := range strings.Lines(s) {
		if len(lines) == MaxSignatures {
			return nil, refuse(StageSize, fmt.Sprintf("more than %d signatures", MaxSignatures), "fewer", "")
		}
		l, err := parseLine(text)
		if err != nil {
			return nil, err
		}
		k := key{l.name, l.id}
		if seen[k] {
			return nil, refuse(StageNote, fmt.Sprintf("two signatures of %s, key id %08x", clip(l.name), l.id), "one signature of each key", "")
		}
		seen[k] = true
		lines = append(lines, l)
	}
	if len(lines) == 0 {
		return nil, refuse(StageNote, "no signature line", "at least one", "")
	}
	return lines, nil
}

func parseLine(text string) (line, *Error) {
	const want = "em dash, space, key name, space, base64 and newline"
	bad := func() (line, *Error) {
		return line{}, refuse(StageNote, "signature line "+clip(text), want, "")
	}
	rest, ok := strings.CutPrefix(text, "\u2014 ")
	name, sig64, ok2 := strings.Cut(strings.TrimSuffix(rest, "\n"), " ")
	if !ok || !ok2 || name == "" || strings.ContainsRune(name, '+') || strings.ContainsFunc(name, unicode.IsSpace) {
		return bad()
	}
	sig, err := base64.StdEncoding.Strict().DecodeString(sig64)
	if err != nil || len(sig) < 5 {
		return bad()
	}
	l := line{name: name, id: binary.BigEndian.Uint32(sig), sig: sig[4:]}
	if l.String() != text {
		return bad()
	}
	return l, nil
}

// AddSignatures returns the note with more signature lines after those that it
// has. It verifies none of them, so add only what verified: a line that says it is
// of a known key and does not verify spoils the whole note. A line of a key that
// has one already is refused.
func AddSignatures(note, lines []byte) ([]byte, error) {
	if _, err := ParseCheckpoint(note); err != nil {
		return nil, err
	}
	if len(lines) > MaxNote {
		return nil, refuse(StageSize, fmt.Sprintf("%d bytes of signature lines", len(lines)), fmt.Sprintf("at most %d", MaxNote), "")
	}
	// By themselves first: an empty line among them would move the end of the text.
	if _, err := parseLines(string(lines)); err != nil {
		return nil, err
	}
	out := append(note[:len(note):len(note)], lines...)
	if _, err := ParseCheckpoint(out); err != nil {
		return nil, err
	}
	return out, nil
}
