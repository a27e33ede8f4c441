package receipt_test

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/veraison/go-cose"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// naiveTree is RFC 9162, section 2.1, by recursion over the leaves' hashes.
type naiveTree [][32]byte

func (n naiveTree) split() int {
	k := 1
	for 2*k < len(n) {
		k *= 2
	}
	return k
}

func (n naiveTree) root() [32]byte {
	if len(n) == 1 {
		return n[0]
	}
	l, r := n[:n.split()].root(), n[n.split():].root()
	return sha256.Sum256(slices.Concat([]byte{1}, l[:], r[:]))
}

func (n naiveTree) path(m int) [][32]byte {
	if len(n) == 1 {
		return nil
	}
	k := n.split()
	if m < k {
		return append(n[:k].path(m), n[k:].root())
	}
	return append(n[k:].path(m-k), n[:k].root())
}

func (n naiveTree) consistency(m int, whole bool) [][32]byte {
	if m == len(n) {
		if whole {
			return nil
		}
		return [][32]byte{n.root()}
	}
	k := n.split()
	if m <= k {
		return append(n[:k].consistency(m, whole), n[k:].root())
	}
	return append(n[k:].consistency(m-k, false), n[:k].root())
}

// logOf has n entries, signed statements of n runs.
func logOf(t testing.TB, n int) (entries [][]byte, tree naiveTree) {
	t.Helper()
	runner := newSigner(t, "runner.example", receipt.Ed25519)
	for i := range n {
		e := must(receipt.Sign1(receipt.KindCheckpoint, runner, fmt.Sprintf("run %d", i), []byte{0xa0}))(t)
		entries, tree = append(entries, e), append(tree, receipt.LeafHash(e))
	}
	return entries, tree
}

func inclusion(tree naiveTree, i int) receipt.Inclusion {
	return receipt.Inclusion{Size: uint64(len(tree)), Index: uint64(i), Path: tree.path(i)}
}

func TestLeafHash(t *testing.T) {
	if got, want := receipt.LeafHash([]byte("ab")), sha256.Sum256([]byte("\x00ab")); got != want {
		t.Errorf("got %x, want %x", got, want)
	}
}

func TestInclusionReceipts(t *testing.T) {
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		for n := 1; n <= 9; n++ {
			entries, tree := logOf(t, n)
			for i, e := range entries {
				sub := fmt.Sprintf("run %d", i)
				data := must(receipt.SignInclusion(s, sub, inclusion(tree, i), tree.root()))(t)
				if len(data) > receipt.MaxLogReceipt {
					t.Errorf("%d bytes", len(data))
				}
				r := must(receipt.ParseLogReceipt(data))(t)
				said := r.Unauthenticated()
				if said.Alg != s.key.Alg() || said.Kid != s.key.Thumbprint() || said.Issuer != s.key.Name() || said.Subject != sub || said.Consistency != nil {
					t.Errorf("got %+v", said)
				}
				v := must(r.VerifyInclusion(s.key, e))(t)
				if v.Root() != tree.root() || v.Size() != uint64(n) || v.Inclusion().Index != uint64(i) || v.Log() != s.key || v.Consistency() != nil {
					t.Errorf("got %+v", v)
				}
				if _, err := r.VerifyConsistency(s.key, tree.root(), tree.root()); stage(err) != "proof" {
					t.Errorf("as consistency: %v", err)
				}
				if err := r.ConsistencyHolds(tree.root(), tree.root()); stage(err) != "proof" {
					t.Errorf("as consistency: %v", err)
				}
			}
		}
	})
}

func TestConsistencyReceipts(t *testing.T) {
	s := newSigner(t, "log.example", receipt.Ed25519)
	_, tree := logOf(t, 9)
	for n := 1; n <= 9; n++ {
		for m := 1; m <= n; m++ {
			c := receipt.Consistency{Older: uint64(m), Newer: uint64(n), Path: tree[:n].consistency(m, true)}
			older, newer := tree[:m].root(), tree[:n].root()
			data := must(receipt.SignConsistency(s, c, newer))(t)
			r := must(receipt.ParseLogReceipt(data))(t)
			if said := r.Unauthenticated(); said.Subject != s.key.Name() || said.Inclusion != nil {
				t.Errorf("got %+v", said)
			}
			v := must(r.VerifyConsistency(s.key, older, newer))(t)
			if v.Root() != newer || v.Size() != uint64(n) || v.Consistency().Older != uint64(m) {
				t.Errorf("got %+v", v)
			}
			if err := r.ConsistencyHolds([32]byte{1}, newer); stage(err) != "proof" {
				t.Errorf("%d to %d, another older root: %v", m, n, err)
			}
			if err := r.ConsistencyHolds(older, [32]byte{1}); stage(err) != "proof" {
				t.Errorf("%d to %d, another newer root: %v", m, n, err)
			}
			if _, err := r.VerifyConsistency(s.key, older, [32]byte{1}); stage(err) != "signature" {
				t.Errorf("%d to %d, a root that is not signed: %v", m, n, err)
			}
			if _, err := r.InclusionRoot([]byte{1}); stage(err) != "proof" {
				t.Errorf("as inclusion: %v", err)
			}
		}
	}
}

// A path has the one length that the naive tree gives it: no other is signed, and
// so no other is accepted.
func TestPathLengths(t *testing.T) {
	s := newSigner(t, "log.example", receipt.Ed25519)
	_, tree := logOf(t, 20)
	refused := 0
	for n := 1; n <= len(tree); n++ {
		for m := range n + 2 {
			for length := range 8 {
				path := make([][32]byte, length)
				_, err := receipt.SignInclusion(s, "run", receipt.Inclusion{Size: uint64(n), Index: uint64(m), Path: path}, [32]byte{})
				want := "proof"
				if m < n && length == len(tree[:n].path(m)) {
					want = "ok"
				}
				if stage(err) != want {
					t.Errorf("leaf %d of %d, %d hashes: got %v, want %s", m, n, length, err, want)
				}
				_, err = receipt.SignConsistency(s, receipt.Consistency{Older: uint64(m), Newer: uint64(n), Path: path}, [32]byte{})
				want = "proof"
				if m >= 1 && m <= n && length == len(tree[:n].consistency(m, true)) {
					want = "ok"
				}
				if stage(err) != want {
					t.Errorf("from %d to %d, %d hashes: got %v, want %s", m, n, length, err, want)
				}
				if want != "ok" {
					refused++
				}
			}
		}
	}
	if refused < 1000 {
		t.Errorf("%d refusals: the test proves nothing", refused)
	}
	// The largest tree there is.
	max := ^uint64(0)
	if _, err := receipt.SignInclusion(s, "run", receipt.Inclusion{Size: max, Index: 0, Path: make([][32]byte, 64)}, [32]byte{}); err != nil {
		t.Error(err)
	}
}

// go-cose and a Sig_structure by hand verify what we signed: the payload is the
// root, the external data is empty.
func TestLogReceiptSigningBytes(t *testing.T) {
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		_, tree := logOf(t, 5)
		root := tree.root()
		data := must(receipt.SignInclusion(s, "run 3", inclusion(tree, 3), root))(t)
		var m cose.Sign1Message
		if err := m.UnmarshalCBOR(data); err != nil {
			t.Fatal(err)
		}
		if m.Payload != nil {
			t.Errorf("payload %x, want it detached", m.Payload)
		}
		m.Payload = root[:]
		if err := m.Verify(nil, stdVerifier{s}); err != nil {
			t.Error(err)
		}
		if err := m.Verify([]byte{1}, stdVerifier{s}); err == nil {
			t.Error("verified with external data that was not signed")
		}
		var protected []byte
		if err := cbor.Unmarshal(m.Headers.RawProtected, &protected); err != nil {
			t.Fatal(err)
		}
		if err := s.key.Verify(sigStructure(t, protected, root[:]), m.Signature); err != nil {
			t.Error(err)
		}
		if err := s.key.Verify(sigStructure(t, protected, nil), m.Signature); err == nil {
			t.Error("the signature is over no payload")
		}
	})
}

// A proof is of its entry alone: another entry leads to another root, which the
// log did not sign, or says another sub.
func TestRT76_ReceiptOfAnotherEntry(t *testing.T) {
	s := newSigner(t, "log.example", receipt.Ed25519)
	entries, tree := logOf(t, 7)
	r := must(receipt.ParseLogReceipt(must(receipt.SignInclusion(s, "run 2", inclusion(tree, 2), tree.root()))(t)))(t)
	if _, err := r.VerifyInclusion(s.key, entries[2]); err != nil {
		t.Errorf("positive control: %v", err)
	}
	for i, e := range entries {
		if _, err := r.VerifyInclusion(s.key, e); i != 2 && stage(err) != "subject" {
			t.Errorf("entry %d: got %v", i, err)
		}
		if _, err := r.InclusionRoot(e); i != 2 && stage(err) != "subject" {
			t.Errorf("entry %d, no key: got %v", i, err)
		}
	}
	runner := newSigner(t, "runner.example", receipt.Ed25519)
	same := must(receipt.Sign1(receipt.KindCheckpoint, runner, "run 2", []byte{0xa1, 1, 2}))(t)
	if root, err := r.InclusionRoot(same); err != nil || root == tree.root() {
		t.Errorf("another entry of the run leads to %x, %v", root, err)
	}
	_, err := r.VerifyInclusion(s.key, same)
	if stage(err) != "signature" || !strings.Contains(err.Error(), fmt.Sprintf("%x", must(r.InclusionRoot(same))(t))) {
		t.Errorf("another entry of the run: got %v, want the root that is not signed", err)
	}
	for name, e := range map[string][]byte{"nothing": nil, "no statement": []byte("x"), "too long": make([]byte, receipt.MaxEntry+1)} {
		if _, err := r.VerifyInclusion(s.key, e); stage(err) != "size" && stage(err) != "tag" {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// One key under two names is two logs.
func TestRT77_SameKeyUnderAnotherOrigin(t *testing.T) {
	s := newSigner(t, "log.example", receipt.Ed25519)
	other := must(receipt.NewPublicKey("log.example/other", s.priv.Public()))(t)
	unpinned := newSigner(t, "another.example", receipt.Ed25519)
	entries, tree := logOf(t, 3)
	in := must(receipt.ParseLogReceipt(must(receipt.SignInclusion(s, "run 0", inclusion(tree, 0), tree.root()))(t)))(t)
	c := receipt.Consistency{Older: 2, Newer: 3, Path: tree.consistency(2, true)}
	con := must(receipt.ParseLogReceipt(must(receipt.SignConsistency(s, c, tree.root()))(t)))(t)
	for name, k := range map[string]struct {
		key  receipt.PublicKey
		want string
	}{
		"positive control": {s.key, "ok"},
		"other origin":     {other, "issuer"},
		"unpinned log":     {unpinned.key, "kid"},
		"no key":           {receipt.PublicKey{}, "alg"},
	} {
		if _, err := in.VerifyInclusion(k.key, entries[0]); stage(err) != k.want {
			t.Errorf("%s: got %v, want %s", name, err, k.want)
		}
		if _, err := con.VerifyConsistency(k.key, tree[:2].root(), tree.root()); stage(err) != k.want {
			t.Errorf("%s: got %v, want %s", name, err, k.want)
		}
	}
}

// Every change of one byte, by each of three masks, is refused.
func TestFlipEveryByteOfLogReceipt(t *testing.T) {
	s := newSigner(t, "log.example", receipt.ESP256)
	entries, tree := logOf(t, 6)
	data := must(receipt.SignInclusion(s, "run 4", inclusion(tree, 4), tree.root()))(t)
	open := func() error {
		r, err := receipt.ParseLogReceipt(data)
		if err != nil {
			return err
		}
		_, err = r.VerifyInclusion(s.key, entries[4])
		return err
	}
	if err := open(); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	for i := range data {
		for _, mask := range []byte{0x01, 0x20, 0xff} {
			data[i] ^= mask
			if got := stage(open()); got == "ok" || strings.HasPrefix(got, "no stage") {
				t.Errorf("byte %d ^ %02x: %s", i, mask, got)
			}
			data[i] ^= mask
		}
	}
}

// A parsed receipt is used from many goroutines.
func TestLogReceiptConcurrently(t *testing.T) {
	s := newSigner(t, "log.example", receipt.Ed25519)
	entries, tree := logOf(t, 6)
	r := must(receipt.ParseLogReceipt(must(receipt.SignInclusion(s, "run 4", inclusion(tree, 4), tree.root()))(t)))(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if _, err := r.VerifyInclusion(s.key, entries[4]); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// The consistency vectors of transparency-dev/merkle, signed as COSE receipts. A
// proof that cannot be of any two trees is not even signed. The corpus calls a
// proof from the empty tree good, or useless; here there is nothing to prove.
func TestMerkleConsistencyVectors(t *testing.T) {
	s := newSigner(t, "log.example", receipt.Ed25519)
	files, err := filepath.Glob(filepath.Join(corpus(t, "merkle"), "consistency", "*", "*.json"))
	if err != nil || len(files) < 98 {
		t.Fatalf("got %d files, want at least 98 (%v)", len(files), err)
	}
	good, bad, empty := 0, 0, 0
	for _, path := range files {
		var c struct {
			Size1, Size2 uint64
			Root1, Root2 []byte
			Proof        [][]byte
			WantErr      bool
		}
		readJSON(t, path, &c)
		proof := receipt.Consistency{Older: c.Size1, Newer: c.Size2}
		short := false
		for _, h := range c.Proof {
			if short = short || len(h) != 32; !short {
				proof.Path = append(proof.Path, [32]byte(h))
			}
		}
		if short { // the types have no place for such a hash
			if !c.WantErr {
				t.Errorf("%s: a short hash is good", path)
			}
			bad++
			continue
		}
		older, newer := asRoot(c.Root1), asRoot(c.Root2)
		data, err := receipt.SignConsistency(s, proof, newer)
		if err == nil {
			_, err = must(receipt.ParseLogReceipt(data))(t).VerifyConsistency(s.key, older, newer)
		}
		switch {
		case c.Size1 == 0:
			empty++
			if stage(err) != "proof" {
				t.Errorf("%s: from the empty tree: got %v", path, err)
			}
		case (err != nil) != c.WantErr || err != nil && stage(err) != "proof":
			t.Errorf("%s: got %v, want an error %v", path, err, c.WantErr)
		case err == nil:
			good++
		default:
			bad++
		}
	}
	t.Logf("%d good, %d bad, %d from the empty tree", good, bad, empty)
	if good < 4 || bad < 80 {
		t.Errorf("got %d good and %d bad, want at least 4 and 80", good, bad)
	}
}

// asRoot stands for a root of another length too.
func asRoot(b []byte) [32]byte {
	if len(b) == 32 {
		return [32]byte(b)
	}
	return sum(b)
}
