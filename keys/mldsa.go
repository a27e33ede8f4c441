package keys

import (
	"bytes"
	"crypto/rand"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"strings"
)

// MLDSASeedSize is the length of the seed of an ML-DSA private key.
const MLDSASeedSize = 32

// pkcs8MLDSA44 is a PKCS#8 private key of ML-DSA-44 up to its seed (RFC 9881, section
// 6): version 0, id-ml-dsa-44 without parameters, and the seed alone as [0].
var pkcs8MLDSA44 = func() []byte {
	inner := append([]byte{0x80, MLDSASeedSize}, make([]byte, MLDSASeedSize)...)
	der, err := asn1.Marshal(struct {
		Version   int
		Algorithm struct{ OID asn1.ObjectIdentifier }
		Key       []byte
	}{0, struct{ OID asn1.ObjectIdentifier }{asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 3, 17}}, inner})
	if err != nil {
		panic(err) // a constant
	}
	return der[:len(der)-MLDSASeedSize]
}()

// ErrNotMLDSA is wrapped by LoadMLDSA44's error for a key file of another kind.
var ErrNotMLDSA = errors.New("not an ML-DSA-44 key")

// GenerateMLDSA44 draws an ML-DSA-44 key, which cosigns checkpoints and nothing
// else, and writes path (PKCS#8 PEM with the seed, mode 0600) and path.pub, which vkey
// gives from the seed. It never overwrites, as Generate.
func GenerateMLDSA44(path string, vkey func(seed []byte) (string, error)) (line string, err error) {
	seed := make([]byte, MLDSASeedSize)
	rand.Read(seed)
	if line, err = vkey(seed); err != nil {
		return "", err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: append(bytes.Clone(pkcs8MLDSA44), seed...)})
	if err := create(path, 0o600, text); err != nil {
		return "", err
	}
	if err := create(PublicPath(path), 0o644, []byte(line+"\n")); err != nil {
		return "", errors.Join(err, os.Remove(path))
	}
	return line, nil
}

// LoadMLDSA44 reads path and path.pub: the seed, and the line that the public file
// holds, which the caller compares with the seed's.
func LoadMLDSA44(path string) (seed []byte, line string, err error) {
	text, err := read(path, checkPrivate)
	if err != nil {
		return nil, "", fmt.Errorf("key %s: %w", path, err)
	}
	block, rest := pem.Decode(text)
	if block == nil || block.Type != "PRIVATE KEY" || len(block.Headers) != 0 || len(rest) != 0 || !bytes.HasPrefix(text, []byte("-----BEGIN ")) ||
		len(block.Bytes) != len(pkcs8MLDSA44)+MLDSASeedSize || !bytes.HasPrefix(block.Bytes, pkcs8MLDSA44) {
		return nil, "", fmt.Errorf("key %s: %w", path, ErrNotMLDSA)
	}
	public, err := read(PublicPath(path), nil)
	if err != nil {
		return nil, "", fmt.Errorf("key %s: %w", path, err)
	}
	return block.Bytes[len(pkcs8MLDSA44):], strings.TrimSuffix(string(public), "\n"), nil
}
