package main

import (
	"crypto/rand"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

var keygenFlags struct {
	audit                bool
	role, name, alg, out string
}

var keygenCommand = &cli.Command{
	Name:  "keygen",
	Short: "make an audit key, or a signing key for an owner or a runner",
	Long: `With -audit: draws the 32-byte audit key from which all task keys of an owner are derived. Keep it: without it no run of
your tasks can be attested.

With -role: makes a signing key. FILE is the private key (PKCS#8 PEM, mode 0600), FILE.pub its public line. Prints the line that pins
the key in a policy file.

An existing file is never overwritten.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &keygenFlags
		f.Bool(&v.audit, "audit", "make an audit key")
		f.String(&v.role, "role", "`role` of a signing key: owner or runner")
		f.String(&v.name, "name", "`name` of the signer, as it will stand in policies and receipts")
		f.String(&v.alg, "alg", "`algorithm` of a signing key: ed25519 (the default) or p256")
		f.Required(&v.out, "o", "`file` to write")
	},
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		v := keygenFlags
		if v.audit {
			if v.role != "" || v.name != "" || v.alg != "" {
				return cli.Failf(cli.ExitUsage, "", "-audit takes only -o: an audit key has no role, name or algorithm")
			}
			if err := newAuditKey(v.out); err != nil {
				return err
			}
			if e.JSON {
				return e.PrintJSON(struct {
					File string `json:"file"`
				}{v.out})
			}
			return nil
		}
		if v.role == "" || v.name == "" {
			return cli.Failf(cli.ExitUsage, "cleanrun keygen -role runner -name NAME -o FILE, or cleanrun keygen -audit -o FILE", "neither -audit nor -role and -name")
		}
		line, err := newSigningKey(v.out, v.role, v.name, v.alg)
		if err != nil {
			return err
		}
		if e.JSON {
			return e.PrintJSON(struct {
				File   string `json:"file"`
				Policy string `json:"policy"`
			}{v.out, line})
		}
		fmt.Fprintln(e.Stdout, line)
		return nil
	},
}

func newAuditKey(path string) error {
	secret := make([]byte, contraband.KeySize)
	rand.Read(secret)
	key, err := contraband.NewAuditKey(secret)
	if err != nil {
		return err
	}
	return durable.CreateNew(path, key.Format(), 0o600)
}

// newSigningKey makes a key file and returns its policy line.
func newSigningKey(path, role, name, alg string) (string, error) {
	r, err := keys.ParseRole(role)
	if err != nil {
		return "", err
	}
	a := receipt.Ed25519
	switch alg {
	case "", "ed25519":
	case "p256":
		a = receipt.ESP256
	default:
		return "", cli.Failf(cli.ExitUsage, "", "unknown algorithm %q, want ed25519 or p256", alg)
	}
	key, err := keys.Generate(path, name, a)
	if err != nil {
		return "", err
	}
	return keys.PolicyLine(r, key), nil
}
