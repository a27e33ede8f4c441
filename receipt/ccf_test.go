package receipt_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

const ledgerName = "ledger.example"

// ledgerKey is a P-384 key from a seed: signatures are the same in every run.
func ledgerKey(t testing.TB, seed string) *ecdsa.PrivateKey {
	t.Helper()
	sum := sha512.Sum384([]byte(seed))
	return must(ecdsa.ParseRawPrivateKey(elliptic.P384(), sum[:]))(t)
}

func spki(t testing.TB, priv *ecdsa.PrivateKey) []byte {
	t.Helper()
	return must(x509.MarshalPKIXPublicKey(priv.Public()))(t)
}

// cborOf encodes with fxamacker; cbor.RawMessage values stand as they are.
func cborOf(t testing.TB, v any) []byte {
	t.Helper()
	return must(must(cbor.CoreDetEncOptions().EncMode())(t).Marshal(v))(t)
}

// A step of a path, as it is encoded.
type step struct {
	_    struct{} `cbor:",toarray"`
	Left any
	Hash []byte
}

// ccfParts is a receipt of a CCF ledger, of which a test changes one thing. root
// is what the ledger signs, and stays that of the good one.
type ccfParts struct {
	t                   testing.TB
	priv                *ecdsa.PrivateKey
	header              map[any]any
	leaf                []any
	path                []step
	proof               []byte // if set, in place of leaf and path
	proofs, unprotected any    // if set, in place of the one proof
	payload             any
	root, external      []byte
	sig                 func(sig []byte) []byte
}

// goodCCF is a receipt for a statement: leaf 1 of a ledger of 3.
func goodCCF(t testing.TB, statement []byte) *ccfParts {
	t.Helper()
	leaves, root := ledgerOf(3, statement)
	priv := ledgerKey(t, "a ledger")
	kid := sha256.Sum256(spki(t, priv))
	return &ccfParts{
		t:    t,
		priv: priv,
		header: map[any]any{
			1: -35, 4: []byte(hex.EncodeToString(kid[:])), 15: map[int]any{1: ledgerName, 2: "scitt.ccf.signature.v1", 6: 1780000000},
			395: 2, "ccf.v1": map[string]string{"txid": "2.19"},
		},
		leaf: leaves[1].parts(),
		path: ledgerPath(leaves, 1),
		root: root[:],
	}
}

func (p *ccfParts) bytes() []byte {
	if p.proof == nil {
		p.proof = p.of(map[int]any{1: p.leaf, 2: p.path})
	}
	if p.proofs == nil {
		p.proofs = map[int]any{-1: [][]byte{p.proof}}
	}
	if p.unprotected == nil {
		p.unprotected = map[int]any{396: p.proofs}
	}
	protected := p.of(p.header)
	tbs := sha512.Sum384(p.of([]any{"Signature1", protected, append([]byte{}, p.external...), p.root}))
	var rs struct{ R, S *big.Int }
	_ = must(asn1.Unmarshal(must(p.priv.Sign(nil, tbs[:], crypto.SHA384))(p.t), &rs))(p.t)
	sig := append(rs.R.FillBytes(make([]byte, 48)), rs.S.FillBytes(make([]byte, 48))...)
	if p.sig != nil {
		sig = p.sig(sig)
	}
	return p.of(cbor.Tag{Number: 18, Content: []any{protected, p.unprotected, p.payload, sig}})
}

// A ledgerLeaf is a transaction of a CCF ledger.
type ledgerLeaf struct {
	tx, data [32]byte
	evidence string
}

func (l ledgerLeaf) parts() []any { return []any{l.tx[:], l.evidence, l.data[:]} }

func (l ledgerLeaf) hash() [32]byte {
	evidence := sha256.Sum256([]byte(l.evidence))
	return sha256.Sum256(slices.Concat(l.tx[:], evidence[:], l.data[:]))
}

// ledgerOf has n transactions, of which the second registered the statement.
func ledgerOf(n int, statement []byte) (leaves []ledgerLeaf, root [32]byte) {
	for i := range n {
		l := ledgerLeaf{sha256.Sum256(fmt.Append(nil, "tx ", i)), sha256.Sum256(fmt.Append(nil, "other ", i)), fmt.Sprintf("ce:2.%d:%x", 18+i, sha256.Sum256(fmt.Append(nil, "nonce ", i)))}
		if i == 1 {
			l.data = sha256.Sum256(statement)
		}
		leaves = append(leaves, l)
	}
	return leaves, ledgerRoot(leaves)
}

// ledgerRoot is section 2.1 of the draft, by recursion.
func ledgerRoot(l []ledgerLeaf) [32]byte {
	if len(l) == 1 {
		return l[0].hash()
	}
	k := 1
	for 2*k < len(l) {
		k *= 2
	}
	left, right := ledgerRoot(l[:k]), ledgerRoot(l[k:])
	return sha256.Sum256(slices.Concat(left[:], right[:]))
}

// ledgerPath are the siblings from leaf i up, each with its side.
func ledgerPath(l []ledgerLeaf, i int) []step {
	if len(l) == 1 {
		return nil
	}
	k := 1
	for 2*k < len(l) {
		k *= 2
	}
	if i < k {
		h := ledgerRoot(l[k:])
		return append(ledgerPath(l[:k], i), step{Left: false, Hash: h[:]})
	}
	h := ledgerRoot(l[:k])
	return append(ledgerPath(l[k:], i-k), step{Left: true, Hash: h[:]})
}

func verifyCCF(t testing.TB, data, statement []byte) (*receipt.CCFReceipt, error) {
	t.Helper()
	r, err := receipt.ParseLogReceiptAs(receipt.ProfileCCF, data)
	if err != nil {
		return nil, err
	}
	return r.VerifyCCF(must(receipt.NewCCFKey(ledgerName, &ledgerKey(t, "a ledger").PublicKey))(t), statement)
}

// Every leaf of small ledgers leads to the root that the definition gives.
func TestCCFPaths(t *testing.T) {
	statement := []byte("a statement")
	for n := 2; n <= 9; n++ {
		leaves, root := ledgerOf(n, statement)
		for i, l := range leaves {
			p := goodCCF(t, statement)
			p.leaf, p.path, p.root = l.parts(), ledgerPath(leaves, i), root[:]
			r := must(receipt.ParseLogReceiptAs(receipt.ProfileCCF, p.bytes()))(t)
			entry := fmt.Appendf(nil, "other %d", i)
			if i == 1 {
				entry = statement
			}
			if got := must(r.InclusionRoot(entry))(t); got != root {
				t.Errorf("leaf %d of %d: root %x, want %x", i, n, got, root)
			}
		}
	}
}

func TestCCFReceipt(t *testing.T) {
	statement := []byte("a statement, in whatever bytes it was registered")
	p := goodCCF(t, statement)
	got := must(verifyCCF(t, p.bytes(), statement))(t)
	in := got.Inclusion()
	if got.Root() != [32]byte(p.root) || got.Ledger().Name() != ledgerName || got.Subject() != "scitt.ccf.signature.v1" || in.Data != sha256.Sum256(statement) || len(in.Path) != 2 {
		t.Errorf("got %+v", got)
	}
	// What a PublicKey would check, it has not.
	r := must(receipt.ParseLogReceiptAs(receipt.ProfileCCF, p.bytes()))(t)
	if said := r.Unauthenticated(); said.CCF == nil || said.Inclusion != nil || said.Consistency != nil || said.Kid != sha256.Sum256(spki(t, p.priv)) {
		t.Errorf("got %+v", said)
	}
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		if _, err := r.VerifyInclusion(s.key, statement); stage(err) != "alg" {
			t.Errorf("VerifyInclusion: got %v", err)
		}
		if _, err := r.VerifyConsistency(s.key, got.Root(), got.Root()); stage(err) != "proof" {
			t.Errorf("VerifyConsistency: got %v", err)
		}
	})
	if _, err := r.VerifyInclusion(receipt.PublicKey{}, statement); stage(err) != "alg" {
		t.Errorf("the zero PublicKey: got %v", err)
	}
	if _, err := r.VerifyCCF(receipt.CCFKey{}, statement); stage(err) != "kid" {
		t.Errorf("the zero CCFKey: got %v", err)
	}
}

// Each case changes one thing in a good receipt.
func TestCCFRefused(t *testing.T) {
	statement := []byte("a statement")
	flip := func(b []byte) []byte { b = bytes.Clone(b); b[7] ^= 1; return b }
	zeros := func(n int) []byte { return make([]byte, n) }
	cases := map[string]struct {
		stage  string
		change func(p *ccfParts)
	}{
		"good":                 {"ok", func(p *ccfParts) {}},
		"evidence of 1024":     {"signature", func(p *ccfParts) { p.leaf[1] = strings.Repeat("e", 1024) }},
		"path of 64":           {"signature", func(p *ccfParts) { p.path = slices.Repeat(p.path[:1], 64) }},
		"no text label":        {"ok", func(p *ccfParts) { delete(p.header, "ccf.v1") }},
		"certificate beside":   {"ok", func(p *ccfParts) { p.header[33] = []byte("0\x82") }},
		"high s":               {"ok", func(p *ccfParts) { p.sig = highS384 }},
		"path flipped":         {"signature", func(p *ccfParts) { p.path[1].Hash = flip(p.path[1].Hash) }},
		"wrong side":           {"signature", func(p *ccfParts) { p.path[0].Left = false }},
		"every side wrong":     {"signature", func(p *ccfParts) { p.path[0].Left, p.path[1].Left = false, true }},
		"steps swapped":        {"signature", func(p *ccfParts) { slices.Reverse(p.path) }},
		"last step missing":    {"signature", func(p *ccfParts) { p.path = p.path[:1] }},
		"step twice":           {"signature", func(p *ccfParts) { p.path = append(p.path, p.path[1]) }},
		"transaction changed":  {"signature", func(p *ccfParts) { p.leaf[0] = flip(p.leaf[0].([]byte)) }},
		"evidence changed":     {"signature", func(p *ccfParts) { p.leaf[1] = p.leaf[1].(string) + "0" }},
		"data of another":      {"subject", func(p *ccfParts) { p.leaf[2] = flip(p.leaf[2].([]byte)) }},
		"transaction for data": {"subject", func(p *ccfParts) { p.leaf[0], p.leaf[2] = p.leaf[2], p.leaf[0] }},

		"two proofs":         {"proof", func(p *ccfParts) { p.proof = p.one(); p.proofs = map[int]any{-1: [][]byte{p.proof, p.proof}} }},
		"no proof":           {"proof", func(p *ccfParts) { p.proofs = map[int]any{-1: [][]byte{}} }},
		"consistency":        {"proof", func(p *ccfParts) { p.proofs = map[int]any{-2: [][]byte{p.one()}} }},
		"both sorts":         {"proof", func(p *ccfParts) { p.proofs = map[int]any{-1: [][]byte{p.one()}, -2: [][]byte{p.one()}} }},
		"not wrapped":        {"proof", func(p *ccfParts) { p.proofs = map[int]any{-1: []any{cbor.RawMessage(p.one())}} }},
		"leaf missing":       {"proof", func(p *ccfParts) { p.proof = p.of(map[int]any{2: p.path}) }},
		"path missing":       {"proof", func(p *ccfParts) { p.proof = p.of(map[int]any{1: p.leaf}) }},
		"leaf null":          {"canonical", func(p *ccfParts) { p.proof = p.of(map[int]any{1: nil, 2: p.path}) }},
		"label 3 for 2":      {"proof", func(p *ccfParts) { p.proof = p.of(map[int]any{1: p.leaf, 3: p.path}) }},
		"third part":         {"proof", func(p *ccfParts) { p.proof = p.of(map[int]any{1: p.leaf, 2: p.path, 3: 0}) }},
		"path empty":         {"proof", func(p *ccfParts) { p.path = []step{} }},
		"path of 65":         {"proof", func(p *ccfParts) { p.path = slices.Repeat(p.path[:1], 65) }},
		"leaf of two":        {"proof", func(p *ccfParts) { p.leaf = p.leaf[1:] }},
		"leaf of four":       {"proof", func(p *ccfParts) { p.leaf = append(p.leaf, 0) }},
		"evidence empty":     {"proof", func(p *ccfParts) { p.leaf[1] = "" }},
		"evidence of 1025":   {"proof", func(p *ccfParts) { p.leaf[1] = strings.Repeat("e", 1025) }},
		"evidence in bytes":  {"proof", func(p *ccfParts) { p.leaf[1] = []byte(p.leaf[1].(string)) }},
		"evidence hashed":    {"proof", func(p *ccfParts) { h := sha256.Sum256([]byte(p.leaf[1].(string))); p.leaf[1] = h[:] }},
		"transaction of 31":  {"proof", func(p *ccfParts) { p.leaf[0] = p.leaf[0].([]byte)[:31] }},
		"transaction of 64":  {"proof", func(p *ccfParts) { p.leaf[0] = zeros(64) }},
		"data of 33":         {"proof", func(p *ccfParts) { p.leaf[2] = append(bytes.Clone(p.leaf[2].([]byte)), 0) }},
		"data empty":         {"proof", func(p *ccfParts) { p.leaf[2] = zeros(0) }},
		"step of 31":         {"proof", func(p *ccfParts) { p.path[0].Hash = p.path[0].Hash[:31] }},
		"step of 96":         {"proof", func(p *ccfParts) { p.path[0].Hash = zeros(96) }},
		"side 1":             {"proof", func(p *ccfParts) { p.path[0].Left = 1 }},
		"side null":          {"canonical", func(p *ccfParts) { p.path[1].Left = nil }},
		"trailing zero":      {"proof", func(p *ccfParts) { p.proof = append(p.one(), 0) }},
		"label in two bytes": {"canonical", func(p *ccfParts) { p.proof = append([]byte{0xa2, 0x18, 0x01}, p.one()[2:]...) }},
		"labels swapped": {"canonical", func(p *ccfParts) {
			p.proof = slices.Concat([]byte{0xa2, 0x02}, p.of(p.path), []byte{0x01}, p.of(p.leaf))
		}},
		"leaf twice": {"proof", func(p *ccfParts) {
			p.proof = slices.Concat([]byte{0xa2, 0x01}, p.of(p.leaf), []byte{0x01}, p.of(p.leaf))
		}},
		"path of gigabytes": {"proof", func(p *ccfParts) {
			p.proof = slices.Concat([]byte{0xa2, 0x01}, p.of(p.leaf), []byte{0x02, 0x9a, 0x7f, 0xff, 0xff, 0xff})
		}},
		"structure 1 inside": {"proof", func(p *ccfParts) { p.proof = p.of([]any{7, 2, [][]byte{zeros(32), zeros(32), zeros(32)}}) }},
		"huge":               {"size", func(p *ccfParts) { p.path = slices.Repeat(p.path, 1000) }},
		"huge payload":       {"size", func(p *ccfParts) { p.payload = zeros(65 << 10) }},

		"structure 1":         {"vds", func(p *ccfParts) { p.header[395] = 1 }},
		"structure 3":         {"vds", func(p *ccfParts) { p.header[395] = 3 }},
		"structure missing":   {"vds", func(p *ccfParts) { delete(p.header, 395) }},
		"structure in text":   {"vds", func(p *ccfParts) { p.header[395] = "CCF_LEDGER_SHA256" }},
		"structure unsigned":  {"unprotected", func(p *ccfParts) { p.unprotected = map[int]any{395: 2, 396: map[int]any{-1: [][]byte{p.one()}}} }},
		"label 500 unsigned":  {"unprotected", func(p *ccfParts) { p.unprotected = map[int]any{500: 0, 396: map[int]any{-1: [][]byte{p.one()}}} }},
		"proofs signed":       {"header", func(p *ccfParts) { p.header[396] = map[int]any{-1: [][]byte{p.one()}} }},
		"crit":                {"crit", func(p *ccfParts) { p.header[2] = []int{395} }},
		"ES256":               {"alg", func(p *ccfParts) { p.header[1] = -7 }},
		"ESP256":              {"alg", func(p *ccfParts) { p.header[1] = -9 }},
		"EdDSA":               {"alg", func(p *ccfParts) { p.header[1] = -8 }},
		"Ed25519":             {"alg", func(p *ccfParts) { p.header[1] = -19 }},
		"ES512":               {"alg", func(p *ccfParts) { p.header[1] = -36 }},
		"no algorithm":        {"alg", func(p *ccfParts) { delete(p.header, 1) }},
		"no kid":              {"kid", func(p *ccfParts) { delete(p.header, 4) }},
		"kid in bytes":        {"kid", func(p *ccfParts) { p.header[4] = zeros(32) }},
		"kid in upper case":   {"kid", func(p *ccfParts) { p.header[4] = bytes.ToUpper(p.header[4].([]byte)) }},
		"kid and more":        {"kid", func(p *ccfParts) { p.header[4] = append(p.header[4].([]byte), '0') }},
		"kid of another":      {"kid", func(p *ccfParts) { p.header[4] = bytes.Repeat([]byte{'0'}, 64) }},
		"no claims":           {"header", func(p *ccfParts) { delete(p.header, 15) }},
		"no sub":              {"header", func(p *ccfParts) { p.header[15] = map[int]any{1: ledgerName} }},
		"iss of another":      {"issuer", func(p *ccfParts) { p.header[15] = map[int]any{1: "ledger.example/2", 2: "x"} }},
		"iss no name":         {"issuer", func(p *ccfParts) { p.header[15] = map[int]any{1: "a ledger", 2: "x"} }},
		"payload attached":    {"payload", func(p *ccfParts) { p.payload = p.root }},
		"payload empty":       {"payload", func(p *ccfParts) { p.payload = zeros(0) }},
		"signature of 64":     {"signature", func(p *ccfParts) { p.sig = func(s []byte) []byte { return s[:64] } }},
		"signature of 97":     {"signature", func(p *ccfParts) { p.sig = func(s []byte) []byte { return append(s, 0) } }},
		"signature of zeros":  {"signature", func(p *ccfParts) { p.sig = func(s []byte) []byte { return zeros(96) } }},
		"signed by another":   {"signature", func(p *ccfParts) { p.priv = ledgerKey(t, "another ledger") }},
		"signed over nothing": {"signature", func(p *ccfParts) { p.root = zeros(0) }},
		"external data":       {"signature", func(p *ccfParts) { p.external = []byte{1} }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := goodCCF(t, statement)
			c.change(p)
			data := p.bytes()
			if got, err := verifyCCF(t, data, statement); stage(err) != c.stage || (err == nil) != (got != nil) {
				t.Errorf("got %v, %v, want stage %s", got, err, c.stage)
			}
		})
	}
	good := goodCCF(t, statement).bytes()
	for name, c := range map[string]struct {
		stage     string
		data      []byte
		statement []byte
	}{
		"another statement":  {"subject", good, []byte("another statement")},
		"statement cut":      {"subject", good, statement[1:]},
		"no statement":       {"size", good, nil},
		"a huge statement":   {"size", good, zeros(receipt.MaxEntry + 1)},
		"trailing zero":      {"cbor", append(bytes.Clone(good), 0), statement},
		"cut":                {"cbor", good[:len(good)-1], statement},
		"no tag":             {"tag", good[1:], statement},
		"a label twice":      {"cbor", bytes.Replace(good, []byte("\x19\x01\x8b\x02"), []byte("\x04\x42\x00\x00"), 1), statement},
		"no bytes":           {"size", nil, statement},
		"indefinite lengths": {"cbor", bytes.Replace(good, []byte("\xa1\x19\x01\x8c"), []byte("\xbf\x19\x01\x8c"), 1), statement},
	} {
		if _, err := verifyCCF(t, c.data, c.statement); stage(err) != c.stage {
			t.Errorf("%s: got %v, want stage %s", name, err, c.stage)
		}
	}
}

// of encodes in place, map keys in order.
func (p *ccfParts) of(v any) []byte { return cborOf(p.t, v) }

// one is the good proof.
func (p *ccfParts) one() []byte {
	return slices.Concat([]byte{0xa2, 0x01}, p.of(p.leaf), []byte{0x02}, p.of(p.path))
}

func highS384(sig []byte) []byte {
	n := elliptic.P384().Params().N
	if s := new(big.Int).SetBytes(sig[48:]); s.Cmp(new(big.Int).Rsh(n, 1)) <= 0 {
		s.Sub(n, s).FillBytes(sig[48:])
	}
	return sig
}

// A receipt of one profile is none of another, whatever it holds.
func TestCCFUnderOtherProfiles(t *testing.T) {
	statement := []byte("a statement")
	good := goodCCF(t, statement).bytes()
	for p, want := range map[receipt.Profile]string{receipt.ProfileCleanrun: "cbor", receipt.ProfileRFC9943: "vds", receipt.ProfileDigestLeaf: "vds", receipt.ProfileCCF: "ok"} {
		if _, err := receipt.ParseLogReceiptAs(p, good); stage(err) != want {
			t.Errorf("%v: got %v, want stage %s", p, err, want)
		}
	}
	// A structure that says 1 does not open the others to the algorithm.
	p := goodCCF(t, statement)
	p.header[395] = 1
	delete(p.header, "ccf.v1")
	data := p.bytes()
	for p, want := range map[receipt.Profile]string{receipt.ProfileCleanrun: "alg", receipt.ProfileRFC9943: "alg", receipt.ProfileDigestLeaf: "alg", receipt.ProfileCCF: "vds"} {
		if _, err := receipt.ParseLogReceiptAs(p, data); stage(err) != want {
			t.Errorf("%v, structure 1: got %v, want stage %s", p, err, want)
		}
	}
	for _, v := range readVectors(t, "logreceipt", 80) {
		if _, err := receipt.ParseLogReceiptAs(receipt.ProfileCCF, v.data); err == nil || strings.HasPrefix(stage(err), "no stage") {
			t.Errorf("%s: got %v", v.name, err)
		}
	}
	s := newSigner(t, "log.example", receipt.ESP256)
	entries, tree := logOf(t, 3)
	r := must(receipt.ParseLogReceipt(must(receipt.SignInclusion(s, "run 1", inclusion(tree, 1), tree.root()))(t)))(t)
	if _, err := r.VerifyCCF(must(receipt.NewCCFKey("log.example", &ledgerKey(t, "a ledger").PublicKey))(t), entries[1]); stage(err) != "type" {
		t.Errorf("VerifyCCF of profile cleanrun: got %v", err)
	}
}
