package main

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/compact"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

var fraudFlags struct{ policy, evidence, out, check string }

var fraudCommand = &cli.Command{
	Name:  "fraud",
	Args:  "compact.cleanrun",
	Short: "convict a compact bundle whose tree is false, or check such a proof",
	Long: `A compact bundle (attest -compact) leaves it to the runner's word that the tree of digests is the one of its evidence. Whoever
has the evidence compares: with -evidence, a full bundle of the same run or its evidence.cbor, the command looks for a sealed item that the
evidence has and the tree has not, or not so early, and writes a proof of at most 4 KiB. With -check it checks such a proof, which
needs neither key nor evidence. The bundle's signature is checked first, so -policy must pin its runner.

Exit codes: 0 the tree has what the evidence has, as far as sealed items go; 1 the bundle is INVALID, or convicted; 2 the files do not fit each
other, or the proof proves nothing.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &fraudFlags
		f.Required(&v.policy, "policy", "policy `file` that pins the runner")
		f.String(&v.evidence, "evidence", "full bundle or evidence.cbor `file` of the run")
		f.String(&v.out, "o", "`file` to write the proof to, with -evidence")
		f.String(&v.check, "check", "`file` with a proof, to check")
	},
	Run: func(e *cli.Env, args []string) error {
		v := fraudFlags
		path, err := oneArg(args, "the compact bundle (compact.cleanrun)")
		if err != nil {
			return err
		}
		if (v.evidence == "") == (v.check == "") {
			return cli.Failf(cli.ExitUsage, "cleanrun help fraud", "give one of -evidence and -check")
		}
		if (v.evidence == "") != (v.out == "") {
			return cli.Failf(cli.ExitUsage, "cleanrun help fraud", "give -o with -evidence, and only then")
		}
		accused, err := readAccused(path, v.policy)
		if err != nil {
			return err
		}
		proof, err := accused.proof(v.evidence, v.check)
		if err != nil {
			return err
		}
		crime := ""
		if proof != nil {
			if crime, err = proof.Convicts(accused.stated); err != nil {
				return cli.Failf(cli.ExitUsage, "the proof convicts nobody; ask who gave it", "%s: %v", v.check, err)
			}
			if v.out != "" {
				if err := writeFraud(v.out, proof); err != nil {
					return err
				}
			}
		}
		if e.JSON {
			if err := e.PrintJSON(struct {
				Convicted bool   `json:"convicted"`
				Runner    string `json:"runner"`
				Crime     string `json:"crime,omitempty"`
				File      string `json:"file,omitempty"`
			}{proof != nil, accused.runner, crime, v.out}); err != nil {
				return err
			}
		} else if proof == nil {
			fmt.Fprintf(e.Stdout, "NOT CONVICTED  %s\n the tree has what the evidence has, for all sealed items and opened controls\n", path)
		} else {
			fmt.Fprintf(e.Stdout, "CONVICTED  %s\n %s\n signed by %s\n", path, crime, accused.runner)
			if v.out != "" {
				fmt.Fprintf(e.Stdout, " next       cleanrun fraud -policy %s -check %s %s\n", v.policy, v.out, path)
			}
		}
		if proof != nil {
			return cli.Exit(1)
		}
		return nil
	},
}

// An accused is a compact bundle that verifies under a policy that pins its
// runner: its statement is the runner's word.
type accused struct {
	set     *contraband.Set
	compact *compact.Proof
	stated  *attest.Predicate
	runner  string
}

func readAccused(path, policyPath string) (*accused, error) {
	policy, err := readPolicy(policyPath)
	if err != nil {
		return nil, err
	}
	policy.FullEvidence = false // a false tree convicts whatever this reader wants
	data, err := readFile(path, maxBundle)
	if err != nil {
		return nil, err
	}
	r := verify.Verify(data, policy, time.Now())
	if c := r.FailedCheck(); c != nil {
		return nil, cli.Failf(cli.ExitInvalid, "look with cleanrun verify at the bundle", "%s: %s: %s", path, c.ID, c.Detail)
	}
	if r.Runner == nil || !r.Runner.Pinned {
		return nil, cli.Failf(cli.ExitUsage, "a proof of fraud convicts a known signer", "%s: the policy pins no runner of this bundle", path)
	}
	b, err := receipt.ParseBundle(data)
	if err != nil {
		return nil, err
	}
	if b.Proof == nil {
		return nil, cli.Failf(cli.ExitUsage, "a bundle with its evidence is checked whole by cleanrun verify", "%s: got no %s, want a compact bundle", path, receipt.MemberProof)
	}
	a := &accused{runner: r.Runner.Name}
	if a.compact, err = compact.Parse(b.Proof); err != nil {
		return nil, err
	}
	sealed, err := receipt.ParseSealed(b.Sealed)
	if err != nil {
		return nil, err
	}
	if a.set, err = contraband.ParseSet(sealed.Set()); err != nil {
		return nil, err
	}
	signed, err := receipt.ParseSign1(receipt.KindReceipt, b.Receipt)
	if err != nil {
		return nil, err
	}
	s, err := attest.ParseStatement(signed.Unauthenticated().Payload) // verified above
	if err != nil {
		return nil, err
	}
	a.stated = &s.Predicate
	return a, nil
}

// proof makes one from evidence, nil if there is nothing to convict, or reads one.
func (a *accused) proof(evidence, check string) (*compact.Fraud, error) {
	if check != "" {
		data, err := readFile(check, compact.MaxFraud)
		if err != nil {
			return nil, err
		}
		f, err := compact.ParseFraud(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", check, err)
		}
		return f, nil
	}
	pack, err := readFile(evidence, maxBundle)
	if err != nil {
		return nil, err
	}
	if b, err := receipt.ParseBundle(pack); err == nil {
		pack = b.Evidence
	} else if !errors.Is(err, receipt.ErrNotBundle) {
		return nil, fmt.Errorf("%s: %w", evidence, err)
	}
	ev, err := attest.ReadEntries(pack)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", evidence, err)
	}
	f, err := compact.Accuse(a.set, ev, a.compact, a.stated)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", evidence, err)
	}
	return f, nil
}

func writeFraud(path string, f *compact.Fraud) error {
	data, err := f.Marshal()
	if err != nil {
		return err
	}
	if err := durable.CreateNew(path, data, 0o644); err != nil {
		if errors.Is(err, os.ErrExist) {
			err = cli.Failf(cli.ExitUsage, "name a new file", "%s exists", path)
		}
		return err
	}
	return nil
}

// proveCompact makes proof.cbor.
func proveCompact(set *contraband.Set, ev *attest.Evidence) ([]byte, error) {
	p, err := compact.Prove(set, ev)
	var e *compact.Error
	switch {
	case errors.As(err, &e) && e.Rule == compact.RuleWhole:
		return nil, cli.Failf(cli.ExitUsage, "leave out -compact: a run of this task is published with its evidence", "%v", err)
	case err != nil:
		return nil, err
	}
	data, err := p.Marshal()
	if err != nil {
		err = cli.Failf(cli.ExitUsage, "leave out -compact: this run is published with its evidence", "%v", err)
	}
	return data, err
}
