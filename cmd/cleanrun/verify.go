package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/internal/store"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// maxBundle bounds what verify reads: the bundle's largest members and some room.
const maxBundle = 3 << 30

// inMemory is the size up to which verify keeps a bundle in memory.
const inMemory = 64 << 20

var (
	verifyPolicy, verifyStore string
	verifyAll                 bool
)

var verifyCommand = &cli.Command{
	Name:  "verify",
	Args:  "out.cleanrun|sha256:HEX",
	Short: "check a bundle and derive its verdict again, without the key",
	Long: `Checks every byte of a bundle, both signatures, the sealed set and the evidence, derives the verdict again and compares it
with the stated one. Needs no key and no network. A bundle of more than 64 MiB is copied meanwhile, into TMPDIR or else /var/tmp.

A policy file pins the keys: lines "owner VKEY" and "runner VKEY", as keygen prints them. Without -policy everything is checked that
needs no trust; the exit code is then 3, since the signer is unknown. With "log", "witness", "group" and "quorum" lines the run must have been
registered in that log before it started, as its witnesses saw: assurance L1. All proofs of that stand in the bundle.

Exit codes: 0 verified CLEAN, 1 INVALID, 2 not a bundle, 3 INCONCLUSIVE or cannot decide, 4 verified DIRTY.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		f.String(&verifyPolicy, "policy", "policy `file` that pins owners and runners")
		f.Bool(&verifyAll, "v", "list what is asserted, instead of counting it; -json always does")
		f.String(&verifyStore, "store", "`folder` of the store from which to take the bundle with this digest")
	},
	Run: func(e *cli.Env, args []string) error {
		path, err := oneArg(args, "the bundle (out.cleanrun)")
		if err != nil {
			return err
		}
		read := func() ([]byte, error) { return readBundle(path, inMemory) }
		if verifyStore != "" {
			read = func() ([]byte, error) { return getFromStore(verifyStore, path) }
		}
		report, err := verifyBytes(read, verifyPolicy)
		if err != nil {
			return err
		}
		if e.JSON {
			if err := e.PrintJSON(report); err != nil {
				return err
			}
		} else {
			if name, ok := strings.CutPrefix(path, store.Prefix); ok && verifyStore != "" { // what to type next takes a file
				path = filepath.Join(verifyStore, name)
			}
			printReport(e.Stdout, path, report, verifyAll)
		}
		if report.Exit != 0 {
			return cli.Exit(report.Exit)
		}
		return nil
	},
}

// verifyFile is what verify and quickstart call.
func verifyFile(path, policyPath string) (*verify.Report, error) {
	return verifyBytes(func() ([]byte, error) { return readBundle(path, inMemory) }, policyPath)
}

// verifyBytes reads the policy, then the bundle.
func verifyBytes(read func() ([]byte, error), policyPath string) (*verify.Report, error) {
	var policy *verify.Policy
	if policyPath != "" {
		var err error
		if policy, err = readPolicy(policyPath); err != nil {
			return nil, err
		}
	}
	bundle, err := read()
	if err != nil {
		return nil, err
	}
	return verify.Verify(bundle, policy, time.Now()), nil
}

// readPolicy reads a policy file.
func readPolicy(path string) (*verify.Policy, error) {
	text, err := readFile(path, verify.MaxPolicy)
	if err != nil {
		return nil, err
	}
	policy, err := verify.ParsePolicy(text)
	if err != nil {
		var p *verify.PolicyError
		if !errors.As(err, &p) {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		at := path
		if p.Line > 0 {
			at = fmt.Sprintf("%s:%d", path, p.Line)
		}
		return nil, cli.Failf(cli.ExitUsage, p.Hint, "%s: got %s, want %s", at, p.Got, p.Want)
	}
	return policy, nil
}

// readFile reads a regular file of at most limit bytes.
func readFile(path string, limit int64) ([]byte, error) {
	f, err := regular.Given(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st.IsDir() {
		return nil, fmt.Errorf("%s: is a folder, want a file", path)
	}
	if st.Size() > limit {
		return nil, fmt.Errorf("%s: got %d bytes, want at most %d", path, st.Size(), limit)
	}
	// A bundle may be large: no buffer that doubles. Not mapped either, since
	// whoever gave the file may change it meanwhile; see readBundle.
	var buf bytes.Buffer
	buf.Grow(int(st.Size()) + bytes.MinRead)
	if _, err := buf.ReadFrom(io.LimitReader(f, limit+1)); err != nil {
		return nil, err
	}
	if int64(buf.Len()) > limit {
		return nil, fmt.Errorf("%s: want at most %d bytes", path, limit)
	}
	return buf.Bytes(), nil
}

var verdictColour = map[string]string{"CLEAN": "1;32", "DIRTY": "1;31", "INCONCLUSIVE": "1;33", "INVALID": "1;31", "UNUSABLE": "1;31", "UNDECIDED": "1;33"}

// printReport prints a report. Unless all is set, what the runner asserts is counted:
// the list is long and much the same each time, and hides what differs.
func printReport(w io.Writer, file string, r *verify.Report, all bool) {
	if n := len(r.Asserted); n > 1 && !all {
		short := *r
		short.Asserted = []string{fmt.Sprintf("%d statements of the runner that nothing proves; verify -v lists them", n)}
		r = &short
	}
	text := r.Text(file)
	if code, ok := verdictColour[r.Verdict]; ok {
		text = strings.Replace(text, r.Verdict, cli.Colour(w, code, r.Verdict), 1)
	}
	io.WriteString(w, text)
}
