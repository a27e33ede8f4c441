package keys_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/sigstore/sigstore/pkg/cryptoutils"
	"github.com/sigstore/sigstore/pkg/signature"

	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

var algs = []receipt.Alg{receipt.Ed25519, receipt.ESP256}

func generate(t *testing.T, alg receipt.Alg) (string, receipt.PublicKey) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.key")
	key, err := keys.Generate(path, "runner.example/ci", alg)
	if err != nil {
		t.Fatal(err)
	}
	return path, key
}

func TestGenerateAndLoad(t *testing.T) {
	for _, alg := range algs {
		path, key := generate(t, alg)
		if key.Alg() != alg || key.Name() != "runner.example/ci" {
			t.Errorf("%v: got %v %s", alg, key.Alg(), key.Name())
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if runtime.GOOS != "windows" && info.Mode() != 0o600 {
			t.Errorf("mode %v, want 0600", info.Mode())
		}
		line, err := os.ReadFile(keys.PublicPath(path))
		if err != nil || string(line) != key.String()+"\n" {
			t.Errorf("got %q, %v, want %s", line, err, key)
		}
		s, err := keys.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		if s.Public() != key {
			t.Errorf("loaded %s, want %s", s.Public(), key)
		}
		data, err := receipt.Sign1(receipt.KindReceipt, s, "r", []byte("{}"))
		if err != nil {
			t.Fatal(err)
		}
		u, err := receipt.ParseSign1(receipt.KindReceipt, data)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Verify(key); err != nil {
			t.Error(err)
		}
		// sigstore's own verifier accepts the signature.
		sig, err := s.Sign([]byte("message"))
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		priv, err := cryptoutils.UnmarshalPEMToPrivateKey(text, nil)
		if err != nil {
			t.Fatal(err)
		}
		v, err := signature.LoadVerifier(priv.(crypto.Signer).Public(), crypto.SHA256)
		if err != nil {
			t.Fatal(err)
		}
		if err := v.VerifySignature(bytes.NewReader(sig), strings.NewReader("message")); err != nil {
			t.Errorf("%v: sigstore refuses: %v", alg, err)
		}
	}
}

// File keys sign deterministically: two processes give one signature.
func TestRT95_FileKeysAreDeterministic(t *testing.T) {
	for _, alg := range algs {
		path, _ := generate(t, alg)
		var first []byte
		for range 3 {
			s, err := keys.Load(path)
			if err != nil {
				t.Fatal(err)
			}
			sig, err := s.Sign([]byte("message"))
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = sig
			}
			if len(sig) != receipt.SignatureSize || !bytes.Equal(sig, first) {
				t.Errorf("%v: got %x, want %x", alg, sig, first)
			}
		}
	}
}

// RFC 6979, appendix A.2.5: P-256, SHA-256, message "sample". The RFC's s is
// above n/2, so ours is n-s.
func TestRFC6979Vector(t *testing.T) {
	number := func(s string) *big.Int {
		n, ok := new(big.Int).SetString(s, 16)
		if !ok {
			t.Fatal(s)
		}
		return n
	}
	d := number("C9AFA9D845BA75166B5C215767B1D6934E50C3DB36E89B127B8A622B120F6721")
	r := number("EFD48B2AACB6A8FD1140DD9CD45E81D69D2C877B56AAF991C34D0EA84EAF3716")
	s := number("F7CB1C942D657C41D436C7A1B6E29F65F3E900DBB9AFF4064DC4AB2F843ACDA8")
	s.Sub(elliptic.P256().Params().N, s)
	priv, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), d.FillBytes(make([]byte, 32)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.key")
	writePair(t, path, "rfc6979.example", priv, 0o600)
	signer, err := keys.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	got, err := signer.Sign([]byte("sample"))
	if err != nil {
		t.Fatal(err)
	}
	want := append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	if !bytes.Equal(got, want) {
		t.Errorf("got %x, want %x", got, want)
	}
}

// writePair writes a key file and its vkey with the package's neighbours only.
func writePair(t *testing.T, path, name string, priv crypto.Signer, mode os.FileMode) {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(priv)
	if err != nil {
		t.Fatal(err)
	}
	key, err := receipt.NewPublicKey(name, priv.Public())
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, path, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), mode)
	writeFile(t, keys.PublicPath(path), []byte(key.String()+"\n"), 0o644)
}

func writeFile(t *testing.T, path string, data []byte, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, data, mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestGenerateNeverOverwrites(t *testing.T) {
	path, key := generate(t, receipt.Ed25519)
	before := readFile(t, path)
	if _, err := keys.Generate(path, "b", receipt.Ed25519); !errors.Is(err, os.ErrExist) {
		t.Errorf("existing key: got %v", err)
	}
	if !bytes.Equal(readFile(t, path), before) || string(readFile(t, keys.PublicPath(path))) != key.String()+"\n" {
		t.Error("a file changed")
	}

	// Only the .pub is there: no private key is left behind.
	other := filepath.Join(t.TempDir(), "y.key")
	writeFile(t, keys.PublicPath(other), []byte("x"), 0o644)
	if _, err := keys.Generate(other, "b", receipt.Ed25519); !errors.Is(err, os.ErrExist) {
		t.Errorf("existing .pub: got %v", err)
	}
	if _, err := os.Stat(other); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a private key was left behind: %v", err)
	}

	// A dangling symbolic link is not followed.
	link := filepath.Join(t.TempDir(), "z.key")
	target := filepath.Join(t.TempDir(), "target")
	if err := os.Symlink(target, link); err != nil {
		t.Skip("no symbolic links here: ", err)
	}
	if _, err := keys.Generate(link, "b", receipt.Ed25519); err == nil {
		t.Error("wrote through a link")
	}
	if _, err := os.Stat(target); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link's target was made: %v", err)
	}
	for name, alg := range map[string]receipt.Alg{"": receipt.Ed25519, "a b": receipt.Ed25519, "a+b": receipt.ESP256, "a": 0} {
		path := filepath.Join(t.TempDir(), "k")
		if _, err := keys.Generate(path, name, alg); err == nil {
			t.Errorf("name %q, %v: accepted", name, alg)
		}
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("name %q: a file was left behind", name)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p384, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p256, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	weak, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8 := func(priv any) []byte {
		der, err := x509.MarshalPKCS8PrivateKey(priv)
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	}
	sec1, err := x509.MarshalECPrivateKey(p256)
	if err != nil {
		t.Fatal(err)
	}
	block := func(typ string, der []byte) []byte { return pem.EncodeToMemory(&pem.Block{Type: typ, Bytes: der}) }
	pub, err := receipt.NewPublicKey("a", ed.Public())
	if err != nil {
		t.Fatal(err)
	}
	headed := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Headers: map[string]string{"Name": "a"}, Bytes: []byte{0}})
	legacy := pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: sec1})

	for name, c := range map[string]struct {
		key  []byte
		pub  string
		want string
	}{
		"positive control":   {pkcs8(ed), pub.String() + "\n", ""},
		"pub sans newline":   {pkcs8(ed), pub.String(), ""},
		"RSA":                {pkcs8(weak), pub.String(), "RSA"},
		"P-384":              {pkcs8(p384), pub.String(), "P-384"},
		"encrypted":          {block("ENCRYPTED PRIVATE KEY", []byte{0x30, 0}), pub.String(), "encrypted"},
		"encrypted, legacy":  {legacy, pub.String(), "encrypted"},
		"encrypted, cosign":  {block("ENCRYPTED SIGSTORE PRIVATE KEY", []byte{0x30, 0}), pub.String(), "encrypted"},
		"SEC 1":              {block("EC PRIVATE KEY", sec1), pub.String(), "openssl pkcs8"},
		"PKCS#1":             {block("RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(weak)), pub.String(), "openssl pkcs8"},
		"public key":         {block("PUBLIC KEY", []byte{0x30, 0}), pub.String(), "PUBLIC KEY"},
		"PEM headers":        {headed, pub.String(), "headers"},
		"no PEM":             {[]byte("secret"), pub.String(), "no PEM"},
		"empty":              {nil, pub.String(), "no PEM"},
		"two keys":           {append(pkcs8(ed), pkcs8(ed)...), pub.String(), "one block"},
		"text before":        {append([]byte("hi\n"), pkcs8(ed)...), pub.String(), "one block"},
		"broken DER":         {block("PRIVATE KEY", []byte{0x30, 1}), pub.String(), "PKCS#8"},
		"too long":           {append(pkcs8(ed), bytes.Repeat([]byte("\n"), 20<<10)...), pub.String(), "more than"},
		"pub of another key": {pkcs8(p256), pub.String(), "not a pair"},
		"pub empty":          {pkcs8(ed), "", "vkey"},
		"pub two lines":      {pkcs8(ed), pub.String() + "\n" + pub.String() + "\n", "vkey"},
		"pub CR LF":          {pkcs8(ed), pub.String() + "\r\n", "vkey"},
	} {
		path := filepath.Join(t.TempDir(), "x.key")
		writeFile(t, path, c.key, 0o600)
		writeFile(t, keys.PublicPath(path), []byte(c.pub), 0o644)
		s, err := keys.Load(path)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.want != "" && (err == nil || s != nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %v, want %q in it", name, err, c.want)
		case err != nil && !strings.Contains(err.Error(), path):
			t.Errorf("%s: the error names no file: %v", name, err)
		}
	}

	path := filepath.Join(t.TempDir(), "x.key")
	writeFile(t, path, pkcs8(ed), 0o600)
	if _, err := keys.Load(path); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "name") {
		t.Errorf("no .pub: got %v", err)
	}
	if _, err := keys.Load(t.TempDir()); err == nil {
		t.Error("a folder was loaded")
	}
}

func TestLoadRefusesReadableByOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no mode bits")
	}
	path, _ := generate(t, receipt.Ed25519)
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o640: false, 0o604: false, 0o620: false, 0o644: false, 0o610: false} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Load(path); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), "chmod 600") {
			t.Errorf("mode %04o: got %v", mode, err)
		}
	}
}

func TestPolicyLine(t *testing.T) {
	_, key := generate(t, receipt.ESP256)
	if got, want := keys.PolicyLine(keys.Owner, key), "owner "+key.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for s, want := range map[string]bool{"owner": true, "runner": true, "Owner": false, "": false, "judge": false} {
		r, err := keys.ParseRole(s)
		if (err == nil) != want || want && string(r) != s {
			t.Errorf("%q: got %q, %v", s, r, err)
		}
	}
}
