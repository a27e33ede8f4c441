package journal

import (
	"fmt"
	"io"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// A Disclosure opens one row to anybody who trusts a head: the row's detail, and
// that its path digests are those of the true path and of each directory above.
// It opens nothing else. One that ParseDisclosure returned is not verified.
type Disclosure struct {
	Size   uint64     `cbor:"1,keyasint"` // of the head that the proofs lead to
	Start  Proven     `cbor:"2,keyasint"`
	Row    Proven     `cbor:"3,keyasint"`
	Salt   [32]byte   `cbor:"4,keyasint"`
	Detail []byte     `cbor:"5,keyasint"`
	Dirs   []Proven   `cbor:"6,keyasint"` // dir rows of all directories above Path, then those above Path2 that are not yet there
	Keys   [][32]byte `cbor:"7,keyasint"` // scope.Key of "/", each directory below it, and Path; empty without Path
	Keys2  [][32]byte `cbor:"8,keyasint"` // the same for Path2
}

// Proven is a row with its inclusion proof; its number is in the row.
type Proven struct {
	_     struct{} `cbor:",toarray"`
	Row   []byte
	Proof [][32]byte
}

// Opened is what a verified disclosure shows.
type Opened struct {
	Start  Start
	Row    Row
	Detail Detail
}

// MaxDisclosure bounds an encoded disclosure, in bytes.
const MaxDisclosure = MaxDetail + 16<<20

// FormatDisclosure returns the deterministic encoding.
func FormatDisclosure(d *Disclosure) ([]byte, error) { return dcbor.Marshal(d) }

// ParseDisclosure decodes what FormatDisclosure writes and nothing else.
func ParseDisclosure(raw []byte) (*Disclosure, error) {
	if len(raw) > MaxDisclosure {
		return nil, broken(RuleFrame, "at most 32 MiB", "a disclosure of %d bytes", len(raw))
	}
	d := new(Disclosure)
	if err := dcbor.Unmarshal(raw, d); err != nil {
		return nil, broken(RuleEncoding, "deterministic CBOR of the closed schema", "%v", err)
	}
	return d, nil
}

// Disclose opens row seq of a journal, from its two files and its secret. Rows
// are checked as by a Checker on the way.
func Disclose(rows, details io.Reader, secret Secret, seq uint64) (*Disclosure, error) {
	var (
		tree  Tree
		check = NewChecker()
		raws  = map[uint64][]byte{} // start, dir rows, and the row itself
		dirs  = map[scope.Ref]Row{}
		row   Row
	)
	for line, err := range Rows(rows) {
		if err != nil {
			return nil, err
		}
		if _, err := check.Add(line.Raw); err != nil {
			return nil, err
		}
		r := line.Row
		if r.Op == OpDir && r.Seq < seq {
			dirs[scope.Ref{Dir: r.Path.Dir, Digest: r.Path.Digest}] = r
		}
		if r.Seq == seq {
			row = r
		}
		if r.Seq == seq || r.Op == OpStart || r.Op == OpDir {
			raws[r.Seq] = line.Raw
		}
		tree.Append(line.Raw)
	}
	if raws[seq] == nil {
		return nil, broken(RuleOpening, fmt.Sprintf("a row below %d", tree.Size()), "row %d", seq)
	}
	d := &Disclosure{Size: tree.Size(), Salt: secret.Salt(seq)}
	n := uint64(0)
	for raw, err := range Details(details) {
		if err != nil {
			return nil, err
		}
		if n == seq {
			d.Detail = raw
			break
		}
		n++
	}
	if !row.Opens(d.Salt, d.Detail) {
		return nil, broken(RuleOpening, "the detail and secret that the row was written with", "others for row %d", seq)
	}
	var err error
	if d.Start, err = proven(&tree, raws, 0); err != nil {
		return nil, err
	}
	if d.Row, err = proven(&tree, raws, seq); err != nil {
		return nil, err
	}
	return d, d.addPaths(&tree, raws, dirs, &row, secret.PathKey())
}

func proven(tree *Tree, raws map[uint64][]byte, seq uint64) (Proven, error) {
	path, err := tree.Inclusion(seq, tree.Size())
	return Proven{Row: raws[seq], Proof: path}, err
}

func (d *Disclosure) addPaths(tree *Tree, raws map[uint64][]byte, dirs map[scope.Ref]Row, row *Row, k scope.PathKey) error {
	detail, err := ParseDetail(d.Detail)
	if err != nil {
		return err
	}
	shown := map[uint64]bool{}
	for _, p := range [...]struct {
		ref  *PathRef
		path string
		keys *[][32]byte
	}{{row.Path, detail.Path, &d.Keys}, {row.Path2, detail.Path2, &d.Keys2}} {
		if p.ref == nil {
			continue
		}
		chain := prefixes(p.path)
		number := uint32(0)
		for i, prefix := range chain {
			key := scope.Key(k, prefix)
			*p.keys = append(*p.keys, key)
			if i == 0 || i == len(chain)-1 {
				continue
			}
			dir, ok := dirs[scope.Ref{Dir: number, Digest: scope.Digest(key, prefix)}]
			if !ok {
				return broken(RuleOpening, "a dir row for each directory of the path", "none for one above row %d", row.Seq)
			}
			number = dir.Child
			if shown[dir.Seq] {
				continue
			}
			shown[dir.Seq] = true
			one, err := proven(tree, raws, dir.Seq)
			if err != nil {
				return err
			}
			d.Dirs = append(d.Dirs, one)
		}
	}
	return nil
}

// prefixes returns "/", each directory of the clean path p below it, and p.
func prefixes(p string) []string {
	list := []string{"/"}
	if p == "/" {
		return list
	}
	for i := 1; i < len(p); i++ {
		if p[i] == '/' {
			list = append(list, p[:i])
		}
	}
	return append(list, p)
}

// Verify checks the disclosure against a head that the caller trusts. The error
// is a *RuleError. It stops a recorder that gave a row the digests of another
// path, and a discloser who shows another detail.
func (d *Disclosure) Verify(head Head) (*Opened, error) {
	if d.Size != head.Size {
		return nil, broken(RuleOpening, fmt.Sprintf("proofs for the head's size %d", head.Size), "size %d", d.Size)
	}
	o := new(Opened)
	first, err := d.Start.verify(head)
	if err != nil {
		return nil, err
	}
	if first.Seq != 0 || first.Start == nil {
		return nil, broken(RuleOpening, "the start row", "row %d", first.Seq)
	}
	o.Start = *first.Start
	if err := CheckStart(&o.Start); err != nil {
		return nil, broken(RuleStart, "a valid start", "%v", err)
	}
	if o.Start.Run != head.Run {
		return nil, broken(RuleOpening, fmt.Sprintf("a start row of run %x", head.Run), "run %x", o.Start.Run)
	}
	if o.Row, err = d.Row.verify(head); err != nil {
		return nil, err
	}
	if !o.Row.Opens(d.Salt, d.Detail) {
		return nil, d.wrong(&o.Row, "salt and detail that open the row's commitment", "others")
	}
	if o.Detail, err = ParseDetail(d.Detail); err != nil {
		return nil, at(err, o.Row.Seq)
	}
	if err := d.verifyPaths(head, o); err != nil {
		return nil, err
	}
	return o, nil
}

func (p Proven) verify(head Head) (Row, error) {
	r, err := ParseRow(p.Row)
	if err != nil {
		return Row{}, err
	}
	return r, VerifyInclusion(head, r.Seq, p.Row, p.Proof)
}

func (d *Disclosure) wrong(r *Row, want, gotFormat string, a ...any) error {
	err := broken(RuleOpening, want, gotFormat, a...)
	err.Row = r.Seq
	return err
}

func (d *Disclosure) verifyPaths(head Head, o *Opened) error {
	dirs := map[uint32]*Row{}
	for _, p := range d.Dirs {
		r, err := p.verify(head)
		if err != nil {
			return err
		}
		if r.Op != OpDir || r.Path == nil || r.Seq >= o.Row.Seq || dirs[r.Child] != nil {
			return d.wrong(&r, "dir rows before the row, each once", "operation %v", r.Op)
		}
		dirs[r.Child] = &r
	}
	used := map[uint32]bool{}
	if err := d.verifyPath(o, o.Row.Path, o.Detail.Path, d.Keys, dirs, used); err != nil {
		return err
	}
	if err := d.verifyPath(o, o.Row.Path2, o.Detail.Path2, d.Keys2, dirs, used); err != nil {
		return err
	}
	if len(used) != len(dirs) {
		return d.wrong(&o.Row, fmt.Sprintf("the %d dir rows above the path", len(used)), "%d", len(dirs))
	}
	return nil
}

func (d *Disclosure) verifyPath(o *Opened, ref *PathRef, path string, keys [][32]byte, dirs map[uint32]*Row, used map[uint32]bool) error {
	if ref == nil {
		if len(keys) != 0 {
			return d.wrong(&o.Row, "no keys without a path", "%d", len(keys))
		}
		return nil
	}
	if err := scope.CheckPath(path); err != nil {
		return d.wrong(&o.Row, "a clean path in the detail", "%v", err)
	}
	chain := prefixes(path)
	if len(keys) != len(chain) {
		return d.wrong(&o.Row, fmt.Sprintf("%d keys: \"/\", each directory, the path", len(chain)), "%d", len(keys))
	}
	// Walk up from the row: each number must lead to the next prefix.
	number, digest := ref.Dir, ref.Digest
	for i := len(chain) - 1; ; i-- {
		if err := d.verifyKey(o, chain[i], keys[i]); err != nil {
			return err
		}
		if scope.Digest(keys[i], chain[i]) != digest {
			return d.wrong(&o.Row, "keys that give the digests of the row and its directories", "another digest for prefix %d of %d", i, len(chain))
		}
		if i <= 1 {
			break
		}
		dir := dirs[number]
		if dir == nil {
			return d.wrong(&o.Row, fmt.Sprintf("the dir row of directory %d", number), "none")
		}
		used[number] = true
		number, digest = dir.Path.Dir, dir.Path.Digest
	}
	if number != 0 {
		return d.wrong(&o.Row, "a path that begins at directory 0", "directory %d", number)
	}
	return d.verifyKey(o, "/", keys[0])
}

// verifyKey holds the key of a path that is a root to the start row's: else a
// lie in one row could give the row's path a digest outside every root, or
// inside one.
func (d *Disclosure) verifyKey(o *Opened, path string, key [32]byte) error {
	for _, r := range o.Start.Roots {
		if r.Path == path && r.Key != key {
			return d.wrong(&o.Row, fmt.Sprintf("the start row's key of root %q", path), "another")
		}
	}
	return nil
}
