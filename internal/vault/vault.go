// Package vault encrypts the private files of a run folder to age recipients
// (age-encryption.org/v1). spec/recorder.md, "Encrypted run folders", is the
// format.
//
// Limits first. What is encrypted is content and detail; names and sizes of files
// show how many contents there are and how large each is. Nothing is signed:
// who can write into the folder can replace a file, and a reader notices by the
// journal's commitments, not by the encryption. The memory of the recorder holds
// the key while a run goes on.
//
// Each run draws one X25519 identity of its own. KeyFile holds it, encrypted to
// the recipients. Contents and the journal's secret are age files to that
// identity, so that an age program can read them too:
//
//	age -d -i me.txt RUNDIR/key.age > run.txt
//	age -d -i run.txt RUNDIR/secret.age
package vault

import (
	"bytes"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// Names of files in an encrypted run folder.
const (
	KeyFile        = "key.age"
	SecretFile     = "secret.age"
	RecipientsFile = "recipients" // whom KeyFile is encrypted to, one a line, in clear
)

// MaxKeyFile bounds what Open reads, in bytes.
const MaxKeyFile = 1 << 20

// Keys encrypt and decrypt the files of one run.
type Keys struct {
	identity *age.X25519Identity
	name     []byte // key of Name
	record   []byte // key of Records
}

// New draws the keys of a run, and returns the key file's content for them.
func New(recipients []age.Recipient) (*Keys, []byte, error) {
	if len(recipients) == 0 {
		return nil, nil, errors.New("encrypt: got no recipient, want at least one")
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return nil, nil, fmt.Errorf("encrypt: %w", err)
	}
	var b bytes.Buffer
	w, err := age.Encrypt(&b, recipients...)
	if err == nil {
		_, err = io.WriteString(w, id.String()+"\n")
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("encrypt: %w", err)
	}
	k, err := derive(id)
	return k, b.Bytes(), err
}

// ForStage is the secret from which Parse makes the same Keys: for the next stage
// of the recorder, which takes it in memory only.
func (k *Keys) ForStage() string { return k.identity.String() }

// Parse makes Keys of what ForStage returned.
func Parse(s string) (*Keys, error) {
	id, err := age.ParseX25519Identity(strings.TrimSuffix(s, "\n"))
	if err != nil {
		return nil, errors.New("key of the run: malformed")
	}
	return derive(id)
}

// A WrongIdentityError says that none of the identities opens a run folder.
type WrongIdentityError struct {
	Recipients string // whom it is encrypted to, as the folder says: unauthenticated
}

func (e *WrongIdentityError) Error() string {
	text := "none of the identities can open it"
	if e.Recipients != "" {
		text += "; it is encrypted to " + e.Recipients
	}
	return text
}

// Hint says what to do next.
func (e *WrongIdentityError) Hint() string {
	return "give with -identity the file that holds the secret key (AGE-SECRET-KEY-...) of one of these recipients"
}

// Open decrypts a key file. recipients is the text of RecipientsFile, for the
// error.
func Open(keyFile []byte, recipients string, ids []age.Identity) (*Keys, error) {
	r, err := age.Decrypt(bytes.NewReader(keyFile), ids...)
	var none *age.NoIdentityMatchError
	if errors.As(err, &none) || len(ids) == 0 {
		return nil, &WrongIdentityError{strings.Join(strings.Fields(recipients), " ")}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KeyFile, err)
	}
	b, err := io.ReadAll(io.LimitReader(r, 1<<10))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KeyFile, err)
	}
	k, err := Parse(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", KeyFile, err)
	}
	return k, nil
}

func derive(id *age.X25519Identity) (*Keys, error) {
	prk, err := hkdf.Extract(sha256.New, []byte(id.String()), []byte("cleanrun/vault/v1"))
	if err != nil {
		return nil, err
	}
	k := &Keys{identity: id}
	if k.name, err = hkdf.Expand(sha256.New, prk, "object-name", 32); err != nil {
		return nil, err
	}
	k.record, err = hkdf.Expand(sha256.New, prk, "detail-record", 32)
	return k, err
}

// Name is the name of a content: a plain digest would let anybody who sees the
// folder test guesses.
func (k *Keys) Name(sum [32]byte) [32]byte {
	h := hmac.New(sha256.New, k.name)
	h.Write(sum[:])
	return [32]byte(h.Sum(nil))
}

// Encrypt returns a writer for one age file. Its Close ends the file, and leaves
// w open.
func (k *Keys) Encrypt(w io.Writer) (io.WriteCloser, error) {
	return age.Encrypt(w, k.identity.Recipient())
}

// Decrypt reads one age file.
func (k *Keys) Decrypt(r io.Reader) (io.Reader, error) { return age.Decrypt(r, k.identity) }

// DecryptAt reads one age file of size bytes at any offset. It returns the size of
// the content too.
func (k *Keys) DecryptAt(r io.ReaderAt, size int64) (io.ReaderAt, int64, error) {
	return age.DecryptReaderAt(r, size, k.identity)
}

// EncryptBytes is a whole age file.
func (k *Keys) EncryptBytes(b []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := k.Encrypt(&out)
	if err == nil {
		_, err = w.Write(b)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// DecryptBytes reads a whole age file whose content has at most most bytes.
func (k *Keys) DecryptBytes(file []byte, most int64) ([]byte, error) {
	r, err := k.Decrypt(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("want at most %d bytes", most)
	}
	return b, err
}
