// Command gen writes the test vectors of testvectors/log. It imports nothing of
// this module: what it writes comes from spec/log.md and what that cites.
//
//	go run ./testvectors/log/gen testvectors/log
//
// A vector is a text file: "name: value" lines, then entries of a log in hex, an
// empty line before each. A log that was empty takes all but the last; refusal
// says what it answers to the last: "ok" or an id of spec/log.md. It admits the
// keys that the lines owner and runner name, each for its role. All keys and
// signatures are deterministic, so a second run writes the same files.
package main

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// A vector is one file.
type vector struct {
	name    string
	refusal string
	redteam string // row of the attack list, or ""
	comment string
	entries [][]byte
}

func (v vector) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "refusal: %s\n", v.refusal)
	if v.redteam != "" {
		fmt.Fprintf(&b, "redteam: %s\n", v.redteam)
	}
	fmt.Fprintf(&b, "comment: %s\n", v.comment)
	for _, k := range []*key{owner, owner2} {
		fmt.Fprintf(&b, "owner: %s\n", k.vkey())
	}
	for _, k := range []*key{runner, runner2} {
		fmt.Fprintf(&b, "runner: %s\n", k.vkey())
	}
	for _, e := range v.entries {
		b.WriteString("\n")
		for len(e) > 0 {
			n := min(len(e), 40)
			fmt.Fprintf(&b, "%s\n", hex.EncodeToString(e[:n]))
			e = e[n:]
		}
	}
	return b.String()
}

func write(dir string) error {
	seen := make(map[string]bool)
	for _, v := range all() {
		if seen[v.name] {
			return fmt.Errorf("two vectors named %s", v.name)
		}
		seen[v.name] = true
		if err := os.WriteFile(filepath.Join(dir, v.name+".txt"), []byte(v.text()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "gen: error: got no folder\ngen: hint: go run ./testvectors/log/gen testvectors/log")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "gen: error:", err)
		os.Exit(2)
	}
}

// A key is Ed25519, made from its name.
type key struct {
	name   string
	secret ed25519.PrivateKey
}

func newKey(name string) *key {
	seed := sha256.Sum256([]byte("cleanrun test vector key: " + name))
	return &key{name, ed25519.NewKeyFromSeed(seed[:])}
}

var (
	owner    = newKey("bench.example/owner")
	owner2   = newKey("other.example/owner")
	runner   = newKey("evals.example/runner")
	runner2  = newKey("evals.example/second-runner")
	attacker = newKey("attacker.example/key")
)

func (k *key) public() []byte { return k.secret.Public().(ed25519.PublicKey) }

// vkey is the verifier key of c2sp.org/signed-note.
func (k *key) vkey() string {
	typed := cat([]byte{1}, k.public())
	id := sha256.Sum256(cat([]byte(k.name+"\n"), typed))
	return fmt.Sprintf("%s+%x+%s", k.name, id[:4], base64.StdEncoding.EncodeToString(typed))
}

// kid is the COSE key thumbprint of RFC 9679.
func (k *key) kid() []byte {
	h := sha256.Sum256(pairs(num(1), num(1), num(-1), num(6), num(-2), bstr(k.public())))
	return h[:]
}
