package keys

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"

	"github.com/sigstore/sigstore/pkg/cryptoutils"

	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

const maxFile = 16 << 10 // bytes; both files are far smaller

// PublicPath is the file beside a key file that holds its vkey.
func PublicPath(path string) string { return path + ".pub" }

// Role is what a policy trusts a key for.
type Role string

const (
	Owner   Role = "owner"   // seals the ground truth
	Runner  Role = "runner"  // signs receipts
	Log     Role = "log"     // signs a transparency log's checkpoints
	Witness Role = "witness" // cosigns checkpoints; its policy line is not that of PolicyLine
)

// PolicyLine is the line that pins a key in a policy file, without newline.
func PolicyLine(role Role, key receipt.PublicKey) string {
	return string(role) + " " + key.String()
}

// ParseRole reads a role as it is spelled in a policy file.
func ParseRole(s string) (Role, error) {
	switch r := Role(s); r {
	case Owner, Runner, Log, Witness:
		return r, nil
	}
	return "", fmt.Errorf("got role %q, want owner, runner, log or witness", s)
}

// Generate draws a key and writes path (mode 0600) and path.pub. It never
// overwrites: if either file exists, or anything fails, none is left behind that
// was not there before.
func Generate(path, name string, alg receipt.Alg) (receipt.PublicKey, error) {
	var none receipt.PublicKey
	var priv crypto.Signer
	var err error
	switch alg {
	case receipt.Ed25519:
		_, priv, err = ed25519.GenerateKey(rand.Reader)
	case receipt.ESP256:
		priv, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		return none, fmt.Errorf("got %v, want Ed25519 or ESP256", alg)
	}
	if err != nil {
		return none, err
	}
	key, err := receipt.NewPublicKey(name, priv.Public())
	if err != nil {
		return none, err
	}
	text, err := cryptoutils.MarshalPrivateKeyToPEM(priv)
	if err != nil {
		return none, err
	}
	if err := create(path, 0o600, text); err != nil {
		return none, err
	}
	if err := create(PublicPath(path), 0o644, []byte(key.String()+"\n")); err != nil {
		return none, errors.Join(err, os.Remove(path))
	}
	return key, nil
}

// create writes a file that must not exist. O_EXCL does not follow a symbolic
// link at the end of path either.
func create(path string, mode os.FileMode, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%w: a key is never overwritten; choose another name or move the old file away", err)
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// Load reads path and path.pub. Signatures of file keys are deterministic.
func Load(path string) (receipt.Signer, error) {
	s, err := loadFile(path)
	if err != nil {
		return nil, fmt.Errorf("key %s: %w", path, err)
	}
	return s, nil
}

func loadFile(path string) (receipt.Signer, error) {
	text, err := read(path, checkPrivate)
	if err != nil {
		return nil, err
	}
	priv, err := parsePrivate(text)
	if err != nil {
		return nil, err
	}
	backend, err := load(priv)
	if err != nil {
		return nil, err
	}
	line, err := read(PublicPath(path), nil)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("%w: this file holds the key's name; write its vkey line there", err)
	}
	if err != nil {
		return nil, err
	}
	pinned, err := receipt.ParseVKey(strings.TrimSuffix(string(line), "\n"))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", PublicPath(path), err)
	}
	s, err := FromSigstore(pinned.Name(), backend)
	if err != nil {
		return nil, err
	}
	if s.Public() != pinned {
		return nil, fmt.Errorf("got a private key of %s, want that of %s in %s: the two files are not a pair",
			receipt.Fingerprint(s.Public().Thumbprint()), receipt.Fingerprint(pinned.Thumbprint()), PublicPath(path))
	}
	return s, nil
}

// read opens first and looks at what it opened, so that nobody can swap the file
// between the check and the reading.
func read(path string, check func(os.FileInfo) error) ([]byte, error) {
	f, err := regular.Given(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("got a %s, want a regular file", info.Mode().Type())
	}
	if check != nil {
		if err := check(info); err != nil {
			return nil, err
		}
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(data) > maxFile {
		err = fmt.Errorf("got more than %d bytes, want a key file", maxFile)
	}
	return data, err
}

// checkPrivate refuses a key that others can read. Windows has no such bits.
func checkPrivate(info os.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o077 != 0 && runtime.GOOS != "windows" {
		return fmt.Errorf("got mode %04o, want 0600: others may have read this key; if none has, chmod 600 it, else make a new one", mode)
	}
	return nil
}

// parsePrivate accepts one unencrypted PKCS#8 block and nothing around it.
func parsePrivate(text []byte) (crypto.PrivateKey, error) {
	block, rest := pem.Decode(text)
	if block == nil {
		return nil, errors.New("got no PEM block, want PRIVATE KEY (PKCS#8)")
	}
	encrypted := strings.HasPrefix(block.Type, "ENCRYPTED ") || block.Headers["DEK-Info"] != ""
	switch {
	case encrypted:
		return nil, errors.New("got an encrypted key, want PKCS#8 without a password; decrypt it with openssl pkcs8 -topk8 -nocrypt")
	case block.Type != "PRIVATE KEY":
		return nil, fmt.Errorf("got PEM type %q, want PRIVATE KEY (PKCS#8); convert it with openssl pkcs8 -topk8 -nocrypt", block.Type)
	case len(block.Headers) != 0:
		return nil, errors.New("got PEM headers, want none")
	case !bytes.HasPrefix(text, []byte("-----BEGIN ")) || len(bytes.TrimSpace(rest)) != 0:
		return nil, errors.New("got text around the PEM block, want one block only")
	}
	priv, err := cryptoutils.UnmarshalPEMToPrivateKey(text, nil)
	if err != nil {
		return nil, fmt.Errorf("PKCS#8: %w", err)
	}
	switch k := priv.(type) {
	case *rsa.PrivateKey:
		return nil, errors.New("got an RSA key, want Ed25519 or ECDSA P-256; make one with cleanrun keygen")
	case *ecdsa.PrivateKey:
		if k.Curve != elliptic.P256() {
			return nil, fmt.Errorf("got an ECDSA key on %s, want P-256; make one with cleanrun keygen", k.Params().Name)
		}
	}
	return priv, nil
}
