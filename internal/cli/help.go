package cli

import (
	"fmt"
	"io"
	"strings"
)

func (t *Table) usage(w io.Writer) {
	fmt.Fprintf(w, "%s: %s\n\nusage: %s COMMAND [flags] [arguments]\n\n", t.Program, t.Short, t.Program)
	for _, c := range t.Commands {
		fmt.Fprintf(w, "  %-11s %s\n", c.Name, fold(strings.Fields(c.Short), strings.Repeat(" ", 14)))
	}
	more := t.Program + " help COMMAND says more. Exit codes: 0 verified CLEAN or done, 1 INVALID, 2 usage or unreadable input, " +
		"3 INCONCLUSIVE or cannot decide, 4 verified DIRTY. run and scope pass their command's code through; their own failures are 125."
	fmt.Fprintf(w, "\n%s\n", fold(strings.Fields(more), ""))
}

// Synopsis is the command's usage line.
func (t *Table) Synopsis(c *Command) string { return strings.Join(t.items(c), " ") }

// items are the parts of the usage line, between which it may be folded.
func (t *Table) items(c *Command) []string {
	list := []string{t.Program + " " + c.Name}
	if c.Commands != nil {
		return append(list, "COMMAND", "[flags]", "[arguments]")
	}
	f := t.flagsOf(c)
	must := map[string]bool{}
	for _, m := range f.must {
		must[m] = true
	}
	f.each(func(name, value, _ string) {
		s := "-" + name
		if value != "" {
			s += " " + strings.ToUpper(value)
		}
		if !must[name] {
			s = "[" + s + "]"
		}
		list = append(list, s)
	})
	if c.Args != "" {
		list = append(list, c.Args)
	}
	if c.Dashed {
		list = append(list, "-- CMD ARG...")
	}
	return list
}

func (t *Table) flagsOf(c *Command) *Flags {
	f := newFlags(c)
	if c.JSON {
		var b bool
		f.Bool(&b, "json", "print one JSON object")
	}
	return f
}

func (t *Table) help(w io.Writer, c *Command) {
	fmt.Fprintf(w, "usage: %s\n", fold(t.items(c), "         "))
	for _, p := range strings.Split(strings.TrimSpace(c.Long), "\n\n") {
		if !strings.HasPrefix(p, "  ") {
			p = fold(strings.Fields(p), "")
		}
		fmt.Fprintf(w, "\n%s\n", p)
	}
	if c.Commands != nil {
		fmt.Fprintln(w)
		for i, name := range names(c.Commands) {
			fmt.Fprintf(w, "  %-11s %s\n", name, fold(strings.Fields(c.Commands[i].Short), strings.Repeat(" ", 14)))
		}
		fmt.Fprintf(w, "\n%s help %s COMMAND says more.\n", t.Program, c.Name)
		return
	}
	first := true
	t.flagsOf(c).each(func(name, value, usage string) {
		if first {
			fmt.Fprintln(w)
			first = false
		}
		s := "-" + name
		if value != "" {
			s += " " + strings.ToUpper(value)
		}
		fmt.Fprintf(w, "  %-23s %s\n", s, fold(strings.Fields(usage), strings.Repeat(" ", 26)))
	})
}

// helpWidth is the number of columns that help keeps to.
const helpWidth = 80

// fold puts words into lines, all but the first behind indent, which the first
// line's place has used up as well.
func fold(words []string, indent string) string {
	var b strings.Builder
	at := len(indent)
	for i, word := range words {
		n := len([]rune(word))
		switch {
		case i == 0:
		case at+1+n > helpWidth:
			b.WriteString("\n" + indent)
			at = len(indent)
		default:
			b.WriteString(" ")
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// Man writes the command's man page (section 1) as roff.
func (t *Table) Man(w io.Writer, c *Command, version string) {
	esc := func(s string) string {
		s = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(s)
		lines := strings.Split(s, "\n")
		for i, l := range lines {
			if strings.HasPrefix(l, ".") || strings.HasPrefix(l, "'") {
				lines[i] = `\&` + l
			}
		}
		return strings.Join(lines, "\n")
	}
	page := strings.ReplaceAll(c.Name, " ", "-")
	fmt.Fprintf(w, ".TH %s\\-%s 1 \"\" \"%s %s\"\n.SH NAME\n%s\\-%s \\- %s\n.SH SYNOPSIS\n%s\n.SH DESCRIPTION\n",
		strings.ToUpper(t.Program), strings.ToUpper(esc(page)), t.Program, version, t.Program, esc(page), esc(c.Short), esc(t.Synopsis(c)))
	for _, p := range strings.Split(strings.TrimSpace(c.Long), "\n\n") {
		if strings.HasPrefix(p, "  ") {
			fmt.Fprintf(w, ".nf\n%s\n.fi\n.PP\n", esc(p))
			continue
		}
		fmt.Fprintf(w, "%s\n.PP\n", esc(p))
	}
	if c.Commands != nil {
		fmt.Fprint(w, ".SH COMMANDS\n")
		for i, name := range names(c.Commands) {
			fmt.Fprintf(w, ".TP\n\\fB%s\\fR\n%s (see\n.BR %s\\-%s\\-%s (1))\n", esc(name), esc(c.Commands[i].Short), t.Program, esc(page), esc(name))
		}
		fmt.Fprint(w, ".SH EXIT STATUS\n"+exitStatus)
		return
	}
	fmt.Fprint(w, ".SH OPTIONS\n")
	t.flagsOf(c).each(func(name, value, usage string) {
		fmt.Fprintf(w, ".TP\n\\fB\\-%s\\fR %s\n%s\n", esc(name), esc(strings.ToUpper(value)), esc(usage))
	})
	fmt.Fprint(w, ".SH EXIT STATUS\n"+exitStatus)
}

// Overview writes the man page of the whole program as roff.
func (t *Table) Overview(w io.Writer, version string) {
	fmt.Fprintf(w, ".TH %s 1 \"\" \"%s %s\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n%s COMMAND [flags] [arguments]\n.SH COMMANDS\n",
		strings.ToUpper(t.Program), t.Program, version, t.Program, t.Short, t.Program)
	for _, c := range t.Commands {
		fmt.Fprintf(w, ".TP\n\\fB%s\\fR\n%s (see\n.BR %s\\-%s (1))\n", c.Name, c.Short, t.Program, c.Name)
	}
	fmt.Fprint(w, ".SH EXIT STATUS\n"+exitStatus)
}

const exitStatus = "0 done, or verified CLEAN; 1 INVALID; 2 usage or unreadable input; 3 INCONCLUSIVE or cannot decide; 4 verified DIRTY; 125 run failed by itself.\n"

// Completion writes a completion script for shell: bash, zsh or fish.
func (t *Table) Completion(w io.Writer, shell string) error {
	words := func(c *Command) string {
		s := append(names(c.Commands), c.Words...)
		t.flagsOf(c).each(func(name, _, _ string) { s = append(s, "-"+name) })
		return strings.Join(s, " ")
	}
	switch shell {
	case "bash", "zsh":
		if shell == "zsh" {
			fmt.Fprintln(w, "autoload -U +X bashcompinit && bashcompinit")
		}
		// The second word decides too, once it is complete.
		fmt.Fprintf(w, "_%s() {\n  local cur=${COMP_WORDS[COMP_CWORD]} words= second=\n  [ $COMP_CWORD -gt 2 ] && second=${COMP_WORDS[2]}\n"+
			"  if [ $COMP_CWORD -eq 1 ]; then words=%q\n  else case \"${COMP_WORDS[1]} $second\" in\n",
			t.Program, strings.Join(names(t.Commands), " "))
		for _, c := range t.Commands {
			for _, sub := range c.Commands {
				fmt.Fprintf(w, "    %q) words=%q ;;\n", sub.Name, words(sub))
			}
			fmt.Fprintf(w, "    \"%s \"*) words=%q ;;\n", c.Name, words(c))
		}
		fmt.Fprintf(w, "  esac; fi\n  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F _%s %s\n", t.Program, t.Program)
	case "fish":
		for _, c := range t.Commands {
			fmt.Fprintf(w, "complete -c %s -n __fish_use_subcommand -f -a %s -d %q\n", t.Program, c.Name, c.Short)
			for _, word := range append(names(c.Commands), c.Words...) {
				fmt.Fprintf(w, "complete -c %s -n '__fish_seen_subcommand_from %s' -f -a %s\n", t.Program, c.Name, word)
			}
		}
		for _, c := range t.All() {
			seen := "__fish_seen_subcommand_from " + strings.ReplaceAll(c.Name, " ", "; and __fish_seen_subcommand_from ")
			t.flagsOf(c).each(func(name, _, usage string) {
				fmt.Fprintf(w, "complete -c %s -n '%s' -o %s -d %q\n", t.Program, seen, name, usage)
			})
		}
	default:
		return Failf(ExitUsage, "completion bash|zsh|fish", "unknown shell %q", shell)
	}
	return nil
}
