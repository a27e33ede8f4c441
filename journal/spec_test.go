package journal

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/cleanrun-dev/cleanrun/scope"
)

var update = flag.Bool("update", false, "write the example into spec/journal.md")

const specFile = "../spec/journal.md"

// specExample is the example of spec/journal.md: a run of /usr/bin/cat in.
func specExample(t *testing.T) string {
	b := new(bench)
	c := b.config()
	c.Clock = func() uint64 { b.now += 250_000; return b.now }
	c.Secret = Secret([]byte("an example of a secret, 32 bytes"))
	c.Start = Start{
		Run: [16]byte([]byte("example run 0001")), Benchmark: "tiny-bench", Task: "first-task", Trial: 1, Attempt: 1,
		Commitment: [32]byte{1}, Seal: [32]byte{2}, Baseline: [32]byte{3}, Workspace: "/work",
		Roots: []scope.Root{
			{Path: "/", Mode: scope.ReadOne, Class: scope.System}, {Path: "/usr", Class: scope.System},
			{Path: "/work", Mode: scope.WriteTree, Class: scope.Workspace},
		},
		Channels: []Channel{{Name: "stdin", Role: "model"}}, Recorder: "cleanrun 0.1", Backend: "namespaces+seccomp-notify", Blind: []string{"network"},
	}
	w, err := NewWriter(c)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []step{
		{Row{Phase: PhaseAgent, Op: OpFork, Child: 1}, Detail{PID: 2}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpExec, Dir: DirIn, Origin: OriginInput, Object: 1, Size: 44016}, Detail{Path: "/usr/bin/cat", SHA256: make([]byte, 32), Argv: []string{"cat", "in"}, Cwd: "/work"}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpArgv, Dir: DirIn, Origin: OriginDriver, Flags: FlagText, Size: 6}, Detail{Text: []byte("cat\nin")}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead, Dir: DirIn, Origin: OriginInput, Object: 2, Size: 12}, Detail{Path: "/work/in", Asked: "in", SHA256: make([]byte, 32)}},
		{Row{Phase: PhaseAgent, Op: OpStdout, Dir: DirOut, Origin: OriginRun, Object: 3, Size: 12}, Detail{SHA256: make([]byte, 32)}},
		{Row{Phase: PhaseAgent, Proc: 1, Op: OpExit}, Detail{}},
	} {
		if err := w.Append(&s.r, &s.d); err != nil {
			t.Fatal(err)
		}
	}
	head, err := w.Final(Final{Outcome: Completed, Received: 3, Answered: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	out.WriteString("Rows, in diagnostic notation (RFC 8949, section 8), byte strings of 32 bytes shortened:\n\n```\n")
	long := regexp.MustCompile(`h'([0-9a-f]{6})[0-9a-f]{58}'`)
	var details [][]byte
	for raw, err := range Details(bytes.NewReader(b.details.Bytes())) {
		if err != nil {
			t.Fatal(err)
		}
		details = append(details, raw)
	}
	var sample Line
	for line, err := range Rows(bytes.NewReader(b.rows.Bytes())) {
		if err != nil {
			t.Fatal(err)
		}
		text, err := cbor.Diagnose(line.Raw)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "%-6s %s\n", line.Row.Op, long.ReplaceAllString(text, "h'$1..'"))
		if line.Row.Op == OpOpen {
			sample = line
		}
	}
	fmt.Fprintf(&out, "```\n\nThe head, which `checkpoint` holds and a receipt signs:\n\n```\n%s```\n", FormatHead(head))
	diag, err := cbor.Diagnose(details[sample.Row.Seq])
	if err != nil {
		t.Fatal(err)
	}
	salt := c.Secret.Salt(sample.Row.Seq)
	fmt.Fprintf(&out, "\nRow %d as bytes, without its length; its detail; and the salt that opens key 12:\n\n```\nrow    %s\ndetail %s\nsalt   %x\n```\n",
		sample.Row.Seq, wrap(hex.EncodeToString(sample.Raw)), long.ReplaceAllString(diag, "h'$1..'"), salt)
	return out.String()
}

func wrap(s string) string {
	var lines []string
	for ; len(s) > 100; s = s[100:] {
		lines = append(lines, s[:100])
	}
	return strings.Join(append(lines, s), "\n       ")
}

const (
	exampleBegin = "<!-- example: go test ./journal -run TestSpecExample -update -->\n"
	exampleEnd   = "<!-- end of example -->\n"
)

// The example in the specification is what the code writes.
func TestSpecExample(t *testing.T) {
	want := specExample(t)
	text := readFile(t, filepath.Dir(specFile), filepath.Base(specFile))
	before, rest, ok := strings.Cut(string(text), exampleBegin)
	got, after, ok2 := strings.Cut(rest, exampleEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no example between its two marks", specFile)
	}
	if *update {
		if err := os.WriteFile(specFile, []byte(before+exampleBegin+want+exampleEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got != want {
		t.Errorf("the example in %s is not what the code writes; got\n%s\nwant\n%s", specFile, got, want)
	}
}

// The specification's list of rules is the code's.
func TestSpecRules(t *testing.T) {
	_, rest, _ := strings.Cut(string(readFile(t, filepath.Dir(specFile), filepath.Base(specFile))), "\n## Rules\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	var listed []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z]+)` \\|").FindAllStringSubmatch(section, -1) {
		listed = append(listed, m[1])
	}
	want := []Rule{RuleFrame, RuleEncoding, RuleStart, RuleSeq, RuleTime, RulePhase, RuleProc, RuleOp, RuleDir, RuleResult, RuleFlags,
		RuleContent, RuleOrigin, RuleScope, RuleReward, RuleFinal, RuleClosed, RuleHead, RuleProof, RuleOpening}
	if fmt.Sprint(listed) != fmt.Sprint(want) {
		t.Errorf("got rules %v, want %v", listed, want)
	}
}
