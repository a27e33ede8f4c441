package main

import (
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

var keygenFlags struct {
	audit                bool
	role, name, alg, out string
}

var keygenCommand = &cli.Command{
	Name:  "keygen",
	Short: "make an audit key, or a signing key for an owner, a runner, a log or a witness",
	Long: `With -audit: draws the 32-byte audit key from which all task keys of an owner are derived. Keep it: without it no run of
your tasks can be attested.

With -role: makes a signing key. FILE is the private key (PKCS#8 PEM, mode 0600), FILE.pub its public line. Prints the line that pins
the key in a policy file. The key of a log and of a witness is Ed25519; a witness, and a log that signs its checkpoints a second time
(log init -also), may have an ML-DSA-44 key (-alg mldsa44), which withstands quantum computers. The name of a log is its origin, like example.com/log.

An existing file is never overwritten.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &keygenFlags
		f.Bool(&v.audit, "audit", "make an audit key")
		f.String(&v.role, "role", "`role` of a signing key: owner, runner, log or witness")
		f.String(&v.name, "name", "`name` of the signer, as it will stand in policies and receipts")
		f.String(&v.alg, "alg", "`algorithm` of a signing key: ed25519 (the default), p256 (owner, runner) or mldsa44 (witness)")
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
	switch {
	case alg == "" || alg == "ed25519":
	case alg == "p256" && (r == keys.Owner || r == keys.Runner):
		a = receipt.ESP256
	case alg == "mldsa44" && r == keys.Witness:
		vkey, err := keys.GenerateMLDSA44(path, func(seed []byte) (string, error) {
			c, err := proof.NewMLDSA44Cosigner(name, seed)
			if err != nil {
				return "", err
			}
			return c.Key().String(), nil
		})
		if err != nil {
			return "", err
		}
		return witnessLine(name, vkey), nil
	default:
		return "", cli.Failf(cli.ExitUsage, "", "got algorithm %q for a key with role %s, want ed25519, p256 for an owner or a runner, mldsa44 for a witness", alg, r)
	}
	key, err := keys.Generate(path, name, a)
	if err != nil {
		return "", err
	}
	if r != keys.Witness {
		return keys.PolicyLine(r, key), nil
	}
	c, err := loadCosigner(path)
	if err != nil {
		return "", err
	}
	return witnessLine(name, c.Key().String()), nil
}

// witnessLine is the line of c2sp.org/tlog-policy for a witness: a name, which groups
// and the quorum use, and the key.
func witnessLine(name, vkey string) string { return "witness " + name + " " + vkey }

// loadCosigner loads a witness's key of either kind.
func loadCosigner(path string) (*proof.Cosigner, error) {
	seed, line, err := keys.LoadMLDSA44(path)
	if errors.Is(err, keys.ErrNotMLDSA) {
		s, err := keys.Load(path)
		if err != nil {
			return nil, err
		}
		return proof.NewEd25519Cosigner(s)
	}
	if err != nil {
		return nil, err
	}
	k, err := proof.ParseWitnessKey(line)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keys.PublicPath(path), err)
	}
	c, err := proof.NewMLDSA44Cosigner(k.Name(), seed)
	if err == nil && c.Key().String() != line {
		err = fmt.Errorf("key %s: got a private key of another public key than that in %s: the two files are not a pair", path, keys.PublicPath(path))
	}
	return c, err
}
