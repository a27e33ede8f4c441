package main

import (
	"fmt"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

var doctorCommand = &cli.Command{
	Name:  "doctor",
	Short: "try what the recorder needs, and say what works on this machine",
	Long: `Tries each ability of the recorder for real and prints one line for each. Exit 0 if cleanrun run works here, 3 if it does not.
Verifying needs none of them.`,
	JSON: true,
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		checks := sandbox.Doctor()
		works := true
		for _, c := range checks {
			works = works && c.OK
		}
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
			}{works, sandbox.Backend, []check{}}
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
				fmt.Fprintf(e.Stdout, "\ncleanrun run works here, with backend %s\n", sandbox.Backend)
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
