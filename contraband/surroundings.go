package contraband

import (
	"crypto/sha256"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/expect"
	"github.com/cleanrun-dev/cleanrun/scope"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// A Footprint says which paths of the workspace and of writable grants the
// command may change.
type Footprint struct {
	_       struct{} `cbor:",toarray"`
	Allowed []string // patterns of spec/footprint.md, each once; none: nothing may change
	Gate    bool     // a change outside makes the run DIRTY; else it is reported alone
}

// String is f on one line, as task.yaml has it. nil is "none".
func (f *Footprint) String() string {
	if f == nil {
		return "none"
	}
	outside := "report"
	if f.Gate {
		outside = "dirty"
	}
	return fmt.Sprintf("{allow: %q, outside: %s}", f.Allowed, outside)
}

// maxAllowed bounds the patterns of a footprint. Each has at most maxName bytes.
const maxAllowed = 256

// CheckFootprint refuses what a set may not hold. nil is fine: the owner does
// not say. The error is a *SetError.
func CheckFootprint(f *Footprint) error {
	if f == nil {
		return nil
	}
	if len(f.Allowed) > maxAllowed {
		return broken(RuleFootprint, "allowed", len(f.Allowed), fmt.Sprintf("at most %d patterns", maxAllowed))
	}
	for _, p := range f.Allowed {
		if !checkPlace(p) {
			return broken(RuleFootprint, "allowed", fmt.Sprintf("%.80q", p), fmt.Sprintf("printable patterns of at most %d bytes", maxName))
		}
	}
	if _, err := footprint.NewPolicy(f.Allowed); err != nil {
		return broken(RuleFootprint, "allowed", err, "patterns of spec/footprint.md")
	}
	return nil
}

// Expect says what must happen in a run with a named path (spec/expect.md): the
// path is read, the marker in it and perhaps a line are reported, and nothing
// else is searched.
type Expect struct {
	_        struct{}     `cbor:",toarray"`
	Read     string       // a grant of mode scope.ReadOne: the recorder plants a file there
	Template string       // its text; expect.Placeholder stands in it once
	Line     string       // what must be reported beside the marker; "" for nothing
	Reply    expect.Reply // where the final reply is
	File     string       // clean path in the workspace of the reply or transcript; "" for stdout
	Agent    string       // who must have written the reply; of a transcript, else ""
	Channel  string       // where it must be; of a transcript, else ""
}

// String is e on one line, with the text to plant as its digest. nil is "none".
func (e *Expect) String() string {
	if e == nil {
		return "none"
	}
	reply := map[expect.Reply]string{expect.Stdout: "stdout", expect.File: fmt.Sprintf("{file: %q}", e.File),
		expect.Transcript: fmt.Sprintf("{transcript: {file: %q, agent: %q, channel: %q}}", e.File, e.Agent, e.Channel)}[e.Reply]
	line := ""
	if e.Line != "" {
		line = fmt.Sprintf(", line: %q", e.Line)
	}
	return fmt.Sprintf("{read: %q, plant: %d bytes of SHA-256 %x%s, reply: %s}", e.Read, len(e.Template), sha256.Sum256([]byte(e.Template)), line, reply)
}

// MaxTemplate bounds the text of a planted file, in bytes.
const MaxTemplate = 64 << 10

// CheckExpect refuses what a set may not hold; grants are those of its scope.
// nil is fine. The error is a *SetError.
func CheckExpect(e *Expect, grants []Grant) error {
	if e == nil {
		return nil
	}
	if !slices.Contains(grants, Grant{Path: e.Read, Mode: uint8(scope.ReadOne)}) {
		return broken(RuleExpect, "read", fmt.Sprintf("%.80q", e.Read), "a path that scope.grants has with mode read-one")
	}
	if n := strings.Count(e.Template, expect.Placeholder); n != 1 || len(e.Template) > MaxTemplate || !utf8.ValidString(e.Template) || strings.ContainsRune(e.Template, 0) {
		return broken(RuleExpect, "template", fmt.Sprintf("%d bytes with the placeholder %d times", len(e.Template), n),
			fmt.Sprintf("UTF-8 without NUL of at most %d bytes, with %s once", MaxTemplate, expect.Placeholder))
	}
	if e.Line != "" && (!CheckName(e.Line) || expect.Fold(e.Line) == "") {
		return broken(RuleExpect, "line", fmt.Sprintf("%.80q", e.Line), fmt.Sprintf("one printable line of at most %d bytes with a letter or digit", maxName))
	}
	if strings.Contains(e.Line, expect.Placeholder) {
		return broken(RuleExpect, "line", fmt.Sprintf("%.80q", e.Line), "a line without the placeholder: the marker is asked for anyway")
	}
	if e.Reply < expect.Stdout || e.Reply > expect.Transcript {
		return broken(RuleExpect, "reply", uint8(e.Reply), "1 (stdout), 2 (file) or 3 (transcript)")
	}
	if inFile := e.Reply != expect.Stdout; inFile != (e.File != "") ||
		inFile && (e.File == "." || path.IsAbs(e.File) || path.Clean(e.File) != e.File || e.File == ".." || strings.HasPrefix(e.File, "../") || !checkPlace(e.File)) {
		return broken(RuleExpect, "file", fmt.Sprintf("%.80q", e.File), "a clean path inside the workspace, exactly if the reply is not stdout")
	}
	for _, name := range []string{e.Agent, e.Channel} {
		if e.Reply == expect.Transcript && name == "" || e.Reply != expect.Transcript && name != "" || !CheckName(name) {
			return broken(RuleExpect, "agent and channel", fmt.Sprintf("%.80q", name), "names, exactly if the reply is in a transcript")
		}
	}
	return nil
}
