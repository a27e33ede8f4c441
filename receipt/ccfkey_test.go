package receipt_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

func TestCCFKey(t *testing.T) {
	priv := ledgerKey(t, "a ledger")
	key := must(receipt.NewCCFKey(ledgerName, &priv.PublicKey))(t)
	if again := must(receipt.NewCCFKey(ledgerName, &priv.PublicKey))(t); key != again || key.Name() != ledgerName {
		t.Errorf("got %v and %v", key, again)
	}
	p256 := newSigner(t, "x", receipt.ESP256).priv.Public().(*ecdsa.PublicKey)
	p521 := must(ecdsa.ParseRawPrivateKey(elliptic.P521(), append(make([]byte, 65), 1)))(t)
	for name, pub := range map[string]*ecdsa.PublicKey{"none": nil, "no curve": {}, "off the curve": {Curve: elliptic.P384(), X: big.NewInt(1), Y: big.NewInt(1)}, "P-256": p256, "P-521": &p521.PublicKey} {
		if k, err := receipt.NewCCFKey(ledgerName, pub); stage(err) != "vkey" || k != (receipt.CCFKey{}) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, name := range []string{"", "a ledger", "a+b", strings.Repeat("n", 129)} {
		if _, err := receipt.NewCCFKey(name, &priv.PublicKey); stage(err) != "vkey" {
			t.Errorf("name %q: got %v", name, err)
		}
	}
}

// A P-384 key reads receipts of profile ccf. Nothing of ours is signed with it,
// nothing pins it.
func TestP384SignsNothingOfOurs(t *testing.T) {
	priv := ledgerKey(t, "a ledger")
	if k, err := receipt.NewPublicKey("runner.example", priv.Public()); stage(err) != "vkey" || k != (receipt.PublicKey{}) {
		t.Errorf("NewPublicKey: got %v", err)
	}
	// A CCFKey gives away nothing to verify another object with, and no signer has one.
	key := reflect.TypeFor[receipt.CCFKey]()
	if n := reflect.PointerTo(key).NumMethod(); n != 1 || key.Method(0).Name != "Name" {
		t.Errorf("CCFKey has %d methods, want Name alone", n)
	}
	if want := reflect.TypeFor[receipt.PublicKey](); key.ConvertibleTo(want) {
		t.Error("a CCFKey converts to a PublicKey")
	}
	point := must(priv.PublicKey.Bytes())(t)
	lines := map[string]string{
		"as ECDSA": typed("runner.example", 2, spki(t, priv)),
		// The SubjectPublicKeyInfo of P-256 with a point of P-384 behind it.
		"as P-256":   typed("runner.example", 2, append(must(hex.DecodeString("3059301306072a8648ce3d020106082a8648ce3d030107034200"))(t), point...)),
		"as Ed25519": typed("runner.example", 1, point),
		"as type 3":  typed("runner.example", 3, spki(t, priv)),
	}
	good := typed("runner.example", 2, must(x509.MarshalPKIXPublicKey(newSigner(t, "x", receipt.ESP256).priv.Public()))(t))
	base := "owner " + newSigner(t, "owner.example", receipt.Ed25519).key.String() + "\n"
	refused := func(role, line string) bool { // because of the line itself
		_, err := verify.ParsePolicy([]byte(base + role + " " + line + "\n"))
		return err != nil && strings.Contains(err.Error(), "line 2")
	}
	for _, role := range []string{"runner", "owner"} { // logs and witnesses have Ed25519 and ML-DSA keys only
		if refused(role, good) {
			t.Errorf("positive control: %s %s is refused", role, good)
		}
	}
	for _, role := range []string{"runner", "owner", "log", "witness w"} {
		for name, line := range lines {
			if _, err := receipt.ParseVKey(line); stage(err) != "vkey" {
				t.Errorf("ParseVKey, %s: got %v", name, err)
			}
			if !refused(role, line) {
				t.Errorf("a policy pins %s %s", role, name)
			}
		}
	}

	// Files that say they are signed so are refused before any key is asked.
	sig := make([]byte, 96)
	for _, v := range readVectors(t, "cose", 115) {
		if v.name != "ok-receipt-ed25519" {
			continue
		}
		data := v.data[:len(v.data)-66]
		if _, err := receipt.ParseSign1(receipt.KindReceipt, bytes.Join([][]byte{data, {0x58, 96}, sig}, nil)); stage(err) != "signature" {
			t.Errorf("a signature of 96 bytes: got %v", err)
		}
		// alg -19 (32) becomes -35 (3822): the header is a byte longer.
		head := []byte{0xd2, 0x84, 0x58, v.data[3], v.data[4], 0x01, 0x32}
		if !bytes.HasPrefix(v.data, head) {
			t.Fatalf("vector starts with %x", v.data[:8])
		}
		es384 := bytes.Join([][]byte{{0xd2, 0x84, 0x58, v.data[3] + 1, v.data[4], 0x01, 0x38, 0x22}, v.data[7:]}, nil)
		if _, err := receipt.ParseSign1(receipt.KindReceipt, es384); stage(err) != "alg" {
			t.Errorf("alg -35: got %v", err)
		}
		return
	}
	t.Error("no vector ok-receipt-ed25519")
}

// The example of spec/cose-receipt.md is what the ledger of these tests signs.
func TestSpecCCFExample(t *testing.T) {
	page := string(must(os.ReadFile(filepath.Join("..", "spec", "cose-receipt.md")))(t))
	_, section, ok := strings.Cut(page, "\n## Profile ccf\n")
	section, _, ok2 := strings.Cut(section, "\n## ")
	blocks := regexp.MustCompile("(?s)```\n(.*?)```").FindAllStringSubmatch(section, -1)
	if !ok || !ok2 || len(blocks) < 2 {
		t.Fatalf("the page has no example: %v %v %d", ok, ok2, len(blocks))
	}
	for _, v := range readVectors(t, "logreceipt", 80) {
		if v.name != "ok-inclusion-ed25519" {
			continue
		}
		entry := unhex(t, v.head["entry"])
		if want := string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki(t, ledgerKey(t, "a ledger"))})); blocks[0][1] != want {
			t.Errorf("the page lacks the key\n%s", want)
		}
		want := goodCCF(t, entry).bytes()
		if _, err := verifyCCF(t, want, entry); err != nil {
			t.Fatal(err)
		}
		if got := strings.ReplaceAll(blocks[1][1], "\n", ""); got != hex.EncodeToString(want) {
			t.Errorf("the page lacks\n%s", regexp.MustCompile(".{1,80}").ReplaceAllString(hex.EncodeToString(want), "$0\n"))
		}
		return
	}
	t.Error("no vector ok-inclusion-ed25519")
}

// What profile ccf accepts has its proof in one encoding, and the ledger's key
// verifies it only over the root that it signed.
func FuzzParseCCF(f *testing.F) {
	statement := []byte("a statement")
	good := goodCCF(f, statement)
	root := [32]byte(good.root)
	f.Add(good.bytes())
	for _, change := range []func(p *ccfParts){
		func(p *ccfParts) { p.path[0].Left = false },
		func(p *ccfParts) { p.leaf[1] = "" },
		func(p *ccfParts) { p.sig = highS384 },
		func(p *ccfParts) { p.proof = p.of([]any{7, 2, [][]byte{}}) },
		func(p *ccfParts) { p.header[395] = 1 },
	} {
		p := goodCCF(f, statement)
		change(p)
		f.Add(p.bytes())
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := receipt.ParseLogReceiptAs(receipt.ProfileCCF, data)
		if err != nil {
			if r != nil || strings.HasPrefix(stage(err), "no stage") {
				t.Errorf("got %v with %v", r, err)
			}
			return
		}
		said := r.Unauthenticated()
		if said.CCF == nil || said.Inclusion != nil || said.Consistency != nil {
			t.Fatalf("got %+v", said)
		}
		path := []step{}
		for _, e := range said.CCF.Path {
			path = append(path, step{Left: e.Left, Hash: e.Hash[:]})
		}
		proof := cborOf(t, map[int]any{1: []any{said.CCF.Transaction[:], said.CCF.Evidence, said.CCF.Data[:]}, 2: path})
		if !bytes.Contains(data, proof) {
			t.Errorf("accepted %x, whose proof is written %x", data, proof)
		}
		got, err := verifyCCF(t, data, statement)
		if err == nil && (got.Root() != root || got.Inclusion().Data != sha256.Sum256(statement)) {
			t.Errorf("verified %x", data)
		}
		if _, err := r.VerifyInclusion(newSigner(t, ledgerName, receipt.ESP256).key, statement); stage(err) != "alg" {
			t.Errorf("VerifyInclusion: got %v", err)
		}
	})
}
