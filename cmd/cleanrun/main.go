// Command cleanrun runs an eval in a sandbox, records what it touched, and makes
// a receipt that anybody can check. See "cleanrun help".
package main

import (
	"fmt"
	"os"
	"runtime/debug"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

var table = &cli.Table{
	Program: "cleanrun",
	Short:   "evaluation results that anybody can check",
}

// The table is filled here, not in its declaration: the commands for man pages
// and completion read it.
func init() {
	table.Commands = []*cli.Command{
		quickstartCommand, keygenCommand, sealCommand, runCommand, evalCommand, attestCommand, verifyCommand,
		fraudCommand, explainCommand, inspectCommand, scopeCommand, surfaceCommand, discloseCommand, submitCommand, auditCommand, logCommand, lsCommand, watchCommand, storeCommand, pruneCommand,
		doctorCommand, completionCommand, manCommand, versionCommand,
	}
}

func main() {
	sandbox.Stage() // never returns in the processes that make up the sandbox
	attemptStage()  // nor in those that make up an eval
	os.Exit(table.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// version is the module's version as the Go tool stamped it.
func version() string {
	if i, ok := debug.ReadBuildInfo(); ok && i.Main.Version != "" {
		return i.Main.Version
	}
	return "(devel)"
}

var versionCommand = &cli.Command{
	Name:  "version",
	Short: "print the version",
	Long:  "Prints the version of cleanrun and of the formats that it writes.",
	JSON:  true,
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		v := formats()
		if e.JSON {
			return e.PrintJSON(v)
		}
		fmt.Fprintf(e.Stdout, "cleanrun %s\njournal    %s\nsealed set %s\nevidence   %s\nprofile    %s\n", v.Version, v.Journal, v.Sealed, v.Evidence, v.Profile)
		return nil
	},
}

func noArgs(args []string) error {
	if len(args) > 0 {
		return cli.Failf(cli.ExitUsage, "", "unexpected argument %q", args[0])
	}
	return nil
}

func oneArg(args []string, what string) (string, error) {
	switch len(args) {
	case 1:
		return args[0], nil
	case 0:
		return "", cli.Failf(cli.ExitUsage, "", "%s is missing", what)
	}
	return "", cli.Failf(cli.ExitUsage, "", "unexpected argument %q", args[1])
}
