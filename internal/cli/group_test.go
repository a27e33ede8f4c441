package cli

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// groups is a table with a group of two commands and one command beside it.
func groups(ran *string) *Table {
	command := func(name string) *Command {
		var n uint32
		return &Command{Name: name, Short: "do " + name, Long: "Does " + name + ".", JSON: true,
			Flags: func(f *Flags) { f.Uint(&n, "count", "`number` of them") },
			Run: func(e *Env, args []string) error {
				*ran = name + " " + strings.Join(args, ",")
				return nil
			}}
	}
	return &Table{Program: "prog", Short: "a program", Commands: []*Command{
		command("plain"), {Name: "log", Short: "do logs", Long: "Logs.", Commands: []*Command{command("log add"), command("log serve")}},
	}}
}

func TestGroups(t *testing.T) {
	for _, c := range []struct {
		args, ran, out, err string
		code                int
	}{
		{args: "plain x", ran: "plain x"},
		{args: "log add -count 3 x", ran: "log add x"},
		{args: "log serve", ran: "log serve "},
		{args: "log", code: ExitUsage, err: "  add         do log add\n  serve       do log serve\n"},
		{args: "log -h", out: "usage: prog log COMMAND [flags] [arguments]\n"},
		{args: "help log", out: "prog help log COMMAND says more."},
		{args: "log add -h", out: "usage: prog log add [-count NUMBER] [-json]\n"},
		{args: "help log add", out: "usage: prog log add "},
		{args: "help log adds", code: ExitUsage, err: "unknown command \"log adds\"\ncleanrun: hint: did you mean add?"},
		{args: "log srve x", code: ExitUsage, err: "unknown command \"log srve\"\ncleanrun: hint: did you mean serve?"},
		{args: "log frobnicate -json", code: ExitUsage, out: `"exit": 2`, err: "hint: prog help log"},
		{args: "lgo add", code: ExitUsage, err: "unknown command \"lgo\"\ncleanrun: hint: did you mean log?"},
		{args: "add", code: ExitUsage, err: "unknown command \"add\""},
		{args: "log add -nope", code: ExitUsage, err: "hint: prog help log add"},
		{args: "help plain more", out: "usage: prog plain"},
	} {
		var ran string
		var out, errs bytes.Buffer
		code := groups(&ran).Main(strings.Fields(c.args), os.Stdin, &out, &errs)
		if code != c.code || ran != c.ran {
			t.Errorf("%s: got code %d, ran %q, want %d, %q\n%s%s", c.args, code, ran, c.code, c.ran, &out, &errs)
		}
		if !strings.Contains(out.String(), c.out) || (c.out == "") != (out.Len() == 0) {
			t.Errorf("%s: got stdout %q, want %q", c.args, &out, c.out)
		}
		if !strings.Contains(errs.String(), c.err) || (c.err == "") != (errs.Len() == 0) {
			t.Errorf("%s: got stderr %q, want %q", c.args, &errs, c.err)
		}
	}
}

// A man page and a completion for each command, under the group's name.
func TestGroupPages(t *testing.T) {
	var ran string
	table := groups(&ran)
	names := ""
	for _, c := range table.All() {
		names += c.Name + ";"
		var b bytes.Buffer
		table.Man(&b, c, "v1")
		page := strings.ReplaceAll(c.Name, " ", `\-`)
		if !strings.Contains(b.String(), "\nprog\\-"+page+" \\- ") {
			t.Errorf("%s: got %s, want its own name", c.Name, &b)
		}
		if c.Name == "log" && !strings.Contains(b.String(), ".BR prog\\-log\\-serve (1)") {
			t.Errorf("the group's page does not name its commands: %s", &b)
		}
	}
	if names != "plain;log;log add;log serve;" {
		t.Errorf("got %s", names)
	}
	for shell, want := range map[string]string{"bash": `"log add") words="-count -json"`, "fish": "-n '__fish_seen_subcommand_from log; and __fish_seen_subcommand_from add' -o count"} {
		var b bytes.Buffer
		if err := table.Completion(&b, shell); err != nil || !strings.Contains(b.String(), want) {
			t.Errorf("%s: got %v, %s, want %s", shell, err, &b, want)
		}
	}
}
