package main

import (
	"os"
	"os/exec"
	"os/user"
	"regexp"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
)

// toolDirs are folders of tools that live outside the system's: what Go itself
// says, since its settings have several sources. They come later, because asking
// takes longer than most of the rest.
func toolDirs() func() []string {
	ch := make(chan []string, 1)
	go func() {
		var dirs []string
		out, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
		if err != nil {
			out = nil // no Go here
		}
		for d := range strings.Lines(string(out)) {
			d = strings.TrimSpace(d)
			if st, err := os.Stat(d); d != "" && err == nil && st.IsDir() {
				dirs = append(dirs, d)
			}
		}
		ch <- dirs
	}()
	return func() []string { return <-ch }
}

// secretName matches variables that are kept out of a run unless they are named:
// whatever the command is given is content, and content is stored.
var secretName = regexp.MustCompile(`(?i)token|secret|passw|passphrase|credential|(^|_)(api|access|private)?(key|auth|cookie|pat|dsn)(_|[0-9]|$)`)

// environment is what the command is given, and the names that it is not given.
func environment(all, pass []string) (env, withheld []string, err error) {
	for _, p := range pass {
		if !slices.ContainsFunc(all, func(v string) bool { return strings.HasPrefix(v, p+"=") }) {
			return nil, nil, cli.Failf(cli.ExitRunner, "", "-env %s: there is no such variable", p)
		}
	}
	for _, v := range all {
		name, _, _ := strings.Cut(v, "=")
		if secretName.MatchString(name) && !slices.Contains(pass, name) {
			withheld = append(withheld, name)
			continue
		}
		env = append(env, v)
	}
	slices.Sort(withheld)
	return env, withheld, nil
}

// homes are the folders in which people keep what a run must not find.
func homes() []string {
	list := []string{"/home", "/root"}
	if h, err := os.UserHomeDir(); err == nil {
		list = append(list, h)
	}
	if u, err := user.Current(); err == nil && u.HomeDir != "" {
		list = append(list, u.HomeDir)
	}
	slices.Sort(list)
	return slices.Compact(list)
}
