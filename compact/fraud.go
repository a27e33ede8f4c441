package compact

import (
	"fmt"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/bucket"
	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// FraudVersion of a fraud proof.
const FraudVersion = "cleanrun/fraud/v1"

// MaxFraud is the largest fraud proof in bytes. A row with content takes a few
// hundred, each of the four paths 32 bytes a level.
const MaxFraud = 4 << 10

// A Fraud convicts a signed statement: it shows one digest in an entry that the
// runner signed, and the bucket of the tree that the runner signed without it, or
// with it at a later row or in another direction. Anybody checks it, without key
// and evidence. What it says is unauthenticated until Convicts has returned.
type Fraud struct {
	Version    string `cbor:"1,keyasint"`
	Row        []byte `cbor:"2,keyasint"` // of the digest, as in the journal
	RowPath    []byte `cbor:"3,keyasint"` // to the journal's root
	Entry      *Entry `cbor:"4,keyasint"` // of the row; it shows the digest
	EntryPath  []byte `cbor:"5,keyasint"` // to the root over all entries
	Bucket     []byte `cbor:"6,keyasint"` // where the digest belongs
	BucketPath []byte `cbor:"7,keyasint"` // to the root of the tree
}

// ParseFraud reads a fraud proof and checks its form. The error is an *Error.
func ParseFraud(data []byte) (*Fraud, error) {
	if len(data) > MaxFraud {
		return nil, broken(RuleShape, "got %d bytes, want at most %d", len(data), MaxFraud)
	}
	f := new(Fraud)
	if err := dcbor.Unmarshal(data, f); err != nil {
		return nil, &Error{RuleShape, err}
	}
	if f.Version != FraudVersion {
		return nil, broken(RuleVersion, "got %q, want %q: another version of cleanrun may read it", f.Version, FraudVersion)
	}
	e := f.Entry
	if e == nil || e.Shown == nil || len(e.Shown.Places) != 1 || len(e.Shown.Digests) != attest.DigestSize || e.Same != nil {
		return nil, broken(RuleShape, "want an entry that shows one digest of its own")
	}
	for _, path := range [][]byte{f.RowPath, f.EntryPath, f.BucketPath, e.Shown.Path} {
		if len(path)%32 != 0 {
			return nil, broken(RuleShape, "got a path of %d bytes, want a multiple of 32", len(path))
		}
	}
	return f, nil
}

// Marshal returns the one encoding of the fraud proof.
func (f *Fraud) Marshal() ([]byte, error) {
	data, err := dcbor.Marshal(f)
	if err == nil && len(data) > MaxFraud {
		err = fmt.Errorf("fraud proof: got %d bytes, want at most %d", len(data), MaxFraud)
	}
	return data, err
}

// Convicts checks a fraud proof against a statement whose signature was verified,
// and says what it proves. The error is an *Error if it proves nothing.
func (f *Fraud) Convicts(stated *attest.Predicate) (string, error) {
	r, err := parseRoots(stated)
	if err != nil {
		return "", err
	}
	row, err := journal.ParseRow(f.Row)
	if err != nil {
		return "", &Error{RuleRows, err}
	}
	if row.Size == 0 || row.Seq >= r.head.Size {
		return "", broken(RuleRows, "got row %d of %d bytes of content in a journal of %d rows, want one with content", row.Seq, row.Size, r.head.Size)
	}
	s, d := f.Entry.Shown, digest(f.Entry.Shown.Digests)
	for _, u := range []struct {
		rule, what  string
		root        [32]byte
		size, place uint64
		leaf        [32]byte
		path        []byte
	}{
		{RuleRowPath, "the row", r.head.Root, r.head.Size, row.Seq, journal.LeafHash(f.Row), f.RowPath},
		{RuleEntryPath, "the entry", r.entries, r.head.Size, row.Seq, attest.EntryLeaf(row.Seq, f.Entry.entry(), f.Entry.Count), f.EntryPath},
		{RuleShown, "the digest", f.Entry.Root, f.Entry.Count, s.Places[0], attest.DigestLeaf(d), s.Path},
	} {
		if err := under(u.rule, u.what, u.root, u.size, []uint64{u.place}, [][32]byte{u.leaf}, u.path); err != nil {
			return "", err
		}
	}
	p := &bucket.Proof{Buckets: [][]byte{f.Bucket}, Path: hashes(f.BucketPath)}
	found, err := p.Check(r.tree, r.depth, []digest{d})
	if err != nil {
		return "", &Error{RuleBuckets, err}
	}
	if crime := differs(found, d, row.Seq, uint8(row.Dir)); crime != "" {
		return crime, nil
	}
	return "", broken(RuleFirst, "the tree has digest %x at row %d, as it should: the proof convicts nobody", d, found[d].First)
}

// differs says what is wrong with a tree that has a digest of row seq so.
func differs(found map[digest]bucket.Entry, d digest, seq uint64, direction uint8) string {
	switch e, ok := found[d]; {
	case !ok:
		return fmt.Sprintf("the signed tree leaves out a digest of event %d", seq)
	case e.First > seq:
		return fmt.Sprintf("the signed tree has a digest of event %d as if event %d were the first to hold it", seq, e.First)
	case e.First == seq && e.Direction != direction:
		return fmt.Sprintf("the signed tree has a digest of event %d in the other direction", seq)
	}
	return ""
}

// Accuse compares a compact proof with the whole evidence of its run and makes a
// fraud proof of the first sealed item or control that the signed tree has
// otherwise than the evidence. nil says that there is none. The evidence is one of
// the entries that the statement binds: attest.ReadEntries, which does not ask
// whether its own tree is right.
func Accuse(set *contraband.Set, ev *attest.Evidence, p *Proof, stated *attest.Predicate) (*Fraud, error) {
	r, err := parseRoots(stated)
	if err != nil {
		return nil, err
	}
	root := ev.Entries()
	if head := ev.Head(); head != r.head || root != r.entries {
		return nil, broken(RuleStatement, "the evidence has journal root %x and entries %x, the statement %x and %x: it is not what the runner signed", head.Root, root, r.head.Root, r.entries)
	}
	asked := ask(set, ev.Salt(), p.Controls)
	c := &checker{proof: p, roots: r}
	if err := c.tree(asked); err != nil {
		return nil, err
	}
	seq := uint64(0)
	for raw, e := range ev.Items() {
		if e != nil {
			row, err := journal.ParseRow(raw)
			if err != nil {
				return nil, err
			}
			for at := 0; at < len(e.Digests); at += attest.DigestSize {
				d := digest(e.Digests[at:])
				if (asked.items[d] || asked.controls[d]) && differs(c.found, d, seq, uint8(row.Dir)) != "" {
					return c.accuse(asked, ev, raw, e, seq, d, uint64(at/attest.DigestSize))
				}
			}
		}
		seq++
	}
	return nil, nil
}

func (c *checker) accuse(a *asked, ev *attest.Evidence, raw []byte, e *attest.Entry, seq uint64, d digest, at uint64) (*Fraud, error) {
	tree := &bucket.Proof{Buckets: c.proof.Buckets, Path: hashes(c.proof.BucketPath)}
	single, err := tree.Single(c.roots.depth, a.list, d)
	if err != nil {
		return nil, err
	}
	m := &maker{ev: ev, rest: map[uint64]bool{seq: true}, held: map[uint64]*Shown{seq: {Places: []uint64{at}, Digests: d[:]}}}
	f := &Fraud{Version: FraudVersion, Row: raw, Entry: m.entry(seq, e), Bucket: single.Buckets[0], BucketPath: joined(single.Path)}
	f.RowPath, f.EntryPath = paths(ev, []uint64{seq}, []uint64{seq})
	return f, nil
}
