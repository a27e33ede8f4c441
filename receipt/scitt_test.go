package receipt_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/veraison/go-cose"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

type scittCase struct {
	statement, receipt []byte
	issuer, log        any // public keys
	want               struct {
		LeafEntry     string `json:"leaf_entry"`
		LeafIndex     *uint64
		Root          string   `json:"reconstructed_root"`
		StatementGood bool     `json:"statement_signature_valid"`
		ReceiptGood   bool     `json:"receipt_valid"`
		Path          []string `json:"inclusion_path"`
		Result        string   `json:"result"`
		FailureCode   string   `json:"failure_code"`
	}
}

func readSCITT(t *testing.T, dir string) scittCase {
	t.Helper()
	file := func(name string) []byte { return must(os.ReadFile(filepath.Join(dir, name)))(t) }
	key := func(name string) any {
		block, _ := pem.Decode(file(name))
		if block == nil {
			t.Fatalf("%s: no PEM", name)
		}
		return must(x509.ParsePKIXPublicKey(block.Bytes))(t)
	}
	c := scittCase{statement: file("statement.cose"), receipt: file("receipt.cose"), issuer: key("issuer-key.pub"), log: key("log-key.pub")}
	readJSON(t, filepath.Join(dir, "expected.json"), &c.want)
	return c
}

// The six vectors of the SCITT interop set get the verdict that they expect, for
// the reason that they name: valid-ccf-vds2, of another kind of tree, under profile
// ccf, the others under digest-leaf. Under each other profile each one fails, so
// fail-unsupported-vds fails under all.
func TestSCITTVectors(t *testing.T) {
	dirs, err := filepath.Glob(filepath.Join(corpus(t, "scitt"), "*"))
	if err != nil || len(dirs) != 6 {
		t.Fatalf("got %d vectors, want 6 (%v)", len(dirs), err)
	}
	codes := map[string]string{"vds": "UNSUPPORTED_VDS", "signature": "TAMPERED_INCLUSION_PATH"}
	others := map[receipt.Profile][]string{ // where each fails under a profile that is not its own
		receipt.ProfileCleanrun:   {"canonical", "cbor"}, // labels out of order; a text label
		receipt.ProfileRFC9943:    {"kid", "vds"},        // structure 1 without kid; structure 2
		receipt.ProfileDigestLeaf: {"vds"},
		receipt.ProfileCCF:        {"vds", "alg"}, // structure 1; fail-unsupported-vds, which says 2
	}
	valid, invalid := 0, 0
	for _, dir := range dirs {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			c := readSCITT(t, dir)
			statementGood := verifyStatement(t, c)
			if statementGood != c.want.StatementGood {
				t.Errorf("statement verifies: %v, want %v", statementGood, c.want.StatementGood)
			}
			profile := receipt.ProfileDigestLeaf
			if filepath.Base(dir) == "valid-ccf-vds2" {
				profile = receipt.ProfileCCF
			}
			root, err := verifySCITT(t, c, profile)
			if (err == nil) != c.want.ReceiptGood {
				t.Errorf("receipt: got %v, want good %v", err, c.want.ReceiptGood)
			}
			if err == nil && hex.EncodeToString(root[:]) != c.want.Root {
				t.Errorf("root %x, want %s", root, c.want.Root)
			}
			result, code := "VALID", ""
			switch {
			case err != nil:
				result, code = "INVALID", codes[stage(err)]
			case !statementGood:
				result, code = "INVALID", "BAD_STATEMENT_SIGNATURE"
			}
			if result != c.want.Result || code != c.want.FailureCode {
				t.Errorf("got %s %q, want %s %q", result, code, c.want.Result, c.want.FailureCode)
			}
			if result == "VALID" {
				valid++
			} else {
				invalid++
			}
			for p, stages := range others {
				if p == profile {
					continue
				}
				if _, err := receipt.ParseLogReceiptAs(p, c.receipt); !slices.Contains(stages, stage(err)) {
					t.Errorf("profile %v: got %v, want one of %v", p, err, stages)
				}
			}
		})
	}
	if valid != 3 || invalid != 3 {
		t.Errorf("got %d valid and %d invalid, want 3 and 3", valid, invalid)
	}
}

// verifySCITT checks the receipt of a vector for its statement.
func verifySCITT(t *testing.T, c scittCase, p receipt.Profile) (root [32]byte, _ error) {
	t.Helper()
	r, err := receipt.ParseLogReceiptAs(p, c.receipt)
	if err != nil {
		return root, err
	}
	if p == receipt.ProfileCCF {
		v, err := r.VerifyCCF(must(receipt.NewCCFKey("127.0.0.1:8000", c.log.(*ecdsa.PublicKey)))(t), c.statement)
		if err != nil {
			return root, err
		}
		return v.Root(), nil
	}
	v, err := r.VerifyInclusion(must(receipt.NewPublicKey("log.example", c.log))(t), c.statement)
	if err != nil {
		return root, err
	}
	return v.Root(), nil
}

// verifyStatement checks the issuer's signature with go-cose.
func verifyStatement(t *testing.T, c scittCase) bool {
	t.Helper()
	var m cose.Sign1Message
	if err := m.UnmarshalCBOR(c.statement); err != nil {
		t.Fatal(err)
	}
	return m.Verify(nil, oldAlg{must(receipt.NewPublicKey("issuer.example", c.issuer))(t)}) == nil
}

// What valid-ccf-vds2 holds, computed once more without the package.
func TestSCITTLedgerByHand(t *testing.T) {
	c := readSCITT(t, filepath.Join(corpus(t, "scitt"), "valid-ccf-vds2"))
	var frame struct {
		_           struct{} `cbor:",toarray"`
		Protected   []byte
		Unprotected map[int64]map[int64][][]byte
		Payload     *[]byte
		Signature   []byte
	}
	if err := cbor.Unmarshal(c.receipt[1:], &frame); err != nil {
		t.Fatal(err)
	}
	var p struct {
		Leaf struct {
			_        struct{} `cbor:",toarray"`
			Tx       []byte
			Evidence string
			Data     []byte
		} `cbor:"1,keyasint"`
		Path []struct {
			_    struct{} `cbor:",toarray"`
			Left bool
			Hash []byte
		} `cbor:"2,keyasint"`
	}
	if err := cbor.Unmarshal(frame.Unprotected[396][-1][0], &p); err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(c.statement)
	if !bytes.Equal(p.Leaf.Data, digest[:]) || hex.EncodeToString(digest[:]) != c.want.LeafEntry {
		t.Error("the leaf is of another statement")
	}
	evidence := sha256.Sum256([]byte(p.Leaf.Evidence))
	root := sha256.Sum256(bytes.Join([][]byte{p.Leaf.Tx, evidence[:], p.Leaf.Data}, nil))
	for _, h := range p.Path {
		if h.Left {
			root = sha256.Sum256(append(h.Hash, root[:]...))
		} else {
			root = sha256.Sum256(append(root[:], h.Hash...))
		}
	}
	if hex.EncodeToString(root[:]) != c.want.Root {
		t.Errorf("root %x, want %s", root, c.want.Root)
	}
	v := must(cose.NewVerifier(cose.AlgorithmES384, c.log.(*ecdsa.PublicKey)))(t)
	if err := v.Verify(sigStructure(t, frame.Protected, root[:]), frame.Signature); err != nil {
		t.Error(err)
	}
}

// sigStructure is the Sig_structure of RFC 9052, section 4.4, by hand: the
// external data is empty.
func sigStructure(t *testing.T, protected, payload []byte) []byte {
	t.Helper()
	bstr := func(b []byte) []byte {
		switch n := len(b); {
		case n < 24:
			return append([]byte{0x40 | byte(n)}, b...)
		case n < 256:
			return append([]byte{0x58, byte(n)}, b...)
		default:
			return append([]byte{0x59, byte(n >> 8), byte(n)}, b...)
		}
	}
	return bytes.Join([][]byte{{0x84, 0x6a}, []byte("Signature1"), bstr(protected), {0x40}, bstr(payload)}, nil)
}

// Where the corpus is absent the ES256 receipt of profile digest-leaf, with a high
// s as that set has it, is tested all the same.
func TestDigestLeafLowersS(t *testing.T) {
	s := newSigner(t, "log.example", receipt.ESP256)
	entry := []byte("any bytes: the leaf is their digest")
	digest := sha256.Sum256(entry)
	root := receipt.LeafHash(digest[:])
	protected := []byte{0xa2, 0x19, 0x01, 0x8b, 0x01, 0x01, 0x26} // {395: 1, 1: -7}
	sig := must(s.Sign(sigStructure(t, protected, root[:])))(t)
	high := new(big.Int).SetBytes(sig[32:])
	high.Sub(s.priv.Public().(*ecdsa.PublicKey).Curve.Params().N, high).FillBytes(sig[32:])
	data := bytes.Join([][]byte{{0xd2, 0x84, 0x47}, protected, {0xa1, 0x19, 0x01, 0x8c, 0xa1, 0x20, 0x81, 0x44, 0x83, 0x01, 0x00, 0x80, 0xf6, 0x58, 0x40}, sig}, nil)
	r := must(receipt.ParseLogReceiptAs(receipt.ProfileDigestLeaf, data))(t)
	if _, err := r.VerifyInclusion(s.key, entry); err != nil {
		t.Error(err)
	}
	if _, err := r.VerifyInclusion(s.key, append(entry, '.')); stage(err) != "signature" {
		t.Errorf("another entry: got %v", err)
	}
	if _, err := r.VerifyInclusion(newSigner(t, "log.example", receipt.Ed25519).key, entry); stage(err) != "alg" {
		t.Errorf("another algorithm: got %v", err)
	}
}
