// Package cli is the command-line frame of cleanrun: a table of commands, strict
// flags, and the promise of what goes where.
//
// The law: stdout carries only the product. With -json it carries exactly one
// object, also on failure, and the exit code is the same as without. stderr
// carries "cleanrun: error:", "cleanrun: warning:" and "cleanrun: hint:" lines,
// and progress, which is shown only on a terminal. Colour only on a terminal.
package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/cleanrun-dev/cleanrun/internal/near"
)

// Exit codes. Any other code is a failure.
const (
	ExitClean        = 0   // verified CLEAN, or the command did its job
	ExitInvalid      = 1   // bytes, signatures or chains are wrong
	ExitUsage        = 2   // usage, unreadable input, crash
	ExitInconclusive = 3   // INCONCLUSIVE, or cannot decide
	ExitDirty        = 4   // verified DIRTY
	ExitRunner       = 125 // run could not start or watch its command
)

// A Command is one subcommand, or a group of them.
type Command struct {
	Name  string   // for a command of a group, the group's name, a space and its own
	Args  string   // what follows the flags, e.g. "out.cleanrun [EVENT]"
	Words []string // what the argument can be, for completion
	Short string   // one line, for the list
	Long  string   // paragraphs, for help and the man page
	// Dashed commands take the command line of another program after "--".
	Dashed bool
	// JSON commands accept -json.
	JSON bool
	// Fail is the exit code for errors that carry none of their own; 0 is ExitUsage.
	Fail  int
	Flags func(f *Flags)
	Run   func(e *Env, args []string) error
	// Commands make a group: it has no flags and no Run of its own.
	Commands []*Command
}

// Env is what a command may touch.
type Env struct {
	Stdin          *os.File
	Stdout, Stderr io.Writer
	JSON           bool
	Program        []string // after "--", for Dashed commands; nil without "--"

	printed bool
}

// Error is an error with an exit code and a next step.
type Error struct {
	Code int
	Err  error
	Hint string
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Failf makes an Error.
func Failf(code int, hint, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...), Hint: hint}
}

// Exit ends a command with a code and without a message: its product has
// already said why.
type Exit int

func (e Exit) Error() string { return fmt.Sprintf("exit %d", int(e)) }

// PrintJSON writes the command's one object.
func (e *Env) PrintJSON(v any) error {
	if e.printed {
		return errors.New("a second JSON object on stdout")
	}
	e.printed = true
	enc := json.NewEncoder(e.Stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// Warn writes a warning line.
func (e *Env) Warn(format string, args ...any) {
	fmt.Fprintf(e.Stderr, "cleanrun: warning: "+format+"\n", args...)
}

// Terminal tells whether w is a terminal that wants colour and progress.
func Terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
}

// Colour wraps s in an SGR code if w is a terminal and NO_COLOR is not set.
func Colour(w io.Writer, code, s string) string {
	if !Terminal(w) || os.Getenv("NO_COLOR") != "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

// A Table is the program's commands.
type Table struct {
	Program  string
	Short    string
	Commands []*Command
}

// Main runs args (without the program name) and returns the exit code.
func (t *Table) Main(args []string, stdin *os.File, stdout, stderr io.Writer) int {
	e := &Env{Stdin: stdin, Stdout: stdout, Stderr: stderr}
	if len(args) == 0 {
		t.usage(stderr)
		return ExitUsage
	}
	switch args[0] {
	case "help", "-h", "-help", "--help":
		if len(args) == 1 {
			t.usage(stdout)
			return 0
		}
		c, rest := t.find(args[1:])
		if c == nil || len(rest) > 0 && c.Commands != nil {
			return t.unknown(e, c, args[1:], rest)
		}
		t.help(stdout, c)
		return 0
	}
	c, rest := t.find(args)
	if c == nil {
		return t.unknown(e, c, args, rest)
	}
	if c.Commands != nil {
		switch {
		case len(rest) == 0:
			t.help(stderr, c)
			return ExitUsage
		case rest[0] == "-h" || rest[0] == "-help" || rest[0] == "--help":
			t.help(stdout, c)
			return 0
		}
		return t.unknown(e, c, args, rest)
	}
	return t.report(e, c, t.run(e, c, rest))
}

// find goes down from the table to the command that args name, and returns what
// follows its name. It stops at a group whose command is not known.
func (t *Table) find(args []string) (*Command, []string) {
	var found *Command
	list, prefix := t.Commands, ""
	for list != nil && len(args) > 0 {
		i := slices.IndexFunc(list, func(c *Command) bool { return c.Name == prefix+args[0] })
		if i < 0 {
			break
		}
		found, args = list[i], args[1:]
		list, prefix = found.Commands, found.Name+" "
	}
	return found, args
}

// unknown reports that a group, or the table if group is nil, has no command of the
// name that follows.
func (t *Table) unknown(e *Env, group *Command, args, rest []string) int {
	list, help := t.Commands, t.Program+" help"
	if group != nil {
		list, help = group.Commands, help+" "+group.Name
	}
	name := args[:len(args)-len(rest)+1]
	for _, a := range rest { // one object also on this failure
		if a == "--" {
			break
		}
		e.JSON = e.JSON || a == "-json" || a == "--json"
	}
	return t.report(e, nil, Failf(ExitUsage, DidYouMean(name[len(name)-1], names(list), help), "unknown command %q", strings.Join(name, " ")))
}

// All are the commands that can be run, and the groups, each before its commands.
func (t *Table) All() (out []*Command) {
	for _, c := range t.Commands {
		out = append(append(out, c), c.Commands...)
	}
	return out
}

func (t *Table) run(e *Env, c *Command, args []string) error {
	f := newFlags(c)
	if c.JSON {
		f.Bool(&e.JSON, "json", "print one JSON object")
		// Known before the flags are parsed, so that a usage error is an object too.
		for _, a := range args {
			if a == "--" {
				break
			}
			if a == "-json" || a == "--json" {
				e.JSON = true
			}
		}
	}
	rest, program, err := f.parse(args)
	if errors.Is(err, flag.ErrHelp) {
		t.help(e.Stdout, c)
		return nil
	}
	if err != nil {
		code, hint := ExitUsage, t.Program+" help "+c.Name
		if c.Dashed {
			code, hint = cmp.Or(c.Fail, code), t.Program+" "+c.Name+" [flags] -- CMD ARG...; "+hint
		}
		if name, ok := strings.CutPrefix(err.Error(), "flag provided but not defined: "); ok { // as package flag says it
			if meant := near.Word(name, f.names()); meant != "" {
				hint = "did you mean " + meant + "? " + hint
			}
		}
		return Failf(code, hint, "%w", err)
	}
	e.Program = program
	return c.Run(e, rest)
}

func (t *Table) report(e *Env, c *Command, err error) int {
	if err == nil {
		return 0
	}
	var exit Exit
	if errors.As(err, &exit) {
		return int(exit)
	}
	code, hint := ExitUsage, ""
	if c != nil && c.Fail != 0 {
		code = c.Fail
	}
	var own *Error
	if errors.As(err, &own) {
		code, hint = own.Code, own.Hint
	}
	var h interface{ Hint() string }
	if hint == "" && errors.As(err, &h) {
		hint = h.Hint()
	}
	if hint == "" && errors.Is(err, fs.ErrExist) {
		hint = "an existing file is never overwritten: remove it, or name a new one"
	}
	fmt.Fprintf(e.Stderr, "cleanrun: error: %s\n", strings.TrimRight(err.Error(), "\n"))
	if hint != "" {
		fmt.Fprintf(e.Stderr, "cleanrun: hint: %s\n", hint)
	}
	if e.JSON && !e.printed {
		e.PrintJSON(struct {
			Error string `json:"error"`
			Hint  string `json:"hint,omitempty"`
			Exit  int    `json:"exit"`
		}{err.Error(), hint, code})
	}
	return code
}
