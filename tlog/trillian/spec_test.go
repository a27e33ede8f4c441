package trillian

import (
	"crypto/ed25519"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// The examples of spec/log-folders.md are what is written and read.
func TestSpecPage(t *testing.T) {
	text, err := os.ReadFile("../../spec/log-folders.md")
	if err != nil {
		t.Fatal(err)
	}
	s := seedSigner{ed25519.NewKeyFromSeed(make([]byte, 32))}
	f := &folder{dir: t.TempDir(), key: s, now: time.Now}
	tree := ranges.NewEmptyRange(0)
	for _, e := range []string{"one", "two", "three"} {
		if err := tree.Append(rfc6962.DefaultHasher.HashLeaf([]byte(e)), nil); err != nil {
			t.Fatal(err)
		}
	}
	state, err := f.sign(tree)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{signedName: string(state.format()), configName: string(config{"127.0.0.1:8090", 3421709123}.format())} {
		indented := strings.ReplaceAll("    "+strings.TrimSuffix(strings.ReplaceAll(want, "\n", "\n    "), "    "), "    \n", "\n")
		if !strings.Contains(string(text), "\n\n"+indented+"\n") {
			t.Errorf("%s: the page lacks\n%s", name, indented)
		}
	}
}

type seedSigner struct{ key ed25519.PrivateKey }

func (s seedSigner) Public() receipt.PublicKey {
	k, err := receipt.NewPublicKey("log.example/2026", s.key.Public())
	if err != nil {
		panic(err)
	}
	return k
}

func (s seedSigner) Sign(m []byte) ([]byte, error) { return ed25519.Sign(s.key, m), nil }
