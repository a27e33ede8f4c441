package receipt_test

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// newMember is a log member that is well-formed, of a log of seven entries.
func newMember(t testing.TB) *receipt.LogMember {
	t.Helper()
	runner, owner, log := newSigner(t, "runner.example", receipt.Ed25519), newSigner(t, "owner.example", receipt.Ed25519), newSigner(t, "log.example", receipt.Ed25519)
	entry := func(k receipt.Kind) []byte { return must(receipt.Sign1(k, runner, "run", []byte{0xa0}))(t) }
	statements := [][]byte{
		must(receipt.SignHashEnvelope(receipt.KindSeal, owner, "bench/task", receipt.KindSealedSet.Type(), sum([]byte("set"))))(t),
		entry(receipt.KindRegister), entry(receipt.KindCheckpoint), entry(receipt.KindCheckpoint), entry(receipt.KindFinal), entry(receipt.KindReceipt), []byte("another"),
	}
	var tree naiveTree
	for _, s := range statements {
		tree = append(tree, receipt.LeafHash(s))
	}
	at := func(i int) receipt.LogEntry {
		return receipt.LogEntry{Statement: statements[i], Index: uint64(i), Path: tree.path(i)}
	}
	consistency := func(m, n int) []byte {
		c := receipt.Consistency{Older: uint64(m), Newer: uint64(n), Path: tree[:n].consistency(m, true)}
		return must(receipt.SignConsistency(log, c, tree[:n].root()))(t)
	}
	return &receipt.LogMember{
		Receipt: must(receipt.SignInclusion(log, "run", inclusion(tree, 5), tree.root()))(t),
		Seal:    at(0), Register: at(1), Checkpoints: []receipt.LogEntry{at(2), at(3)}, Final: at(4),
		Closing: []byte("a signed note"), ToClosing: consistency(2, 5), ToNewest: consistency(5, 7),
		Heads: [][][32]byte{{{1}, {2}}, nil},
	}
}

func TestLogMemberRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 2} {
		m := newMember(t)
		if m.Checkpoints, m.Heads = m.Checkpoints[:n], m.Heads[:n]; n == 0 {
			m.Checkpoints, m.Heads = nil, nil
		}
		data := must(receipt.FormatLog(m))(t)
		got := must(receipt.ParseLog(data))(t)
		if !reflect.DeepEqual(got, m) {
			t.Errorf("%d checkpoints: got %+v, want %+v", n, got, m)
		}
		if again := must(receipt.FormatLog(got))(t); !bytes.Equal(again, data) {
			t.Error("two encodings")
		}
	}
}

func TestLogMemberRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *receipt.LogMember)
		want   string
	}{
		"positive control":             {func(*receipt.LogMember) {}, "ok"},
		"no receipt":                   {func(m *receipt.LogMember) { m.Receipt = nil }, "size"},
		"receipt of consistency":       {func(m *receipt.LogMember) { m.Receipt = m.ToNewest }, "proof"},
		"consistency is inclusion":     {func(m *receipt.LogMember) { m.ToClosing = m.Receipt }, "proof"},
		"second one is inclusion":      {func(m *receipt.LogMember) { m.ToNewest = m.Receipt }, "proof"},
		"no consistency":               {func(m *receipt.LogMember) { m.ToNewest = nil }, "size"},
		"no SEAL":                      {func(m *receipt.LogMember) { m.Seal = receipt.LogEntry{} }, "size"},
		"REGISTER as SEAL":             {func(m *receipt.LogMember) { m.Seal = m.Register }, "header"},
		"SEAL as REGISTER":             {func(m *receipt.LogMember) { m.Register = m.Seal }, "header"},
		"FINAL as REGISTER":            {func(m *receipt.LogMember) { m.Register = m.Final }, "type"},
		"FINAL as CHECKPOINT":          {func(m *receipt.LogMember) { m.Checkpoints[1] = m.Final }, "type"},
		"CHECKPOINT as FINAL":          {func(m *receipt.LogMember) { m.Final = m.Checkpoints[0] }, "type"},
		"no FINAL":                     {func(m *receipt.LogMember) { m.Final = receipt.LogEntry{} }, "size"},
		"CHECKPOINTs swapped":          {func(m *receipt.LogMember) { m.Checkpoints[0], m.Checkpoints[1] = m.Checkpoints[1], m.Checkpoints[0] }, "proof"},
		"CHECKPOINT again":             {func(m *receipt.LogMember) { m.Checkpoints[1] = m.Checkpoints[0] }, "proof"},
		"path of 65":                   {func(m *receipt.LogMember) { m.Final.Path = make([][32]byte, 65) }, "proof"},
		"a head less":                  {func(m *receipt.LogMember) { m.Heads = m.Heads[1:] }, "proof"},
		"a head more":                  {func(m *receipt.LogMember) { m.Heads = append(m.Heads, nil) }, "proof"},
		"head with a path of 65":       {func(m *receipt.LogMember) { m.Heads[1] = make([][32]byte, 65) }, "proof"},
		"no closing":                   {func(m *receipt.LogMember) { m.Closing = nil }, "size"},
		"closing too long":             {func(m *receipt.LogMember) { m.Closing = make([]byte, receipt.MaxNote+1) }, "size"},
		"member too long":              {func(m *receipt.LogMember) { m.Closing = make([]byte, receipt.MaxLogMember) }, "size"},
		"statement is no COSE_Sign1":   {func(m *receipt.LogMember) { m.Final.Statement = []byte("x") }, "tag"},
		"statement with a second byte": {func(m *receipt.LogMember) { m.Final.Statement = append(m.Final.Statement, 0) }, "cbor"},
	} {
		m := newMember(t)
		c.change(m)
		if data, err := receipt.FormatLog(m); stage(err) != c.want || (data == nil) == (err == nil) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

// Other spellings, and other shapes, of a good member.
func TestLogMemberShapes(t *testing.T) {
	data := must(receipt.FormatLog(newMember(t)))(t)
	enc := must(cbor.CoreDetEncOptions().EncMode())(t)
	var m map[int64]cbor.RawMessage
	if err := cbor.Unmarshal(data, &m); err != nil {
		t.Fatal(err)
	}
	with := func(key int64, v any) []byte {
		other := map[int64]any{}
		for k, raw := range m {
			other[k] = raw
		}
		if other[key] = v; v == nil {
			delete(other, key)
		}
		return must(enc.Marshal(other))(t)
	}
	var final []cbor.RawMessage
	if err := cbor.Unmarshal(m[6], &final); err != nil {
		t.Fatal(err)
	}
	short := [][]byte{make([]byte, 31)}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"positive control":     {with(1, receipt.LogVersion), "ok"},
		"other version":        {with(1, "cleanrun/log/v2"), "type"},
		"unknown key":          {with(11, 0), "cbor"},
		"no key 5":             {with(5, nil), "canonical"},
		"heads null":           {with(10, cbor.RawMessage{0xf6}), "canonical"},
		"no key 10":            {with(10, nil), "canonical"},
		"checkpoints null":     {with(5, cbor.RawMessage{0xf6}), "canonical"},
		"hash of 31 bytes":     {with(6, []any{final[0], final[1], short}), "proof"},
		"entry of two":         {with(6, []any{final[0], final[1]}), "cbor"},
		"index negative":       {with(6, []any{final[0], -1, final[2]}), "cbor"},
		"nothing":              {nil, "size"},
		"a byte after":         {append(bytes.Clone(data), 0), "cbor"},
		"cut":                  {data[:len(data)-1], "cbor"},
		"two gigabytes":        {[]byte{0xa1, 0x02, 0x5a, 0x7f, 0xff, 0xff, 0xff}, "cbor"},
		"a billion checkpoint": {[]byte{0xa1, 0x05, 0x9a, 0x3f, 0xff, 0xff, 0xff}, "cbor"},
	} {
		if got, err := receipt.ParseLog(c.data); stage(err) != c.want || (got == nil) == (err == nil) {
			t.Errorf("%s: got %v, want %s", name, err, c.want)
		}
	}
}

func TestLogMemberAtCap(t *testing.T) {
	m := newMember(t)
	m.Closing = bytes.Repeat([]byte("c"), receipt.MaxNote)
	proto := m.Checkpoints[0]
	m.Checkpoints, m.Heads = nil, nil
	for i := range 10000 { // as many as a run of 10 million rows has
		proto.Index = uint64(i)
		m.Checkpoints = append(m.Checkpoints, proto)
	}
	data := must(receipt.FormatLog(m))(t)
	if len(data) > receipt.MaxLogMember {
		t.Errorf("%d bytes", len(data))
	}
}

func FuzzParseLog(f *testing.F) {
	f.Add(must(receipt.FormatLog(newMember(f)))(f))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := receipt.ParseLog(data)
		if err != nil {
			if m != nil || strings.HasPrefix(stage(err), "no stage") {
				t.Errorf("got %v with %v", m, err)
			}
			return
		}
		if again := must(receipt.FormatLog(m))(t); !bytes.Equal(again, data) {
			t.Errorf("accepted %x, which is written %x", data, again)
		}
	})
}

func TestHashEnvelope(t *testing.T) {
	bothAlgs(t, func(t *testing.T, s *testSigner) {
		digest := sum([]byte("what was sealed"))
		for kind, preimages := range map[receipt.Kind][]receipt.Kind{
			receipt.KindSeal:   {receipt.KindSealedSet, receipt.KindBenchmark},
			receipt.KindSubmit: {receipt.KindSubmission},
		} {
			for _, of := range preimages {
				data := must(receipt.SignHashEnvelope(kind, s, "bench/task", of.Type(), digest))(t)
				u := must(receipt.ParseSign1(kind, data))(t)
				v := must(u.Verify(s.key))(t)
				if v.PreimageType() != of.Type() || u.Unauthenticated().PreimageType != of.Type() || !bytes.Equal(v.Payload(), digest[:]) || v.Kind() != kind || v.Subject() != "bench/task" {
					t.Errorf("%v of %v: got %+v", kind, of, v)
				}
				if got := must(receipt.KindOf(data))(t); got != kind {
					t.Errorf("KindOf: got %v, want %v", got, kind)
				}
			}
			if _, err := receipt.SignHashEnvelope(kind, s, "bench/task", receipt.KindReceipt.Type(), digest); stage(err) != "type" {
				t.Errorf("%v of a receipt: got %v", kind, err)
			}
			if _, err := receipt.Sign1(kind, s, "bench/task", digest[:]); stage(err) != "type" {
				t.Errorf("%v by Sign1: got %v", kind, err)
			}
		}
		if _, err := receipt.SignHashEnvelope(receipt.KindReceipt, s, "run", receipt.KindSealedSet.Type(), digest); stage(err) != "type" {
			t.Errorf("a receipt as hash envelope: got %v", err)
		}
		data := must(receipt.Sign1(receipt.KindReceipt, s, "run", []byte("{}")))(t)
		if v := must(must(receipt.ParseSign1(receipt.KindReceipt, data))(t).Verify(s.key))(t); v.PreimageType() != "" {
			t.Errorf("a receipt has preimage type %q", v.PreimageType())
		}
	})
}

func TestKindOf(t *testing.T) {
	s := newSigner(t, "runner.example", receipt.Ed25519)
	n := 0
	for k := receipt.KindReceipt; k.Type() != ""; k++ {
		if k == receipt.KindSeal || k == receipt.KindSubmit {
			continue // TestHashEnvelope
		}
		n++
		data := must(receipt.Sign1(k, s, "sub", []byte{0xa0}))(t)
		if got, err := receipt.KindOf(data); got != k || err != nil {
			t.Errorf("%v: got %v, %v", k, got, err)
		}
		for other := receipt.KindReceipt; other.Type() != ""; other++ {
			if _, err := receipt.ParseSign1(other, data); (err == nil) != (other == k) {
				t.Errorf("%v as %v: got %v", k, other, err)
			}
		}
	}
	if n != 7 {
		t.Errorf("%d kinds, want 7", n)
	}
	for want, data := range map[string][]byte{"tag": nil, "cbor": {0xd2, 0x84, 0x40}} {
		if k, err := receipt.KindOf(data); k != 0 || stage(err) != want {
			t.Errorf("%x: got %v, %v", data, k, err)
		}
	}
	r := must(receipt.SignInclusion(s, "run", receipt.Inclusion{Size: 1}, [32]byte{}))(t)
	if _, err := receipt.KindOf(r); stage(err) != "type" {
		t.Errorf("a COSE receipt has no typ: got %v", err)
	}
}

// Entries end at 65,535 bytes: no log takes a longer one.
func TestEntryCap(t *testing.T) {
	s := newSigner(t, "runner.example", receipt.Ed25519)
	for _, k := range []receipt.Kind{receipt.KindRegister, receipt.KindCheckpoint, receipt.KindFinal} {
		small := must(receipt.Sign1(k, s, "run", make([]byte, 60000)))(t)
		most := 60000 + receipt.MaxEntry - len(small)
		if data := must(receipt.Sign1(k, s, "run", make([]byte, most)))(t); len(data) != receipt.MaxEntry {
			t.Errorf("%v: %d bytes, want the largest entry", k, len(data))
		}
		if _, err := receipt.Sign1(k, s, "run", make([]byte, most+1)); stage(err) != "size" {
			t.Errorf("%v: got %v", k, err)
		}
	}
	if got := fmt.Sprint(receipt.MaxEntry); got != "65535" {
		t.Errorf("got %s", got)
	}
}
