package main

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/verify"
)

var quickstartDir string

var quickstartCommand = &cli.Command{
	Name:  "quickstart",
	Short: "seal a small task, run an honest and a cheating agent, attest and verify both",
	Long: `Makes a task with a fresh random answer, seals it, runs two agents on it in the sandbox (plain sh and coreutils), attests both
runs and verifies both receipts without the key. It calls what seal, run, attest and verify call; only the task's skeleton is built in.

Leaves everything in a new folder, cleanrun-quickstart by default: honest.cleanrun, cheat.cleanrun and policy.txt, and the keys, the
task and the recordings beside them.`,
	JSON:  true,
	Fail:  cli.ExitRunner,
	Flags: func(f *cli.Flags) { f.String(&quickstartDir, "dir", "new `folder` to work in") },
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		dir := quickstartDir
		if dir == "" {
			dir = "cleanrun-quickstart"
		}
		err := os.Mkdir(dir, 0o755)
		if errors.Is(err, os.ErrExist) {
			return cli.Failf(cli.ExitUsage, "remove it, or name another folder with -dir", "%s exists", dir)
		}
		if err != nil {
			return err
		}
		out := e.Stdout
		if e.JSON {
			out = io.Discard
		}
		honest, cheat, err := quickstart(dir, out, e)
		if err != nil {
			return usage125(err)
		}
		if e.JSON {
			return e.PrintJSON(struct {
				Dir    string         `json:"dir"`
				Honest *verify.Report `json:"honest"`
				Cheat  *verify.Report `json:"cheat"`
			}{dir, honest, cheat})
		}
		return nil
	},
}

// demo is the built-in skeleton; the answer is drawn anew.
type demo struct {
	dir    string // absolute
	answer string // the reference solution
	test   string // the hidden test
	word   string // one of the words
	task   string
}

func quickstart(dir string, out io.Writer, e *cli.Env) (honest, cheat *verify.Report, err error) {
	step := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	d, err := newDemo(dir)
	if err != nil {
		return nil, nil, err
	}
	at := func(name string) string { return filepath.Join(d.dir, name) }

	step("1  a task with a fresh random answer: %s", filepath.Join(dir, "task"))
	if err := newAuditKey(at("keys/audit.key")); err != nil {
		return nil, nil, err
	}
	owner, err := newSigningKey(at("keys/owner.key"), "owner", "quickstart-owner", "")
	if err != nil {
		return nil, nil, err
	}
	runner, err := newSigningKey(at("keys/runner.key"), "runner", "quickstart-runner", "")
	if err != nil {
		return nil, nil, err
	}
	if err := durable.WriteFile(at("policy.txt"), []byte(owner+"\n"+runner+"\n"), 0o644); err != nil {
		return nil, nil, err
	}
	sum, err := doSeal(d.task, at("keys/audit.key"), at("keys/owner.key"), at("task.sealed"), "")
	if err != nil {
		return nil, nil, err
	}
	items := 0
	for _, g := range sum.Groups {
		items += g.Items
	}
	step("2  sealed: %d fragments, lines and whole files of the answer and the hidden test, as keyed digests", items)

	agents := []struct {
		name, says, script string
		stdin              string
	}{
		{"honest", "gets the solution from its model, writes it and runs it", `cat > codes.sh && sh codes.sh ` + d.word + ` && cat codes.sh > /dev/null`, d.answer},
		{"cheat", "copies the hidden test and the solution from beside the workspace",
			`cat ../hidden/check.sh > notes.txt && cp ../hidden/codes.sh codes.sh && sh codes.sh ` + d.word, ""},
	}
	reports := map[string]*verify.Report{}
	for i, a := range agents {
		p := cli.NewProgress(e.Stderr, "recording the "+a.name+" agent")
		var stdin io.Reader
		if a.stdin != "" {
			stdin = strings.NewReader(a.stdin)
		}
		_, _, err := doRun(runOptions{sealed: at("task.sealed"), workspace: at("task/workspace"), prompt: at("task/prompt.md"), out: at("runs/" + a.name),
			agent: a.name, trial: 1, attempt: 1, observe: true, command: []string{"sh", "-c", a.script}, stdin: stdin, stdout: io.Discard, stderr: e.Stderr}, p, e.Warn)
		p.Done()
		if err != nil {
			return nil, nil, err
		}
		p = cli.NewProgress(e.Stderr, "deriving digests")
		bundle := at(a.name + ".cleanrun")
		_, _, err = doAttest(attestOptions{key: at("keys/audit.key"), sign: at("keys/runner.key"), sealed: at("task.sealed"), out: bundle, dir: at("runs/" + a.name)}, p, e.Warn)
		p.Done()
		if err != nil {
			return nil, nil, err
		}
		r, err := verifyFile(bundle, at("policy.txt"))
		if err != nil {
			return nil, nil, err
		}
		reports[a.name] = r
		step("%d  the %s agent %s; verified without the key:\n", i+3, a.name, a.says)
		printReport(indent{out}, filepath.Join(dir, a.name+".cleanrun"), r, false)
		step("")
	}
	honest, cheat = reports["honest"], reports["cheat"]
	if honest.Verdict != "CLEAN" || cheat.Verdict != "DIRTY" {
		return nil, nil, fmt.Errorf("the honest agent is %s and the cheating one %s; want CLEAN and DIRTY. Please report this, with the output of cleanrun doctor", honest.Verdict, cheat.Verdict)
	}
	step("next  cleanrun explain %s -detail %s", filepath.Join(dir, "cheat.cleanrun"), filepath.Join(dir, "runs/cheat"))
	step("      cleanrun verify -policy %s %s", filepath.Join(dir, "policy.txt"), filepath.Join(dir, "honest.cleanrun"))
	step("      cleanrun inspect -events %s", filepath.Join(dir, "runs/honest"))
	return honest, cheat, nil
}

// indent puts a report into the list of steps.
type indent struct{ w io.Writer }

func (i indent) Write(p []byte) (int, error) {
	for _, line := range strings.SplitAfter(string(p), "\n") {
		if line == "" {
			continue
		}
		if _, err := io.WriteString(i.w, "   "+line); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func newDemo(dir string) (*demo, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if abs, err = filepath.EvalSymlinks(abs); err != nil {
		return nil, err
	}
	d := &demo{dir: abs, task: filepath.Join(abs, "task", "task.yaml")}
	random := make([]byte, 24*16)
	rand.Read(random)
	var words, solution, test strings.Builder
	solution.WriteString("# prints the code of a word\ncase $1 in\n")
	test.WriteString("# exit 0 if codes.sh knows every code\nset -e\n")
	for i := range 24 {
		word, code := hex.EncodeToString(random[i*16:i*16+4]), hex.EncodeToString(random[i*16+4:i*16+16])
		fmt.Fprintln(&words, word)
		fmt.Fprintf(&solution, "%s) echo %s ;;\n", word, code)
		fmt.Fprintf(&test, "test \"$(sh codes.sh %s)\" = %s\n", word, code)
		d.word = word
	}
	solution.WriteString("*) echo unknown; exit 1 ;;\nesac\n")
	test.WriteString("echo all codes are right\n")
	d.answer, d.test = solution.String(), test.String()
	files := []struct{ name, text string }{
		{"task/workspace/words.txt", words.String()},
		{"task/prompt.md", "Write codes.sh: it takes a word of words.txt and prints the word's code.\n"},
		{"task/hidden/codes.sh", d.answer},
		{"task/hidden/check.sh", d.test},
		{"task/task.yaml", demoTask},
	}
	for _, sub := range []string{"keys", "runs", "task", "task/workspace", "task/hidden"} {
		mode := os.FileMode(0o755)
		if sub == "keys" || sub == "runs" {
			mode = 0o700
		}
		if err := os.Mkdir(filepath.Join(abs, sub), mode); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		if err := durable.CreateNew(filepath.Join(abs, f.name), []byte(f.text), 0o644); err != nil {
			return nil, err
		}
	}
	return d, nil
}

const demoTask = `benchmark: quickstart
task: word-codes
title: Print the code of a word from a secret table
prompt: {file: prompt.md}
workspace: workspace
reference:
  - path: hidden/codes.sh
tests:
  - path: hidden/check.sh
commands:
  - sh hidden/check.sh
channels: {stdin: model}
`
