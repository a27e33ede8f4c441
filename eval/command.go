package eval

import (
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Split cuts a command line into words as a shell does, without running one:
// quotes and backslashes mean what they mean there, and whatever a shell would
// expand or execute is refused.
func Split(line string) ([]string, error) {
	p := syntax.NewParser(syntax.Variant(syntax.LangPOSIX))
	var words []*syntax.Word
	err := p.Words(strings.NewReader(line), func(w *syntax.Word) bool {
		words = append(words, w)
		return true
	})
	var perr syntax.ParseError
	if errors.As(err, &perr) {
		err = errors.New(perr.Text)
	}
	if err == nil {
		for _, w := range words {
			if err = plain(w.Parts); err != nil {
				break
			}
		}
	}
	if err != nil {
		return nil, fmt.Errorf("got %q: %w", line, err)
	}
	var out []string
	for _, w := range words {
		out = append(out, text(w.Parts, false))
	}
	if len(out) == 0 || out[0] == "" {
		return nil, fmt.Errorf("got %q, want a program with its arguments", line)
	}
	return out, nil
}

func plain(parts []syntax.WordPart) error {
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			if strings.ContainsAny(unescaped(p.Value), "*?[") {
				return fmt.Errorf("%q is a pattern for a shell: quote it, or name one: sh -c '...'", p.Value)
			}
			if strings.HasPrefix(p.Value, "~") {
				return fmt.Errorf("%q is expanded by a shell: write the path in full", p.Value)
			}
		case *syntax.SglQuoted:
		case *syntax.DblQuoted:
			for _, q := range p.Parts {
				if _, ok := q.(*syntax.Lit); !ok {
					return errors.New("no variable or command is expanded: use single quotes, or name a shell: sh -c '...'")
				}
			}
		default:
			return errors.New("no variable or command is expanded: use single quotes, or name a shell: sh -c '...'")
		}
	}
	return nil
}

// unescaped is s without each backslash and what follows it.
func unescaped(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// text is the value of a plain word (POSIX, Shell Command Language, 2.2).
func text(parts []syntax.WordPart, quoted bool) string {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.SglQuoted:
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			b.WriteString(text(p.Parts, true))
		case *syntax.Lit:
			for i := 0; i < len(p.Value); i++ {
				c := p.Value[i]
				if c == '\\' && i+1 < len(p.Value) && (!quoted || strings.IndexByte("$`\"\\\n", p.Value[i+1]) >= 0) {
					i++
					if c = p.Value[i]; c == '\n' {
						continue
					}
				}
				b.WriteByte(c)
			}
		}
	}
	return b.String()
}

// Placeholders in a command.
const (
	PromptText = "{prompt}"      // the task's prompt
	PromptFile = "{prompt_file}" // the path of a file with it
	TaskID     = "{task}"        //
	TrialNo    = "{trial}"       // from 1
)

// Values of the placeholders for one attempt. A file that is "" is not there.
type Values struct {
	Prompt     string
	PromptFile string
	Task       string
	Trial      uint32
}

// MaxArgument is the longest argument that Linux takes, without its NUL
// (MAX_ARG_STRLEN in linux/binfmts.h).
const MaxArgument = 128<<10 - 1

// Expand replaces the placeholders of a command. What was put in is not looked at
// again.
func (v Values) Expand(command []string) ([]string, error) {
	if v.PromptFile == "" && Uses(command, PromptFile) {
		return nil, &FieldError{PromptFile, "nothing to show", "a prompt"}
	}
	r := strings.NewReplacer(PromptText, v.Prompt, PromptFile, v.PromptFile, TaskID, v.Task, TrialNo, strconv.FormatUint(uint64(v.Trial), 10))
	out := make([]string, len(command))
	for i, a := range command {
		out[i] = r.Replace(a)
		if strings.ContainsRune(out[i], 0) {
			return nil, &FieldError{fmt.Sprintf("argument %d", i), "a NUL byte from the prompt", "text; " + PromptFile + " passes a file"}
		}
		if len(out[i]) > MaxArgument {
			return nil, &FieldError{fmt.Sprintf("argument %d", i), fmt.Sprintf("%d bytes", len(out[i])), fmt.Sprintf("at most %d; %s passes a file", MaxArgument, PromptFile)}
		}
	}
	return out, nil
}

// Uses tells whether a command holds a placeholder.
func Uses(command []string, placeholder string) bool {
	return slices.ContainsFunc(command, func(a string) bool { return strings.Contains(a, placeholder) })
}

// Misread says why a value that these placeholders put into the command would
// not stay a value: a shell would execute it, a program would take it for an option,
// or it would lead to another path. The benchmark's owner chose it. nil if it is one.
func (v Values) Misread(command []string) error {
	interpreter := false // among the words before
	ended := false       // options end before this word: -- or a program's text
	for i, a := range command {
		// A program reads -x as an option wherever it stands. What follows the name of
		// an option may be its value or not: only that program knows.
		for _, p := range []struct{ name, value string }{{PromptText, v.Prompt}, {TaskID, v.Task}} {
			if strings.HasPrefix(a, p.name) && strings.HasPrefix(p.value, "-") && !ended {
				return &FieldError{p.name, fmt.Sprintf("%.20q, which the program may take for options", p.value), "it after a word --, or joined: --task=" + p.name}
			}
		}
		ended = ended || a == "--"
		// The text of sh -c, env bash -lc, python3 -c.
		if interpreter && code.MatchString(command[i-1]) {
			ended = true // what comes now are the text's own words
			if strings.Contains(a, PromptText) {
				return &FieldError{PromptText, "a place in a program's text, after " + command[i-1], "a word of its own: sh -c 'my-model -- \"$1\"' sh {prompt}"}
			}
			if strings.Contains(a, TaskID) && !harmless.MatchString(v.Task) {
				return &FieldError{TaskID, fmt.Sprintf("%q in a program's text, after %s", v.Task, command[i-1]), "a word of its own: sh -c 'my-model -- \"$1\"' sh {task}"}
			}
		}
		if strings.Contains(a, "/"+TaskID) || strings.Contains(a, TaskID+"/") {
			if slices.Contains(strings.Split(v.Task, "/"), "..") || strings.HasPrefix(v.Task, "/") {
				return &FieldError{TaskID, fmt.Sprintf("%q in a path, %q", v.Task, a), "a task whose id stays below that folder"}
			}
		}
		interpreter = interpreter || interpreters.MatchString(path.Base(a))
	}
	return nil
}

var (
	interpreters = regexp.MustCompile(`^([a-z]*sh|python[0-9.]*|perl|ruby|node|php)$`)
	code         = regexp.MustCompile(`^-[a-zA-Z]*[ce]$`)
	harmless     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._/-]*$`)
)

var braced = regexp.MustCompile(`\{[a-z_]+\}`)

// Unknown are the words in braces that are no placeholders: perhaps misspelled.
func Unknown(command []string) []string {
	var out []string
	for _, a := range command {
		for _, w := range braced.FindAllString(a, -1) {
			if !slices.Contains([]string{PromptText, PromptFile, TaskID, TrialNo}, w) && !slices.Contains(out, w) {
				out = append(out, w)
			}
		}
	}
	return out
}
