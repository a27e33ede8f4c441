package main

import (
	"encoding/hex"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/benchmark"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
)

type auditOptions struct{ policy, seal, junit string }

var auditFlags auditOptions

var auditCommand = &cli.Command{
	Name:  "audit",
	Args:  "DIR...",
	Short: "check submissions: every receipt, every cell, the score, and one against the other",
	Long: `Checks folders that cleanrun submit wrote. Every bundle is verified on all cores under the policy, as verify does. Each cell of the
grid is held to its receipt, and the score is computed again. Across the submissions it looks for another seal, hidden or replaced
attempts, one run used twice, and receipts that are claimed for two agents. spec/submission.md lists the findings.

-seal names the benchmark's seal that all submissions must be under: the file b.sealed, or the SHA-256 of its signed head. Without it they
are compared with the seal that most of them are under.

-junit writes JUnit XML beside the table: a test suite for each submission, a test case for each attempt.

Exit codes: 0 if every cell of every submission holds and is CLEAN, 1 if anything is INVALID, else 4 if anything is DIRTY, else 3.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &auditFlags
		f.Required(&v.policy, "policy", "policy `file` that pins owners and runners")
		f.String(&v.seal, "seal", "`b.sealed`, or the SHA-256 of its head in hex, that all submissions must be under")
		f.String(&v.junit, "junit", "`file` to write JUnit XML to")
	},
	Run: func(e *cli.Env, args []string) error {
		report, err := doAudit(e, auditFlags, args)
		if err != nil {
			return err
		}
		if e.JSON {
			if err := e.PrintJSON(report); err != nil {
				return err
			}
		} else {
			printAudit(e.Stdout, report)
		}
		if report.Exit != 0 {
			return cli.Exit(report.Exit)
		}
		return nil
	},
}

func doAudit(e *cli.Env, v auditOptions, dirs []string) (*audit.Report, error) {
	if len(dirs) == 0 {
		return nil, cli.Failf(cli.ExitUsage, "", "the folders of submissions are missing")
	}
	policy, err := readPolicy(v.policy)
	if err != nil {
		return nil, err
	}
	o := audit.Options{Policy: policy, Now: time.Now()}
	if v.seal != "" {
		head, err := sealHead(v.seal)
		if err != nil {
			return nil, err
		}
		o.Seal = &head
	}
	for _, dir := range dirs {
		if st, err := os.Stat(dir); err != nil {
			return nil, err
		} else if !st.IsDir() {
			return nil, cli.Failf(cli.ExitUsage, "cleanrun verify checks a single bundle", "%s: got a file, want the folder of a submission", dir)
		}
	}
	p := cli.NewProgress(e.Stderr, "verifying bundles")
	o.Progress = func(done, total uint64) { p.Update(done, total, "bundles") }
	// Nearly all memory is short-lived: a collection now and then is enough.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	report := audit.Run(dirs, o)
	p.Done()
	if v.junit != "" {
		if err := durable.CreateFrom(v.junit, 0o644, func(w io.Writer) error { return report.WriteJUnit(w) }); err != nil {
			return nil, err
		}
	}
	return report, nil
}

// sealHead reads the digest of a benchmark's signed head, or takes it from the
// sealed file.
func sealHead(arg string) (head [32]byte, err error) {
	if len(arg) == 64 && strings.Trim(arg, "0123456789abcdef") == "" {
		_, err := hex.Decode(head[:], []byte(arg))
		return head, err
	}
	s, err := benchmark.OpenSealed(arg)
	if err != nil {
		return head, err
	}
	defer s.Close()
	head, _ = sumOf(s.Signed())
	return head, nil
}

func printAudit(w io.Writer, r *audit.Report) {
	for line := range strings.Lines(r.Text()) {
		word, rest, _ := strings.Cut(line, " ")
		if code, ok := verdictColour[word]; ok {
			line = cli.Colour(w, code, word) + " " + rest
		}
		io.WriteString(w, line)
	}
}
