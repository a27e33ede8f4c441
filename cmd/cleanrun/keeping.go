package main

import (
	"errors"
	"os"
	"slices"
	"strings"

	"filippo.io/age"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/vault"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// keepFlags say how a recording is kept.
type keepFlags struct {
	secrets, patterns     []string
	encrypt               []string
	recipients, storeMost string
}

func (k *keepFlags) flags(f *cli.Flags) {
	f.Strings(&k.secrets, "secret", "pass the variable of this `name`, and replace its value before anything is stored")
	f.Strings(&k.patterns, "secret-pattern", "replace what matches this `regexp` too; none keeps even the shapes of well-known keys")
	f.Strings(&k.encrypt, "encrypt", "encrypt the recording to this age `recipient`")
	f.String(&k.recipients, "recipients", "`file` with age recipients to encrypt the recording to")
	f.String(&k.storeMost, "store-max", "store at most so many `bytes` (K, M, G) of content; beyond, the run is INCONCLUSIVE")
}

// noPatterns is the word that takes the place of a pattern. No pattern has it: a
// match would be too short.
const noPatterns = "none"

// apply puts the flags into c. env is the environment that the caller has.
func (k *keepFlags) apply(c *sandbox.Config, env []string) error {
	for _, name := range k.secrets {
		i := slices.IndexFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") })
		if i < 0 {
			return cli.Failf(cli.ExitRunner, "set it, or leave out -secret "+name, "-secret %s: there is no such variable", name)
		}
		c.Secrets = append(c.Secrets, sandbox.Secret{Name: name, Value: []byte(env[i][len(name)+1:])})
	}
	c.RemoveKeys = true
	if slices.Contains(k.patterns, noPatterns) {
		if len(k.patterns) > 1 {
			return cli.Failf(cli.ExitRunner, "", "-secret-pattern %s with another pattern means nothing", noPatterns)
		}
		c.RemoveKeys = false
	} else {
		c.RemovePatterns = k.patterns
	}
	c.Recipients = k.encrypt
	if k.recipients != "" {
		b, err := readFile(k.recipients, vault.MaxKeyFile)
		if err != nil {
			return err
		}
		c.Recipients = append(c.Recipients, vault.RecipientLines(b)...)
	}
	if _, _, err := vault.Recipients(c.Recipients); err != nil && (len(c.Recipients) > 0 || k.recipients != "") {
		return cli.Failf(cli.ExitRunner, "age-keygen makes an identity and prints its recipient", "%w", err)
	}
	if k.storeMost != "" {
		n, err := parseSize(k.storeMost)
		if err != nil {
			return cli.Failf(cli.ExitRunner, "", "-store-max: %w", err)
		}
		c.StoreMax = n
	}
	return nil
}

// readIdentities reads the identity file that -identity names, "" for none.
func readIdentities(path string) ([]age.Identity, error) {
	if path == "" {
		return nil, nil
	}
	b, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	ids, err := vault.Identities(strings.NewReader(string(b)))
	if err != nil {
		return nil, cli.Failf(cli.ExitUsage, "", "%s: %w", path, err)
	}
	return ids, nil
}

// openRun opens a run folder and its keys, with the identity file that -identity
// names.
func openRun(dir, identity string) (*os.Root, vault.Folder, error) {
	ids, err := readIdentities(identity)
	if err != nil {
		return nil, vault.Folder{}, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, vault.Folder{}, err
	}
	keys, err := vault.OpenFolder(root, ids)
	var wrong *vault.WrongIdentityError
	if errors.As(err, &wrong) {
		if identity == "" {
			err = cli.Failf(cli.ExitUsage, wrong.Hint(), "%s: the recording is encrypted; %w", dir, err)
		} else {
			err = cli.Failf(cli.ExitUsage, wrong.Hint(), "%s: identity %s: %w", dir, identity, err)
		}
	} else if err == nil && keys == nil && identity != "" {
		err = cli.Failf(cli.ExitUsage, "leave out -identity", "%s: the recording is not encrypted, and -identity means nothing", dir)
	}
	if err != nil {
		root.Close()
		return nil, vault.Folder{}, err
	}
	return root, vault.Folder{Root: root, Keys: keys}, nil
}

const identityUsage = "identity `file` (age) that opens an encrypted recording"
