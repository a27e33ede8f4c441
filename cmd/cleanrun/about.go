package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

type formatVersions struct {
	Version  string `json:"version"`
	Journal  string `json:"journal"`
	Sealed   string `json:"sealedSet"`
	Evidence string `json:"evidence"`
	Profile  string `json:"profile"`
}

func formats() formatVersions {
	return formatVersions{version(), journal.Version, contraband.Version, attest.EvidenceVersion, contraband.Profile}
}

var completionCommand = &cli.Command{
	Name:  "completion",
	Args:  "bash|zsh|fish",
	Words: []string{"bash", "zsh", "fish"},
	Short: "print a completion script for a shell",
	Long: `Prints a completion script. For bash:

  cleanrun completion bash > /etc/bash_completion.d/cleanrun`,
	Run: func(e *cli.Env, args []string) error {
		shell, err := oneArg(args, "the shell (bash, zsh or fish)")
		if err != nil {
			return err
		}
		return table.Completion(e.Stdout, shell)
	},
}

var manDir string

var manCommand = &cli.Command{
	Name:  "man",
	Short: "write the man pages into a folder",
	Long: `Writes cleanrun.1 and one man page a command, cleanrun-COMMAND.1 (of a command of a group, cleanrun-GROUP-COMMAND.1), into a folder that exists.

  cleanrun man -o /usr/local/share/man/man1`,
	Flags: func(f *cli.Flags) { f.Required(&manDir, "o", "`folder` to write into") },
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		if _, err := os.Stat(manDir); err != nil {
			return err
		}
		var all bytes.Buffer
		table.Overview(&all, version())
		if err := durable.WriteFile(filepath.Join(manDir, "cleanrun.1"), all.Bytes(), 0o644); err != nil {
			return err
		}
		for _, c := range table.All() {
			var b bytes.Buffer
			table.Man(&b, c, version())
			if err := durable.WriteFile(filepath.Join(manDir, "cleanrun-"+strings.ReplaceAll(c.Name, " ", "-")+".1"), b.Bytes(), 0o644); err != nil {
				return err
			}
		}
		return nil
	},
}

var doctorCommand = &cli.Command{
	Name:  "doctor",
	Short: "try what the recorder needs, and say what works on this machine",
	Long: `Tries each ability of the recorder for real and prints one line for each, then a whole run with each backend: with namespaces, and
without (plain). Exit 0 if cleanrun run works here with one of them, 3 if it does not.
Verifying needs none of them.`,
	JSON: true,
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		checks := sandbox.Doctor()
		backend := sandbox.Works(checks)
		works := backend != ""
		if e.JSON {
			type check struct {
				ID   string `json:"id"`
				OK   bool   `json:"ok"`
				Got  string `json:"got"`
				Hint string `json:"hint,omitempty"`
			}
			out := struct {
				Works   bool    `json:"works"`
				Backend string  `json:"backend"`
				Checks  []check `json:"checks"`
			}{works, backend, []check{}}
			for _, c := range checks {
				out.Checks = append(out.Checks, check{c.ID, c.OK, c.Got, c.Hint})
			}
			if err := e.PrintJSON(out); err != nil {
				return err
			}
		} else {
			for _, c := range checks {
				mark := cli.Colour(e.Stdout, "32", "ok  ")
				if !c.OK {
					mark = cli.Colour(e.Stdout, "31", "FAIL")
				}
				fmt.Fprintf(e.Stdout, "%s %-22s %s\n", mark, c.ID, c.Got)
				if !c.OK && c.Hint != "" {
					fmt.Fprintf(e.Stdout, "     %-22s -> %s\n", "", c.Hint)
				}
			}
			if works {
				fmt.Fprintf(e.Stdout, "\ncleanrun run works here, with backend %s\n", backend)
			} else {
				fmt.Fprintln(e.Stdout, "\ncleanrun run does not work here; cleanrun verify does")
			}
		}
		if !works {
			return cli.Exit(cli.ExitInconclusive)
		}
		return nil
	},
}
