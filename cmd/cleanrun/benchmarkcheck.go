package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"

	"github.com/cleanrun-dev/cleanrun/benchmark"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

type checkedBenchmark struct {
	Verdict     string             `json:"verdict"` // CONSISTENT, UNDECIDED or INVALID
	Benchmark   string             `json:"benchmark"`
	Owner       *verify.Party      `json:"owner"`
	Sealed      uint64             `json:"sealed"`
	Equal       int                `json:"equal"` // sets that were rebuilt and are equal byte for byte
	Left        []string           `json:"left"`
	Differences []differenceOfSeal `json:"differences"`
}

type differenceOfSeal struct {
	Task  string `json:"task"`
	Field string `json:"field"`
	Got   string `json:"got"`
	Want  string `json:"want"`
}

// checkBenchmark rebuilds a seal from its data.
func checkBenchmark(e *cli.Env, path string, o sealOptions) error {
	s, err := benchmark.OpenSealed(o.check)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			return err
		}
		return &cli.Error{Code: cli.ExitInvalid, Err: err}
	}
	defer s.Close()
	owner, err := sealOwner(s, o.policy)
	if err != nil {
		return err
	}
	head := s.Head()
	key, public := head.Public()
	if o.key != "" {
		if key, err = readBenchmarkKey(o.key, head.Benchmark, head.Period); err != nil {
			return err
		}
	} else if !public {
		return cli.Failf(cli.ExitUsage, "name the audit or benchmark key with -key", "%s: the key is not public", o.check)
	}
	b, err := benchmark.Load(path)
	if err != nil {
		return err
	}
	defer b.Close()
	p := cli.NewProgress(e.Stderr, "checking")
	c, err := b.Check(s, key, benchmark.Options{Progress: func(done, total uint64) { p.Update(done, total, "tasks") }})
	p.Done()
	if err != nil {
		return err
	}
	out := checkedBenchmark{Verdict: "CONSISTENT", Benchmark: head.Benchmark, Owner: owner, Sealed: head.Tasks, Equal: c.Tasks, Left: append([]string{}, c.Left...), Differences: []differenceOfSeal{}}
	code := cli.ExitClean
	if !owner.Pinned {
		out.Verdict, code = verify.Undecided, cli.ExitInconclusive
	}
	for _, d := range c.Differences {
		out.Differences = append(out.Differences, differenceOfSeal(d))
		out.Verdict, code = verify.Invalid, cli.ExitInvalid
	}
	if e.JSON {
		err = e.PrintJSON(out)
	} else {
		err = checkedText(e.Stdout, o.check, &out, c.Differences)
	}
	if err == nil && code != 0 {
		err = cli.Exit(code)
	}
	return err
}

// sealOwner is who signed the head, pinned if the policy has the key and it
// signed.
func sealOwner(s *benchmark.Sealed, policyPath string) (*verify.Party, error) {
	said := s.Unverified().Unauthenticated()
	party := &verify.Party{Name: said.Issuer, Fingerprint: receipt.Fingerprint(said.Kid)}
	if policyPath == "" {
		return party, nil
	}
	policy, err := readPolicy(policyPath)
	if err != nil {
		return nil, err
	}
	for _, key := range policy.Owners {
		if key.Thumbprint() != said.Kid {
			continue
		}
		if _, err := s.Unverified().Verify(key); err != nil {
			return nil, &cli.Error{Code: cli.ExitInvalid, Err: err}
		}
		party.Pinned = true
		return party, nil
	}
	return nil, cli.Failf(cli.ExitInvalid, "if this owner is to be trusted, ask for its policy line over another channel",
		"the seal was signed by %s, which calls itself %q: want one of the %d owner keys of the policy", party.Fingerprint, party.Name, len(policy.Owners))
}

func checkedText(w io.Writer, file string, c *checkedBenchmark, differences []benchmark.Difference) error {
	var b strings.Builder
	switch c.Verdict {
	case verify.Invalid:
		fmt.Fprintf(&b, "%s  %s is not what the data gives\n", c.Verdict, file)
	case verify.Undecided:
		fmt.Fprintf(&b, "%s  consistent; signer unknown\n", c.Verdict)
	default:
		fmt.Fprintf(&b, "%s  %s is what the data gives, byte for byte\n", c.Verdict, file)
	}
	if c.Owner.Pinned {
		fmt.Fprintf(&b, " sealed by  %s   (pinned owner)\n", c.Owner.Name)
	} else {
		fmt.Fprintf(&b, " sealed by  unknown, calls itself %q   (not pinned, key %s)\n", c.Owner.Name, c.Owner.Fingerprint)
	}
	fmt.Fprintf(&b, " rebuilt    %d of %s equal\n", c.Equal, counted(int(c.Sealed), "set"))
	for _, d := range differences {
		fmt.Fprintf(&b, "   %s\n", d)
	}
	if n := len(c.Left); n > 0 {
		fmt.Fprintf(&b, " left out   %s of the data: %s\n", counted(n, "task"), strings.Join(c.Left[:min(n, 10)], ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}
