package receipt_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/in-toto/in-toto-golang/in_toto"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	"github.com/sigstore/sigstore/pkg/signature"
	"github.com/veraison/go-cose"
	"golang.org/x/mod/sumdb/note"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

const testStatement = `{"_type":"https://in-toto.io/Statement/v1","predicate":{},"predicateType":"https://cleanrun.dev/attestation/clean-run/v1","subject":[]}`

// stdVerifier is a go-cose verifier written without our verification: it checks
// that the Sig_structure of both sides is one.
type stdVerifier struct{ s *testSigner }

func (v stdVerifier) Algorithm() cose.Algorithm { return cose.Algorithm(v.s.key.Alg()) }
func (v stdVerifier) Verify(content, sig []byte) error {
	if pub, ok := v.s.priv.Public().(ed25519.PublicKey); ok {
		if !ed25519.Verify(pub, content, sig) {
			return cose.ErrVerification
		}
		return nil
	}
	es, err := cose.NewVerifier(cose.AlgorithmES256, v.s.priv.Public())
	if err != nil {
		return err
	}
	return es.Verify(content, sig)
}

func TestGoCOSEVerifiesOurSign1(t *testing.T) {
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		data := must(receipt.Sign1(receipt.KindReceipt, s, "run", []byte(testStatement)))(t)
		var m cose.Sign1Message
		if err := m.UnmarshalCBOR(data); err != nil {
			t.Fatal(err)
		}
		if err := m.Verify(nil, stdVerifier{s}); err != nil {
			t.Error(err)
		}
		if err := m.Verify([]byte{1}, stdVerifier{s}); err == nil {
			t.Error("verified with external data that was not signed")
		}
		kid := s.key.Thumbprint()
		if got, _ := m.Headers.Protected[cose.HeaderLabelKeyID].([]byte); !bytes.Equal(got, kid[:]) {
			t.Errorf("kid: got %x, want %x", got, kid)
		}
	})
}

// The thumbprint is that of the key as go-cose encodes it: RFC 9679 keeps the
// required parameters only.
func TestThumbprintIsOfCOSEKey(t *testing.T) {
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		k := must(cose.NewKeyFromPublic(s.priv.Public()))(t)
		k.Algorithm = 0
		b := must(k.MarshalCBOR())(t)
		if got, want := s.key.Thumbprint(), sum(b); got != want {
			t.Errorf("got %x, want %x of %x", got, want, b)
		}
	})
}

// go-cose reads the COSE_Key that we hand out.
func TestCOSEKey(t *testing.T) {
	var set []receipt.PublicKey
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		data := receipt.COSEKey(s.key)
		set = append(set, s.key)
		var parts map[int64]any
		if err := cbor.Unmarshal(data, &parts); err != nil {
			t.Fatal(err)
		}
		if parts[3] != int64(s.key.Alg()) {
			t.Errorf("got algorithm %v", parts[3])
		}
		delete(parts, 3) // go-cose does not know the new numbers
		var k cose.Key
		if err := k.UnmarshalCBOR(must(cbor.Marshal(parts))(t)); err != nil {
			t.Fatal(err)
		}
		if kid := s.key.Thumbprint(); !bytes.Equal(k.ID, kid[:]) {
			t.Errorf("got kid %x", k.ID)
		}
		pub := must(k.PublicKey())(t)
		if got := must(receipt.NewPublicKey(s.key.Name(), pub))(t); got != s.key {
			t.Errorf("got %v, want %v", got, s.key)
		}
	})
	var raw []cbor.RawMessage
	if err := cbor.Unmarshal(receipt.COSEKeySet(append(set, receipt.PublicKey{})), &raw); err != nil || len(raw) != 2 {
		t.Fatalf("got %d keys, %v", len(raw), err)
	}
	for i := range raw {
		if !bytes.Equal(raw[i], receipt.COSEKey(set[i])) {
			t.Errorf("key %d differs in the set", i)
		}
	}
	if receipt.COSEKey(receipt.PublicKey{}) != nil || !bytes.Equal(receipt.COSEKeySet(nil), []byte{0x80}) {
		t.Error("the zero key is a key")
	}
}

// inTotoKey is the signer's public key, under our key id.
func inTotoKey(t *testing.T, s *testSigner) in_toto.Key {
	t.Helper()
	der := must(x509.MarshalPKIXPublicKey(s.priv.Public()))(t)
	var k in_toto.Key
	if err := k.LoadKeyReaderDefaults(bytes.NewReader(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))); err != nil {
		t.Fatal(err)
	}
	kid := s.key.Thumbprint()
	k.KeyID = hex.EncodeToString(kid[:])
	return k
}

// in-toto-golang loads links and layouts, so the payload here is a link.
func TestInTotoVerifiesOurDSSE(t *testing.T) {
	const link = `{"_type":"link","name":"a","command":[],"materials":{},"products":{},"byproducts":{},"environment":{}}`
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		path := filepath.Join(t.TempDir(), "a.link")
		load := func(data []byte) in_toto.Metadata {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			return must(in_toto.LoadMetadata(path))(t)
		}
		data := must(receipt.SignDSSE(s, []byte(link)))(t)
		if err := load(data).VerifySignature(inTotoKey(t, s)); err != nil {
			t.Errorf("in-toto refuses: %v", err)
		}
		other := newSigner(t, "other.example", s.key.Alg())
		if err := load(must(receipt.SignDSSE(other, []byte(link)))(t)).VerifySignature(inTotoKey(t, s)); err == nil {
			t.Error("in-toto accepts another key: the test proves nothing")
		}
	})
}

// sigstoreVerifier puts sigstore's verifiers under securesystemslib.
type sigstoreVerifier struct {
	v   signature.Verifier
	pub crypto.PublicKey
	id  string
}

func (v sigstoreVerifier) Verify(_ context.Context, data, sig []byte) error {
	return v.v.VerifySignature(bytes.NewReader(sig), bytes.NewReader(data))
}
func (v sigstoreVerifier) KeyID() (string, error)   { return v.id, nil }
func (v sigstoreVerifier) Public() crypto.PublicKey { return v.pub }

func TestSecureSystemsLibVerifiesOurDSSE(t *testing.T) {
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		var env dsse.Envelope
		if err := json.Unmarshal(must(receipt.SignDSSE(s, []byte(testStatement)))(t), &env); err != nil {
			t.Fatal(err)
		}
		v := must(signature.LoadVerifier(s.priv.Public(), crypto.SHA256))(t)
		ev := must(dsse.NewEnvelopeVerifier(sigstoreVerifier{v, s.priv.Public(), env.Signatures[0].KeyID}))(t)
		_, body, err := ev.VerifyAndDecode(context.Background(), &env)
		if err != nil || string(body) != testStatement {
			t.Errorf("got %q, %v", body, err)
		}
	})
}

func TestPAEIsSecureSystemsLibs(t *testing.T) {
	for _, body := range []string{"", "x", testStatement, strings.Repeat("a", 1000)} {
		for _, typ := range []string{"", receipt.PayloadType, "http://example.com/HelloWorld"} {
			if got, want := receipt.PAE(typ, []byte(body)), dsse.PAE(typ, []byte(body)); !bytes.Equal(got, want) {
				t.Errorf("%q %q: got %q, want %q", typ, body, got, want)
			}
		}
	}
}

// x/mod knows Ed25519 vkeys only.
func TestVKeyIsXModNotes(t *testing.T) {
	s := newSigner(t, "runner.example/ci", receipt.Ed25519)
	want := must(note.NewEd25519VerifierKey("runner.example/ci", s.priv.Public().(ed25519.PublicKey)))(t)
	if got := s.key.String(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	v := must(note.NewVerifier(s.key.String()))(t)
	if v.KeyHash() != s.key.ID() {
		t.Errorf("id: got %08x, want %08x", s.key.ID(), v.KeyHash())
	}
	if !v.Verify([]byte("m"), must(s.Sign([]byte("m")))(t)) {
		t.Error("x/mod refuses our signature")
	}
}

// GNU tar, told to write nothing of its own, writes our bundle byte for byte.
func TestBundleIsGNUTars(t *testing.T) {
	tar, err := exec.LookPath("tar")
	if err != nil {
		t.Skip("no tar on PATH: ", err)
	}
	if out, err := exec.Command(tar, "--version").Output(); err != nil || !bytes.Contains(out, []byte("GNU tar")) {
		t.Skipf("tar is not GNU tar: %q", out)
	}
	b := fullBundle()
	want := must(receipt.FormatBundle(b))(t)
	dir := t.TempDir()
	names := []string{"receipt.cose", "statement.dsse.json", "task.sealed", "evidence.cbor", "proof.cbor", "log.tlog-proof", "log.cbor", "timestamp.tsr", "receipt2.cose"}
	for i, data := range [][]byte{b.Receipt, b.Statement, b.Sealed, b.Evidence, b.Proof, b.LogProof, b.Log, b.Timestamp, b.Receipt2} {
		if err := os.WriteFile(filepath.Join(dir, names[i]), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(tar, append([]string{"-C", dir, "-c", "-f", "-", "-b", "1", "--format=ustar", "--mtime=@0", "--owner=:0", "--group=:0", "--numeric-owner", "--mode=0644"}, names...)...)
	got, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		i := 0
		for i < len(got) && i < len(want) && got[i] == want[i] {
			i++
		}
		t.Errorf("%d bytes, want %d; first difference at %d", len(got), len(want), i)
	}
}

// The package is bytes only, and fit for a browser.
func TestImportGraph(t *testing.T) {
	goTool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("no go tool on PATH: ", err)
	}
	cmd := exec.Command(goTool, "list", "-deps", "github.com/cleanrun-dev/cleanrun/receipt")
	cmd.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm")
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, "github.com/veraison/go-cose") {
		t.Fatal("go list shows no go-cose: the test proves nothing")
	}
	for _, d := range deps {
		bad := slices.Contains([]string{"net", "os/exec", "log", "os/user", "crypto/x509", "archive/tar"}, d)
		for _, p := range []string{"net/", "github.com/sigstore/", "google.golang.org/", "github.com/secure-systems-lab/"} {
			bad = bad || strings.HasPrefix(d, p)
		}
		if bad {
			t.Errorf("receipt depends on %s", d)
		}
	}
}
