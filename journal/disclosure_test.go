package journal

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// disclosed opens row seq of a finished bench.
func disclosed(t *testing.T, b *bench, seq uint64) *Disclosure {
	t.Helper()
	d, err := Disclose(bytes.NewReader(b.rows.Bytes()), bytes.NewReader(b.details.Bytes()), testSecret, seq)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func finished(t *testing.T) (*bench, Head) {
	t.Helper()
	b := newBench(t)
	b.run(t)
	head, err := b.Final(Final{Outcome: Completed}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return b, head
}

// Every row of a run can be opened, and shows what was written.
func TestDiscloseEveryRow(t *testing.T) {
	b, head := finished(t)
	paths := 0
	for seq := range head.Size {
		d := disclosed(t, b, seq)
		raw, err := FormatDisclosure(d)
		if err != nil {
			t.Fatal(err)
		}
		back, err := ParseDisclosure(raw)
		if err != nil {
			t.Fatal(err)
		}
		o, err := back.Verify(head)
		if err != nil {
			t.Fatalf("row %d: %v", seq, err)
		}
		if o.Row.Seq != seq || o.Start.Run != head.Run {
			t.Errorf("row %d: got row %d", seq, o.Row.Seq)
		}
		if o.Row.Path != nil {
			paths++
			if want := strings.Count(o.Detail.Path, "/") + 1; o.Detail.Path != "/" && len(d.Keys) != want {
				t.Errorf("%s: got %d keys, want %d", o.Detail.Path, len(d.Keys), want)
			}
		}
		// Nothing but this row's detail is in it.
		for other := range head.Size {
			if salt := testSecret.Salt(other); other != seq && bytes.Contains(raw, salt[:]) {
				t.Errorf("row %d: holds the salt of row %d", seq, other)
			}
		}
		if bytes.Contains(raw, testSecret[:]) {
			t.Error("holds the secret")
		}
	}
	if paths < 10 {
		t.Errorf("got %d rows with paths, want at least 10", paths)
	}
	if _, err := Disclose(bytes.NewReader(b.rows.Bytes()), bytes.NewReader(b.details.Bytes()), testSecret, head.Size); !isRule(err, RuleOpening) {
		t.Errorf("row after the last: got %v, want rule opening", err)
	}
	if _, err := Disclose(bytes.NewReader(b.rows.Bytes()), bytes.NewReader(b.details.Bytes()), Secret{9}, 3); !isRule(err, RuleOpening) {
		t.Errorf("another secret: got %v, want rule opening", err)
	}
}

// rowOf finds the row of a path.
func rowOf(t *testing.T, b *bench, path string, op Op) uint64 {
	t.Helper()
	n := uint64(0)
	for raw := range Details(bytes.NewReader(b.details.Bytes())) {
		d, err := ParseDetail(raw)
		if err != nil {
			t.Fatal(err)
		}
		if d.Path == path && rowAt(t, b, n).Op == op {
			return n
		}
		n++
	}
	t.Fatalf("no row for %s", path)
	return 0
}

func rowAt(t *testing.T, b *bench, seq uint64) Row {
	t.Helper()
	for line := range Rows(bytes.NewReader(b.rows.Bytes())) {
		if line.Row.Seq == seq {
			return line.Row
		}
	}
	t.Fatalf("no row %d", seq)
	return Row{}
}

func TestDisclosureForged(t *testing.T) {
	b, head := finished(t)
	good := func() *Disclosure { return disclosed(t, b, rowOf(t, b, "/work/a/b/x", OpOpen)) }
	if _, err := good().Verify(head); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	other := disclosed(t, b, rowOf(t, b, "/home/me/hidden", OpOpen))
	leftOver := disclosed(t, b, rowOf(t, b, "/usr", OpDir)).Row
	detail := func(d Detail) []byte {
		raw, err := EncodeDetail(&d)
		if err != nil {
			t.Fatal(err)
		}
		return raw
	}
	for name, c := range map[string]struct {
		rule  Rule
		forge func(*Disclosure)
	}{
		"other detail":        {RuleOpening, func(d *Disclosure) { d.Detail = detail(Detail{Path: "/work/a/b/y"}) }},
		"other salt":          {RuleOpening, func(d *Disclosure) { d.Salt[0] ^= 1 }},
		"other row's opening": {RuleOpening, func(d *Disclosure) { d.Salt, d.Detail = other.Salt, other.Detail }},
		"row changed":         {RuleProof, func(d *Disclosure) { d.Row.Row = changed(t, d.Row.Row) }},
		"proof cut":           {RuleProof, func(d *Disclosure) { d.Row.Proof = d.Row.Proof[1:] }},
		"start of a dir row":  {RuleOpening, func(d *Disclosure) { d.Start = d.Dirs[0] }},
		"start changed":       {RuleProof, func(d *Disclosure) { d.Start.Row = changed(t, d.Start.Row) }},
		"size":                {RuleOpening, func(d *Disclosure) { d.Size-- }},
		"key missing":         {RuleOpening, func(d *Disclosure) { d.Keys = d.Keys[1:] }},
		"keys missing":        {RuleOpening, func(d *Disclosure) { d.Keys = nil }},
		"key too many":        {RuleOpening, func(d *Disclosure) { d.Keys = append(d.Keys, d.Keys[0]) }},
		"own key wrong":       {RuleOpening, func(d *Disclosure) { d.Keys[len(d.Keys)-1][3] ^= 1 }},
		"directory key wrong": {RuleOpening, func(d *Disclosure) { d.Keys[2][3] ^= 1 }},
		"root key wrong":      {RuleOpening, func(d *Disclosure) { d.Keys[1][3] ^= 1 }},
		"/ key wrong":         {RuleOpening, func(d *Disclosure) { d.Keys[0][3] ^= 1 }},
		"keys without path":   {RuleOpening, func(d *Disclosure) { d.Keys2 = d.Keys }},
		"dir row missing":     {RuleOpening, func(d *Disclosure) { d.Dirs = d.Dirs[1:] }},
		"dir row too many":    {RuleOpening, func(d *Disclosure) { d.Dirs = append(d.Dirs, other.Dirs[0]) }},
		"dir row left over":   {RuleOpening, func(d *Disclosure) { d.Dirs = append(d.Dirs, leftOver) }},
		"dir row twice":       {RuleOpening, func(d *Disclosure) { d.Dirs = append(d.Dirs, d.Dirs[0]) }},
		"no dir row":          {RuleOpening, func(d *Disclosure) { d.Dirs[0] = d.Row }},
		"dir row changed":     {RuleProof, func(d *Disclosure) { d.Dirs[0].Row = changed(t, d.Dirs[0].Row) }},
	} {
		d := good()
		c.forge(d)
		if o, err := d.Verify(head); !isRule(err, c.rule) || o != nil {
			t.Errorf("%s: got %v, want rule %s", name, err, c.rule)
		}
	}
	foreign := head
	foreign.Run[0]++
	if _, err := good().Verify(foreign); !isRule(err, RuleOpening) {
		t.Errorf("another run: got %v, want rule opening", err)
	}
}

// changed gives a row another commitment.
func changed(t *testing.T, raw []byte) []byte {
	t.Helper()
	r, err := ParseRow(raw)
	if err != nil {
		t.Fatal(err)
	}
	r.Commit[0] ^= 1
	out, err := EncodeRow(nil, &r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// lying is a journal of a recorder that keeps every rule but gives the open of a
// hidden file digests of its choice.
type lying struct {
	c    *Checker
	tree Tree
	raws [][]byte
	k    scope.PathKey
}

func newLying(t *testing.T) *lying {
	l := &lying{c: NewChecker(), k: testSecret.PathKey()}
	s := testStart()
	s.Version = Version
	scope.SortRoots(l.k, s.Roots)
	l.add(t, Row{Op: OpStart, Start: &s}, Detail{})
	l.add(t, Row{Phase: PhaseAgent, Op: OpFork, Child: 1}, Detail{})
	return l
}

func (l *lying) add(t *testing.T, r Row, d Detail) uint64 {
	t.Helper()
	r.Seq = l.tree.Size()
	detail, err := EncodeDetail(&d)
	if err != nil {
		t.Fatal(err)
	}
	r.Commit = Commit(testSecret.Salt(r.Seq), detail)
	raw, err := EncodeRow(nil, &r)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.c.Add(raw); err != nil {
		t.Fatalf("the lie must keep the rules of rows: %v", err)
	}
	l.tree.Append(raw)
	l.raws = append(l.raws, raw)
	return r.Seq
}

func (l *lying) proven(t *testing.T, seq uint64) Proven {
	t.Helper()
	p, err := l.tree.Inclusion(seq, l.tree.Size())
	if err != nil {
		t.Fatal(err)
	}
	return Proven{Row: l.raws[seq], Proof: p}
}

// TestRT57_LyingDigestsCannotBeDisclosed: a recorder that passed a hidden file
// off as one of the workspace, or outside a root that refuses it, finds no
// opening for the row.
func TestRT57_LyingDigestsCannotBeDisclosed(t *testing.T) {
	const hidden = "/hidden/test"
	k := testSecret.PathKey()
	digest := func(p string) [32]byte { return scope.Digest(scope.Key(k, p), p) }
	odd := [32]byte{7} // a key that is not the path's
	open := Row{Phase: PhaseAgent, Proc: 1, Op: OpOpen, Flags: FlagRead, Dir: DirIn, Origin: OriginInput, Object: 1, Size: 9}
	dirRow := func(n uint32, d [32]byte) Row {
		return Row{Phase: PhaseAgent, Op: OpDir, Child: n, Path: &PathRef{Digest: d}}
	}
	keys := func(paths ...string) (list [][32]byte) {
		for _, p := range paths {
			list = append(list, scope.Key(k, p))
		}
		return list
	}
	for name, c := range map[string]struct {
		dir    [32]byte // digest of directory 1
		own    [32]byte
		path   string
		keys   [][32]byte
		honest bool
	}{
		"control: honest":       {digest("/work"), digest("/work/x"), "/work/x", keys("/", "/work", "/work/x"), true},
		"dir row of /work":      {digest("/work"), digest(hidden), hidden, keys("/", "/hidden", hidden), false},
		"own digest of a grant": {digest("/srv"), digest("/srv/data.csv"), hidden, keys("/", "/srv", "/srv/data.csv"), false},
		"not clean":             {digest("/work"), digest("/work/../x"), "/work/../x", keys("/", "/work", "/work/..", "/work/../x"), false},
		"path cut short":        {digest("/work"), digest("/x"), "/x", keys("/", "/x"), false},
		"another key of a root": {scope.Digest(odd, "/srv"), scope.Digest(odd, "/srv/data.csv"), "/srv/data.csv", [][32]byte{scope.Key(k, "/"), odd, odd}, false},
	} {
		l := newLying(t)
		dir := l.add(t, dirRow(1, c.dir), Detail{})
		r, path := open, Detail{Path: c.path}
		r.Path = &PathRef{Dir: 1, Digest: c.own}
		if c.own == scope.Digest(odd, "/srv/data.csv") {
			r.Flags |= FlagOutOfScope
		}
		seq := l.add(t, r, path)
		raw, err := EncodeDetail(&path)
		if err != nil {
			t.Fatal(err)
		}
		d := Disclosure{Size: l.tree.Size(), Start: l.proven(t, 0), Row: l.proven(t, seq), Salt: testSecret.Salt(seq), Detail: raw,
			Dirs: []Proven{l.proven(t, dir)}, Keys: c.keys}
		head := headOf(t, &l.tree, l.tree.Size())
		_, err = d.Verify(head)
		if c.honest && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !c.honest && !isRule(err, RuleOpening) {
			t.Errorf("%s: got %v, want rule opening", name, err)
		}
	}
}

func TestParseDisclosureStrict(t *testing.T) {
	b, _ := finished(t)
	raw, err := FormatDisclosure(disclosed(t, b, 5))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ParseDisclosure(raw); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	unknown := slices.Clone(raw)
	unknown[0]++
	unknown = append(unknown, 9, 0)
	for name, bad := range map[string][]byte{"trailing": append(slices.Clone(raw), 0), "cut": raw[:len(raw)-1], "unknown key": unknown, "empty": nil} {
		if d, err := ParseDisclosure(bad); !isRule(err, RuleEncoding) || d != nil {
			t.Errorf("%s: got %v, want rule encoding", name, err)
		}
	}
}

func FuzzDisclosure(f *testing.F) {
	f.Add([]byte{0xa0})
	d := Disclosure{Size: 1, Row: Proven{Row: []byte{1}, Proof: [][32]byte{{1}}}}
	raw, err := FormatDisclosure(&d)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Fuzz(func(t *testing.T, raw []byte) {
		d, err := ParseDisclosure(raw)
		if err != nil {
			return
		}
		if again, err := dcbor.Marshal(d); err != nil || !bytes.Equal(again, raw) {
			t.Fatalf("got %x from %x, %v", again, raw, err)
		}
		if _, err := d.Verify(Head{Size: d.Size}); err == nil {
			t.Fatal("verified against a head of zeros")
		}
	})
}
