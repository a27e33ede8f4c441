package keys_test

import (
	"encoding/hex"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

func TestMLDSA44(t *testing.T) {
	path := filepath.Join(t.TempDir(), "w.key")
	var drawn []byte
	line, err := keys.GenerateMLDSA44(path, func(seed []byte) (string, error) { drawn = seed; return "the line", nil })
	if err != nil || line != "the line" {
		t.Fatal(line, err)
	}
	seed, public, err := keys.LoadMLDSA44(path)
	if err != nil || string(seed) != string(drawn) || public != "the line" {
		t.Errorf("got %x, %q, %v, want %x", seed, public, err, drawn)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	// The example of RFC 9881, appendix C.1.1, begins so, before its seed.
	if got := hex.EncodeToString(block.Bytes[:22]); got != "3034020100300b060960864801650304031104228020" {
		t.Errorf("got PKCS#8 %s and the seed", got)
	}
	if _, err := keys.GenerateMLDSA44(path, func([]byte) (string, error) { return "", nil }); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second key: got %v, want ErrExist", err)
	}
	if _, err := keys.Load(path); err == nil || !strings.Contains(err.Error(), "PKCS#8") {
		t.Errorf("as a signing key: got %v, want a refusal", err)
	}
	other := filepath.Join(t.TempDir(), "x.key")
	if _, err := keys.Generate(other, "x", receipt.Ed25519); err != nil {
		t.Fatal(err)
	}
	if _, _, err := keys.LoadMLDSA44(other); !errors.Is(err, keys.ErrNotMLDSA) {
		t.Errorf("an Ed25519 key: got %v, want ErrNotMLDSA", err)
	}
	if err := os.WriteFile(path, append(text, '\n'), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := keys.LoadMLDSA44(path); !errors.Is(err, keys.ErrNotMLDSA) {
		t.Errorf("text behind the key: got %v, want ErrNotMLDSA", err)
	}
}
