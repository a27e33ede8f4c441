package proof_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

func TestCheckpoint(t *testing.T) {
	log := newSigner(t, logName, "log")
	c := proof.Checkpoint{Origin: logName, Size: 11, Root: mth(leaves(11))}
	note := signNote(t, log, c.Size, c.Root)
	u, err := proof.ParseCheckpoint(note)
	if err != nil {
		t.Fatal(err)
	}
	v, err := u.Verify(log.Public())
	if err != nil {
		t.Fatal(err)
	}
	if u.Checkpoint() != c || v.Checkpoint() != c || v.Log() != log.Public() || string(v.Note()) != string(note) || string(u.Note()) != string(note) {
		t.Errorf("got %+v by %s in\n%s\nwant %+v in\n%s", v.Checkpoint(), v.Log(), v.Note(), c, note)
	}
	if !strings.HasPrefix(string(note), c.Text()+"\n\u2014 "+logName+" ") {
		t.Errorf("got the note\n%s", note)
	}
	// The empty tree, the largest one, and extension lines.
	verify(t, signNote(t, log, 0, mth(nil)), log.Public())
	verify(t, signNote(t, log, 1<<64-1, c.Root), log.Public())
	text := c.Text() + "an extension\nanother one\n"
	sig, _ := log.Sign([]byte(text))
	if got := verify(t, []byte(text+"\n"+signature(log.Public(), sig)), log.Public()); got.Checkpoint() != c {
		t.Errorf("with extension lines: got %+v, want %+v", got.Checkpoint(), c)
	}
}

// signature is a line of a note.
func signature(k receipt.PublicKey, sig []byte) string {
	id := k.ID()
	b := append([]byte{byte(id >> 24), byte(id >> 16), byte(id >> 8), byte(id)}, sig...)
	return fmt.Sprintf("\u2014 %s %s\n", k.Name(), base64.StdEncoding.EncodeToString(b))
}

// Each case is a good note with one fault.
func TestParseCheckpointRefuses(t *testing.T) {
	log := newSigner(t, logName, "log")
	root := mth(leaves(11))
	good := string(signNote(t, log, 11, root))
	text, line, _ := strings.Cut(good, "\n\n")
	root64 := base64.StdEncoding.EncodeToString(root[:])
	swap := func(old, new string) string {
		if strings.Count(good, old) != 1 {
			t.Fatalf("%q is %d times in the note", old, strings.Count(good, old))
		}
		return strings.Replace(good, old, new, 1)
	}
	many := good
	for i := range proof.MaxSignatures {
		many += signature(newSigner(t, fmt.Sprintf("w%d", i), "w").Public(), make([]byte, 64))
	}
	for _, c := range []struct {
		name, note string
		stage      proof.Stage
		says       string
	}{
		{"nothing", "", proof.StageNote, "no empty line"},
		{"no signature", text + "\n\n", proof.StageNote, "no signature line"},
		{"no empty line", text + "\n" + line, proof.StageNote, "no empty line"},
		{"another empty line before the signatures", text + "\n\n\n" + line, proof.StageCheckpoint, "empty line 4"},
		{"an empty line after the signatures", good + "\n", proof.StageNote, "no signature line"},
		{"no newline at the end", strings.TrimSuffix(good, "\n"), proof.StageNote, "signature line"},
		{"text after the signatures", good + "x\n", proof.StageNote, `"x\n"`},
		{"carriage returns", strings.ReplaceAll(good, "\n", "\r\n"), proof.StageNote, "0x0d"},
		{"a tab", swap("\n11\n", "\n11\t\n"), proof.StageNote, "0x09"},
		{"NUL", swap("\n11\n", "\n11\x00\n"), proof.StageNote, "0x00"},
		{"not UTF-8", swap(text, "\xff"+text), proof.StageNote, "UTF-8"},
		{"a byte order mark before the dash", swap("\n\u2014", "\n\ufeff\u2014"), proof.StageNote, "signature line"},
		{"a hyphen for the dash", swap("\u2014 ", "- "), proof.StageNote, "signature line"},
		{"two spaces", swap("\u2014 ", "\u2014  "), proof.StageNote, "signature line"},
		{"no name", swap("\u2014 "+logName, "\u2014 "), proof.StageNote, "signature line"},
		{"a plus in the name", swap("\u2014 log", "\u2014 log+"), proof.StageNote, "signature line"},
		{"a no-break space in the name", swap("\u2014 log", "\u2014 log\u00a0"), proof.StageNote, "signature line"},
		{"loose base64", strings.TrimSuffix(good, "=\n") + "\n", proof.StageNote, "signature line"},
		{"base64 with other bits in the padding", loosen(good), proof.StageNote, "signature line"},
		{"URL base64", swap("\u2014 "+logName+" ", "\u2014 "+logName+" -_"), proof.StageNote, "signature line"},
		{"a key id alone", text + "\n\n\u2014 " + logName + " AAAAAA==\n", proof.StageNote, "signature line"},
		{"a signature twice", good + line, proof.StageNote, "two signatures"},
		{"too many signatures", many, proof.StageSize, "more than 64"},
		{"a huge note", swap(text, text+"\n"+strings.Repeat("x", proof.MaxNote)), proof.StageSize, "bytes"},
		{"two lines", swap("\n"+root64, ""), proof.StageCheckpoint, "2 lines"},
		{"an empty origin", swap(text, strings.TrimPrefix(text, logName)), proof.StageCheckpoint, "empty line 1"},
		{"an empty extension line", swap(root64+"\n", root64+"\n\nx\n"), proof.StageCheckpoint, "empty line 4"},
		{"a leading zero", swap("\n11\n", "\n011\n"), proof.StageCheckpoint, "size"},
		{"a sign", swap("\n11\n", "\n+11\n"), proof.StageCheckpoint, "size"},
		{"a space before the size", swap("\n11\n", "\n 11\n"), proof.StageCheckpoint, "size"},
		{"hex", swap("\n11\n", "\n0xb\n"), proof.StageCheckpoint, "size"},
		{"2^64", swap("\n11\n", "\n18446744073709551616\n"), proof.StageCheckpoint, "size"},
		{"a negative size", swap("\n11\n", "\n-1\n"), proof.StageCheckpoint, "size"},
		{"a short root", swap(root64, root64[:40]), proof.StageCheckpoint, "root"},
		{"a root of 33 bytes", swap(root64, base64.StdEncoding.EncodeToString(make([]byte, 33))), proof.StageCheckpoint, "root"},
		{"a root with other bits in the padding", swap(root64, spoil(root64)), proof.StageCheckpoint, "root"},
		{"a root in hex", swap(root64, fmt.Sprintf("%x", root)), proof.StageCheckpoint, "root"},
		{"the root of an entry for the empty tree", swap("\n11\n", "\n0\n"), proof.StageCheckpoint, "empty tree"},
	} {
		u, err := proof.ParseCheckpoint([]byte(c.note))
		wantError(t, c.name, err, c.stage, c.says)
		if u != nil {
			t.Errorf("%s: got a value with the error", c.name)
		}
	}
	if _, err := proof.ParseCheckpoint([]byte(good)); err != nil {
		t.Errorf("the good note: %v", err)
	}
}

// loosen sets a bit of the padding of the note's last base64, spoil that of one.
func loosen(note string) string {
	i := strings.LastIndex(note, " ") + 1
	return note[:i] + spoil(strings.TrimSuffix(note[i:], "\n")) + "\n"
}

func spoil(b64 string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	i := strings.Index(b64, "=") - 1
	return b64[:i] + string(alphabet[strings.IndexByte(alphabet, b64[i])^1]) + b64[i+1:]
}

// A checkpoint is good for the pinned key under the pinned name alone.
func TestRT77_CheckpointOfAnotherLog(t *testing.T) {
	log := newSigner(t, logName, "log")
	root := mth(leaves(11))
	good := signNote(t, log, 11, root)
	verify(t, good, log.Public()) // the control
	// The same key under another origin signs for another log.
	moved := newSigner(t, "other.example.org/log", "log")
	// A text of our origin that a stranger signed, and one that our key signed for an
	// origin which is not its name.
	stranger := newSigner(t, logName, "stranger")
	text := proof.Checkpoint{Origin: "other.example.org/log", Size: 11, Root: root}.Text()
	sig, _ := log.Sign([]byte(text))
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p256, err := receipt.NewPublicKey(logName, private.Public())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		note  []byte
		key   receipt.PublicKey
		stage proof.Stage
		says  string
	}{
		{"the key under another origin", signNote(t, moved, 11, root), log.Public(), proof.StageOrigin, `"other.example.org/log", want ` + logName},
		{"a key of another origin pinned", good, moved.Public(), proof.StageOrigin, "want other.example.org/log"},
		{"a stranger under the origin", signNote(t, stranger, 11, root), log.Public(), proof.StageUnsigned, "want one by " + logName},
		{"our line under another origin's text", []byte(text + "\n" + signature(log.Public(), sig)), log.Public(), proof.StageOrigin, "other.example.org/log"},
		{"a key of another algorithm", good, p256, proof.StageKey, "want Ed25519"},
		{"no key", good, receipt.PublicKey{}, proof.StageKey, "want Ed25519"},
	} {
		u, err := proof.ParseCheckpoint(c.note)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		v, err := u.Verify(c.key)
		wantError(t, c.name, err, c.stage, c.says)
		if v != nil {
			t.Errorf("%s: got a value with the error", c.name)
		}
	}
}

// What was signed is what counts: any change of a line of the text is found.
func TestVerifyRefusesChangedText(t *testing.T) {
	log := newSigner(t, logName, "log")
	good := string(signNote(t, log, 11, mth(leaves(11))))
	other := proof.Checkpoint{Origin: logName, Size: 11, Root: mth(leaves(12))}.Text()
	text, line, _ := strings.Cut(good, "\n\n")
	for name, note := range map[string]string{
		"size":                    strings.Replace(good, "\n11\n", "\n12\n", 1),
		"root":                    other + "\n" + line,
		"an extension line":       text + "\nmore\n\n" + line,
		"a bit of the signature":  good[:len(good)-20] + flip(good[len(good)-20]) + good[len(good)-19:],
		"a signature of 63 bytes": text + "\n\n" + signature(log.Public(), make([]byte, 63)),
	} {
		u, err := proof.ParseCheckpoint([]byte(note))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err = u.Verify(log.Public())
		wantError(t, name, err, proof.StageSignature, "does not verify")
	}
}

// flip is another character of base64.
func flip(c byte) string {
	if c == 'A' {
		return "B"
	}
	return "A"
}

type faulty struct{ signer }

func (f faulty) Sign(message []byte) ([]byte, error) {
	sig, err := f.signer.Sign(message)
	sig[5] ^= 1
	return sig, err
}

func TestSignCheckpointRefuses(t *testing.T) {
	log := newSigner(t, logName, "log")
	c := proof.Checkpoint{Origin: logName, Size: 11, Root: mth(leaves(11))}
	if _, err := proof.SignCheckpoint(log, c); err != nil {
		t.Fatal(err)
	}
	_, err := proof.SignCheckpoint(faulty{log}, c)
	wantError(t, "a faulted signature", err, proof.StageSignature, "does not verify")
	for name, origin := range map[string]string{"another origin": "other.example.org", "an origin of two lines": logName + "\n5", "no origin": ""} {
		o := c
		o.Origin = origin
		if note, err := proof.SignCheckpoint(log, o); err == nil {
			t.Errorf("%s: signed\n%s", name, note)
		}
	}
	o := c
	o.Size = 0
	_, err = proof.SignCheckpoint(log, o)
	wantError(t, "an empty tree with a root", err, proof.StageCheckpoint, "empty tree")
}

func TestAddSignatures(t *testing.T) {
	log := newSigner(t, logName, "log")
	note := signNote(t, log, 11, mth(leaves(11)))
	text, line, _ := strings.Cut(string(note), "\n\n")
	w := signature(newSigner(t, "w.example.org", "w").Public(), make([]byte, 72))
	got, err := proof.AddSignatures(note, []byte(w))
	if err != nil || string(got) != string(note)+w {
		t.Errorf("got %q, %v, want %q", got, err, string(note)+w)
	}
	for _, c := range []struct {
		name, note, lines string
		stage             proof.Stage
	}{
		{"no line", string(note), "", proof.StageNote},
		{"a line of a key that has one", string(note), line, proof.StageNote},
		{"an empty line, which would end the text anew", string(note), "\n" + w, proof.StageNote},
		{"half a line", string(note), w[:len(w)-1], proof.StageNote},
		{"no note", text, w, proof.StageNote},
		{"too much", string(note), strings.Repeat(w, 2000), proof.StageSize},
	} {
		_, err := proof.AddSignatures([]byte(c.note), []byte(c.lines))
		wantError(t, c.name, err, c.stage, "")
	}
}
