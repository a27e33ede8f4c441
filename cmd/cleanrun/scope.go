package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

// scopeFlags are what the scope command is given.
type scopeFlags struct {
	roots, allow, env               []string
	gate                            bool
	workspace, out, record, backend string
}

var scopeArgs = scopeFlags{workspace: "."}

var scopeCommand = &cli.Command{
	Name:   "scope",
	Short:  "run a command and say what it changed that it should not have",
	Dashed: true,
	JSON:   true,
	Fail:   cli.ExitRunner,
	Long: `Runs CMD under the recorder, on a workspace, the current folder, and compares what it changed with what it may change: the paths
that -allow names. What it changed is in the real folder afterwards, as with run -apply, whatever the result.

Two observers must agree: the workspace's final state, seen from outside the sandbox, and the journaled writes. A path out of the footprint that
was written and restored, or made and removed again, is named too. A change that no write explains, a path that cannot be read, and a change of
the real folder by somebody else while CMD ran make the result INCONCLUSIVE, with the paths.

-allow takes globs relative to a watched folder, or absolute ones: * and ? stay in one name, a segment ** is any folders, out/** is the folder
out and all below it, and a bare name is nothing below it. Without -allow nothing may change. A .pyc in __pycache__ does not count if it is, byte for
byte, what its source compiles to by a Python of this machine that the run could not change; anything else does.

A program that saves into a temporary file beside and renames it changes that name too (sed -i: sedXXXXXX; git: .git/index.lock; many editors). Allow it as
well, as with -allow 'sed??????'.

-root watches one more folder, outside the workspace, which CMD cannot change: it is read before and after.

What CMD leaves running is ended before the last look, and listed.

  cleanrun scope -allow 'out/**' -gate -- python3 agent.py

The exit code is CMD's; failures of scope itself are 125. With -gate, if CMD succeeded, it is 4 if something out of the footprint was changed and 3 if
that cannot be told. Without -gate the result is only reported: on stderr, with -json on stdout (CMD's output is on stderr then), with -o in a file.`,
	Flags: func(f *cli.Flags) {
		v := &scopeArgs
		f.String(&v.workspace, "workspace", "workspace `folder`, by default the current one")
		f.Strings(&v.roots, "root", "`folder` outside the workspace to watch too")
		f.Strings(&v.allow, "allow", "`glob` of what may change")
		f.Bool(&v.gate, "gate", "a change out of the footprint makes the exit code 4, one that cannot be told 3")
		f.String(&v.out, "o", "new `file` for the report (JSON)")
		f.String(&v.record, "record", "new `folder` that keeps the recording, as cleanrun run -o")
		f.Strings(&v.env, "env", "pass this variable although its `name` looks like a secret; the recording keeps its value")
		f.String(&v.backend, "backend", "`name` of the backend, as of cleanrun run")
	},
	Run: func(e *cli.Env, args []string) error {
		if len(args) > 0 {
			return cli.Failf(cli.ExitRunner, "cleanrun scope [flags] -- CMD ARG...", "unexpected argument %q: the command goes after --", args[0])
		}
		if e.Program == nil {
			return cli.Failf(cli.ExitRunner, "cleanrun scope [flags] -- CMD ARG...", "no command: nothing after --")
		}
		if err := scopeArgs.run(e); err != nil {
			var code cli.Exit
			if errors.As(err, &code) {
				return err
			}
			return usage125(err)
		}
		return nil
	},
}

// watched is a folder outside the workspace.
type watched struct {
	path   string
	before *footprint.Manifest
}

func (v *scopeFlags) run(e *cli.Env) error {
	policy, err := footprint.NewPolicy(v.allow)
	if err != nil {
		return fmt.Errorf("-allow: %w", err)
	}
	if v.out != "" {
		if _, err := os.Lstat(v.out); err == nil {
			return cli.Failf(cli.ExitRunner, "name a new file", "-o %s exists", v.out)
		}
	}
	workspace, err := folderOf("-workspace", v.workspace)
	if err != nil {
		return err
	}
	if workspace == filepath.VolumeName(workspace)+string(filepath.Separator) {
		return cli.Failf(cli.ExitRunner, "cd into a project folder, or name one with -workspace", "the workspace is %s: a workspace must be bounded", workspace)
	}
	record, remove, err := v.recording(workspace)
	if err != nil {
		return err
	}
	keep := false // a recording that an error names
	defer func() {
		if !keep {
			remove()
		}
	}()
	var others []watched
	for _, r := range v.roots {
		w, err := watchFolder(r, workspace, filepath.Dir(record))
		if err != nil {
			return err
		}
		if slices.ContainsFunc(others, func(o watched) bool { return o.path == w.path }) {
			return cli.Failf(cli.ExitRunner, "", "-root %s: got it twice, want it once", r)
		}
		others = append(others, w)
	}
	first, err := take(workspace, false)
	if err != nil {
		return err
	}

	s := &finalState{workspace: workspace, first: first}
	o := runOptions{workspace: workspace, out: record, backend: v.backend, env: v.env, apply: true, trial: 1, attempt: 1, ended: s.look,
		command: e.Program, stdin: e.Stdin, stdout: e.Stdout, stderr: e.Stderr}
	if e.JSON {
		o.stdout = e.Stderr // stdout is for the report
	}
	res, _, failed := doRun(o, nil, e.Warn)
	rep := newScopeReport(policy, v.gate)
	if failed != nil {
		var not *sandbox.NotExecuted
		if errors.As(failed, &not) { // what helps with a task is not there without one
			return cli.Failf(cli.ExitRunner, "CMD starts in the workspace and must be a program, or a script with a #! line, there or in the system; "+
				"a folder on PATH is shown too", "%w", failed)
		}
		if neverRan(failed) {
			return failed
		}
		keep = true
		if rep.Error = failed.Error(); res == nil {
			return errors.Join(v.print(e, rep), failed)
		}
	}
	rep.Code, rep.Run = res.Code, v.record
	rep.Cancelled = res.Outcome == journal.Cancelled
	rep.judge(policy, s, record)
	for _, o := range others {
		rep.walked(policy, o)
	}
	rep.conclude()
	if err := v.print(e, rep); err != nil && rep.Code == 0 {
		return err
	} else if err != nil {
		e.Warn("%v", err)
	}
	return rep.exit()
}

// exit is the result as an exit code: the command's own failure is never masked.
func (r *scopeReport) exit() error {
	switch {
	case r.Code != 0:
		return cli.Exit(r.Code)
	case r.Error != "":
		return cli.Failf(cli.ExitRunner, "correct what it names, and run it again", "%s", r.Error)
	case r.Gate && r.Outcome == footprint.Outside:
		return cli.Exit(cli.ExitDirty)
	case r.Gate && r.Outcome != footprint.Within:
		return cli.Exit(cli.ExitInconclusive)
	}
	return nil
}

// neverRan tells whether CMD was not started.
func neverRan(err error) bool {
	var unavailable *sandbox.Unavailable
	var refused *sandbox.Refused
	var not *sandbox.NotExecuted
	var own *cli.Error
	return errors.As(err, &unavailable) || errors.As(err, &refused) || errors.As(err, &not) || errors.As(err, &own)
}

// folderOf is the folder that a flag names, absolute, links resolved.
func folderOf(option, name string) (string, error) {
	p, err := filepath.Abs(name)
	if err == nil {
		p, err = filepath.EvalSymlinks(p)
	}
	if err != nil {
		return "", cli.Failf(cli.ExitRunner, "name a folder that is there", "%s %s: %w", option, name, err)
	}
	if st, err := os.Stat(p); err != nil || !st.IsDir() {
		return "", cli.Failf(cli.ExitRunner, "", "%s %s: got no folder, want one (%v)", option, name, err)
	}
	return p, nil
}

// recording is where the run is recorded, and what takes it away if nobody asked for it.
func (v *scopeFlags) recording(workspace string) (string, func(), error) {
	at := v.record
	if at == "" {
		at = os.TempDir()
	}
	abs, err := filepath.Abs(at)
	if err != nil {
		return "", nil, err
	}
	if below(abs, workspace) {
		return "", nil, cli.Failf(cli.ExitRunner, "name a folder outside the workspace with -record", "the recording would be in %s, which is inside the workspace", abs)
	}
	if v.record != "" {
		if _, err := os.Lstat(abs); err == nil {
			return "", nil, cli.Failf(cli.ExitRunner, "name a new folder", "-record %s exists", v.record)
		}
		return abs, func() {}, nil
	}
	dir, err := os.MkdirTemp("", "cleanrun-scope-")
	return filepath.Join(dir, "run"), func() { os.RemoveAll(dir) }, err
}

func below(p, folder string) bool {
	rel, err := filepath.Rel(folder, p)
	return err == nil && rel != ".." && !strings.HasPrefix(filepath.ToSlash(rel), "../")
}

// watchFolder reads a folder outside the workspace.
func watchFolder(name, workspace, record string) (w watched, err error) {
	if w.path, err = folderOf("-root", name); err != nil {
		return w, err
	}
	switch {
	case below(w.path, workspace):
		return w, cli.Failf(cli.ExitRunner, "leave it out; -allow says what may change elsewhere in the workspace", "-root %s: the workspace is watched as a whole", name)
	case below(workspace, w.path) || below(record, w.path):
		return w, cli.Failf(cli.ExitRunner, "name a smaller folder, or cd to it", "-root %s holds the workspace or the recording", name)
	}
	w.before, err = take(w.path, true)
	return w, err
}

func take(dir string, read bool) (*footprint.Manifest, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	return footprint.Take(context.Background(), root, read, footprint.DefaultLimits)
}

// since gives what differs in a folder from a manifest of it.
func since(before *footprint.Manifest, dir string, read bool) ([]footprint.Change, []footprint.Gap, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer root.Close()
	return footprint.Compare(context.Background(), before, root, read, footprint.DefaultLimits)
}

// print writes the report where it was asked for.
func (v *scopeFlags) print(e *cli.Env, r *scopeReport) error {
	if v.out != "" {
		data, err := r.encode()
		if err == nil {
			err = durable.CreateNew(v.out, data, 0o644)
		}
		if err != nil {
			return fmt.Errorf("-o: %w", err)
		}
	}
	if e.JSON {
		return e.PrintJSON(r)
	}
	r.text(e.Stderr)
	if r.Outcome == footprint.Outside && len(r.Roots) > 0 && len(r.Roots[0].Outside) > 0 {
		next := "with -record FOLDER -o FILE, cleanrun explain FILE says who changed it"
		if v.out != "" && v.record != "" {
			next = "cleanrun explain " + quotePath(v.out)
		}
		fmt.Fprintf(e.Stderr, " %-12s %s\n", "next", next)
	}
	return nil
}
