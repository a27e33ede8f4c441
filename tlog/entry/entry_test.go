package entry

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/submission"
)

// key signs with an Ed25519 key that is made from its name.
type key struct {
	public receipt.PublicKey
	secret ed25519.PrivateKey
}

func newKey(name string) key {
	sum := sha256.Sum256([]byte(name))
	secret := ed25519.NewKeyFromSeed(sum[:])
	public, err := receipt.NewPublicKey(name, secret.Public())
	if err != nil {
		panic(err)
	}
	return key{public, secret}
}

func (k key) Public() receipt.PublicKey           { return k.public }
func (k key) Sign(message []byte) ([]byte, error) { return ed25519.Sign(k.secret, message), nil }

var (
	owner    = newKey("bench.example/owner")
	owner2   = newKey("other.example/owner")
	runner   = newKey("evals.example/runner")
	attacker = newKey("attacker.example/runner")
)

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func sum(text string) [32]byte { return sha256.Sum256([]byte(text)) }

func runID(n byte) (run [16]byte) {
	run[0], run[15] = 0xc1, n
	return run
}

func seal() Seal { return Seal{"bench", receipt.KindBenchmark, sum("head")} }

func register(n byte) Register {
	return Register{Run: runID(n), Benchmark: "bench", Task: "täsk 1", Trial: 1, Attempt: uint32(n), Seal: sum("part"), Sealed: sum("head"),
		Baseline: sum("baseline"), Scope: sum("scope"), Agent: sum("agent"), Model: sum("model"), Recorder: "0.4.0", Start: sum("start")}
}

func head(n byte, size uint64) journal.Head {
	return journal.Head{Run: runID(n), Size: size, Root: sum(fmt.Sprint("root ", size))}
}

func final(n byte, size uint64) Final {
	return Final{Head: head(n, size), Outcome: journal.Failed, Code: 3, Checkpoints: 1,
		Counts: []journal.OpCount{{Op: journal.OpStart, N: 1}, {Phase: journal.PhaseAgent, Op: journal.OpOpen, N: size - 2}}}
}

func statement(h journal.Head) *attest.Statement {
	id, root := hexRun(h.Run), hex.EncodeToString(h.Root[:])
	s := &attest.Statement{Type: attest.StatementType, PredicateType: attest.PredicateType,
		Subject: []attest.Subject{{Name: journal.OriginPrefix + id, Digest: attest.SubjectDigest{SHA256: root}}}}
	s.Predicate.Verdict = attest.Clean
	s.Predicate.Run.ID = id
	s.Predicate.Journal = attest.JournalClaim{Size: h.Size, Root: root}
	return s
}

// signAttest is a receipt over a statement.
func signAttest(k key, s *attest.Statement) []byte {
	return must(receipt.Sign1(receipt.KindReceipt, k, s.Predicate.Run.ID, must(s.Marshal())))
}

// signSubmission is a submission.cose of at least the given bytes.
func signSubmission(k key, size int) []byte {
	files := []submission.File{}
	for i := 0; i*1100 < size; i++ {
		files = append(files, submission.File{Name: fmt.Sprintf("%04d", i) + strings.Repeat("f", 1000), SHA256: strings.Repeat("ab", 32)})
	}
	d := strings.Repeat("cd", 32)
	s := must(submission.Build(submission.Input{Benchmark: submission.Benchmark{Head: d, Name: "bench", Root: d, Tasks: 1},
		Agent: submission.Named{Name: "agent", Files: files}, Model: submission.Named{Name: "model"}, Tasks: []string{"t"}, Trials: 1,
		Rule: submission.Mean(), Headline: submission.Plain, Attempts: []submission.Attempt{{
			Cell: submission.Cell{Task: "t", Trial: 1, Attempt: 1, State: submission.Clean, Reasons: []string{}, Bundle: d, Receipt: d, Root: d, Run: d[:32]},
			Leaf: submission.LeafOf([]byte("receipt"))}}}))
	return must(receipt.Sign1(receipt.KindSubmission, k, s.ID(), must(s.Marshal())))
}

// open parses and verifies.
func open(t testing.TB, k key, data []byte, err error) *Entry {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	u, err := Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	if u.Issuer() != k.public.Thumbprint() || u.IssuerName() != k.public.Name() {
		t.Fatalf("issuer: got %x %s", u.Issuer(), u.IssuerName())
	}
	e, err := u.Verify(k.public)
	if err != nil {
		t.Fatal(err)
	}
	if e.Kind() != u.Kind() || e.Subject() != u.Subject() || e.Key() != k.public || e.Leaf() != receipt.LeafHash(data) {
		t.Fatalf("got %v %q %v", e.Kind(), e.Subject(), e.Key())
	}
	return e
}

func sealed(t testing.TB, k key, s Seal) *Entry {
	data, err := SignSeal(k, s)
	return open(t, k, data, err)
}

func registered(t testing.TB, k key, r Register) *Entry {
	data, err := SignRegister(k, r)
	return open(t, k, data, err)
}

func checkpointed(t testing.TB, k key, h journal.Head) *Entry {
	data, err := SignCheckpoint(k, h)
	return open(t, k, data, err)
}

func finished(t testing.TB, k key, f Final) *Entry {
	data, err := SignFinal(k, f)
	return open(t, k, data, err)
}

func attested(t testing.TB, k key, h journal.Head) *Entry {
	return open(t, k, signAttest(k, statement(h)), nil)
}

// Each entry comes back as it was made, with the role that may sign it.
func TestEntries(t *testing.T) {
	small, large := signSubmission(runner, 1), signSubmission(runner, MaxSize)
	if len(small) > MaxSize || len(large) <= MaxSize {
		t.Fatal(len(small), len(large))
	}
	submit := func(file []byte) *Entry {
		data, err := SignSubmit(runner, file)
		return open(t, runner, data, err)
	}
	for _, c := range []struct {
		e    *Entry
		kind Kind
		role Role
		name string
		sub  string
		run  [16]byte
		got  func(*Entry) any
		want any
	}{
		{sealed(t, owner, seal()), KindSeal, RoleOwner, "SEAL", "bench", [16]byte{}, func(e *Entry) any { return e.Seal() }, seal()},
		{sealed(t, owner, Seal{"bench/t", receipt.KindSealedSet, sum("set")}), KindSeal, RoleOwner, "SEAL", "bench/t", [16]byte{},
			func(e *Entry) any { return e.Seal() }, Seal{"bench/t", receipt.KindSealedSet, sum("set")}},
		{registered(t, runner, register(1)), KindRegister, RoleRunner, "REGISTER", hexRun(runID(1)), runID(1), func(e *Entry) any { return e.Register() }, register(1)},
		{checkpointed(t, runner, head(1, 7)), KindCheckpoint, RoleRunner, "CHECKPOINT", hexRun(runID(1)), runID(1), func(e *Entry) any { return e.Checkpoint() }, head(1, 7)},
		{finished(t, runner, final(1, 9)), KindFinal, RoleRunner, "FINAL", hexRun(runID(1)), runID(1), func(e *Entry) any { return e.Final() }, final(1, 9)},
		{attested(t, runner, head(1, 9)), KindAttest, RoleRunner, "ATTEST", hexRun(runID(1)), runID(1), func(e *Entry) any { return e.Attest().Head }, head(1, 9)},
		{submit(small), KindSubmit, RoleRunner, "SUBMIT", submit(small).Submit().Statement.ID(), [16]byte{}, func(e *Entry) any { return e.Submit().Digest }, [32]byte{}},
		{submit(large), KindSubmit, RoleRunner, "SUBMIT", submit(small).Submit().Statement.ID(), [16]byte{}, func(e *Entry) any { return e.Submit() }, Submit{ID: submit(small).Submit().ID, Digest: sha256.Sum256(large)}},
	} {
		if c.e.Kind() != c.kind || c.e.Kind().Role() != c.role || c.e.Kind().String() != c.name || c.e.Subject() != c.sub || c.e.Run() != c.run {
			t.Errorf("got %v by %v, sub %q, run %x; want %+v", c.e.Kind(), c.e.Kind().Role(), c.e.Subject(), c.e.Run(), c)
		}
		if got := c.got(c.e); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
	if !bytes.Equal(must(SignSubmit(runner, small)), small) {
		t.Error("a small submission: got other bytes, want the file itself")
	}
	if _, err := SignSubmit(attacker, large); err == nil {
		t.Error("a submission of another runner: got no error")
	}
}

// A runner's key never seals, and an owner's never runs: who asks for the role of
// the kind, as registry does, gets the refusal with both facts.
func TestRT18_RolesAreApart(t *testing.T) {
	for k := KindSeal; k <= KindSubmit; k++ {
		if want := k == KindSeal; (k.Role() == RoleOwner) != want || (k.Role() == RoleRunner) == want {
			t.Errorf("%v: got role %v", k, k.Role())
		}
	}
	u := must(Parse(must(SignSeal(runner, seal()))))
	r := Unknown(u)
	if r.ID != UnknownIssuer || !strings.Contains(r.Got, "SEAL") || !strings.Contains(r.Got, receipt.Fingerprint(runner.public.Thumbprint())) || !strings.Contains(r.Want, "owner") || r.Hint == "" {
		t.Errorf("got %+v", r)
	}
}

func wantRefusal(t *testing.T, name string, err error, id ID, part string) {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) || r.ID != id || r.Got == "" || r.Want == "" || !strings.Contains(r.Error(), part) {
		t.Errorf("%s: got %v, want %s with %q", name, err, id, part)
	}
}

func TestRT70_Signatures(t *testing.T) {
	data := must(SignRegister(runner, register(1)))
	u := must(Parse(data))
	if _, err := u.Verify(runner.public); err != nil {
		t.Fatal(err)
	}
	_, err := u.Verify(attacker.public)
	wantRefusal(t, "another key", err, BadSignature, "kid")
	_, err = u.Verify(receipt.PublicKey{})
	wantRefusal(t, "no key", err, BadSignature, "alg")
	renamed := must(receipt.NewPublicKey("evals.example/other", runner.secret.Public()))
	_, err = u.Verify(renamed)
	wantRefusal(t, "the key under another name", err, BadSignature, "issuer")
	bad := bytes.Clone(data)
	bad[len(bad)-1] ^= 1
	_, err = must(Parse(bad)).Verify(runner.public)
	wantRefusal(t, "a bit of the signature", err, BadSignature, "signature")
	bad = bytes.Replace(data, []byte("täsk 1"), []byte("täsk 2"), 1)
	_, err = must(Parse(bad)).Verify(runner.public)
	wantRefusal(t, "another task under the signature", err, BadSignature, "signature")
}

// payload is a map of a payload, to be spoiled in one place.
func payload(v any) map[int]any {
	m := map[int]any{}
	if err := dcbor.Unmarshal(must(dcbor.Marshal(v)), &m); err != nil {
		panic(err)
	}
	return m
}

func TestParseRefuses(t *testing.T) {
	var (
		reg   = payload(registerPayload{registerVersion, register(1)})
		cp    = payload(checkpointPayload{checkpointVersion, 7, sum("root")})
		f     = final(1, 9)
		fin   = payload(finalPayload{finalVersion, 9, sum("root"), f.Outcome, f.Code, f.Counts, 1})
		run   = hexRun(runID(1))
		count = func(c ...journal.OpCount) []journal.OpCount { return c }
	)
	cbor := func(kind receipt.Kind, good map[int]any, sub string, key int, value any) []byte {
		m := maps.Clone(good)
		if value == nil {
			delete(m, key)
		} else {
			m[key] = value
		}
		return must(receipt.Sign1(kind, runner, sub, must(dcbor.Marshal(m))))
	}
	st := func(change func(*attest.Statement)) []byte {
		s := statement(head(1, 9))
		change(s)
		return must(receipt.Sign1(receipt.KindReceipt, runner, run, must(s.Marshal())))
	}
	for _, good := range [][]byte{cbor(receipt.KindRegister, reg, run, 5, uint64(1)), cbor(receipt.KindCheckpoint, cp, run, 2, uint64(1)),
		cbor(receipt.KindFinal, fin, run, 5, uint64(255)), st(func(*attest.Statement) {})} {
		if _, err := Parse(good); err != nil {
			t.Fatalf("positive control: %v", err)
		}
	}
	const other = "000102030405060708090a0b0c0d0e0f"
	for name, c := range map[string]struct {
		data []byte
		part string
	}{
		"no bytes":                        {nil, "0 bytes"},
		"one byte too many":               {make([]byte, MaxSize+1), "65536 bytes"},
		"no CBOR":                         {[]byte("x"), "tag"},
		"a benchmark's seal itself":       {must(receipt.Sign1(receipt.KindBenchmark, owner, "bench", []byte{1})), "a benchmark seal"},
		"a sealed set itself":             {must(receipt.Sign1(receipt.KindSealedSet, owner, "bench/t", []byte{1})), "a sealed set"},
		"a submission of 65,536 bytes":    {signSubmission(runner, MaxSize), "1 to 65535"},
		"a SEAL with bidi in its subject": {must(receipt.SignHashEnvelope(receipt.KindSeal, owner, "bench\u202e", receipt.KindBenchmark.Type(), sum("x"))), "printable"},

		"REGISTER of another version":     {cbor(receipt.KindRegister, reg, run, 1, "cleanrun/register/v2"), "version"},
		"REGISTER without version":        {cbor(receipt.KindRegister, reg, run, 1, nil), "deterministic"},
		"REGISTER without a key":          {cbor(receipt.KindRegister, reg, run, 12, nil), "deterministic"},
		"REGISTER with an unknown key":    {cbor(receipt.KindRegister, reg, run, 15, uint64(1)), "unknown"},
		"REGISTER of a run as text":       {cbor(receipt.KindRegister, reg, run, 2, run), "payload"},
		"REGISTER of a short run":         {cbor(receipt.KindRegister, reg, run, 2, make([]byte, 15)), "deterministic"},
		"REGISTER of a short digest":      {cbor(receipt.KindRegister, reg, run, 9, make([]byte, 31)), "deterministic"},
		"REGISTER of a long digest":       {cbor(receipt.KindRegister, reg, run, 9, make([]byte, 33)), "deterministic"},
		"REGISTER with another sub":       {cbor(receipt.KindRegister, reg, other, 5, uint64(1)), "as sub says"},
		"REGISTER with upper case in sub": {cbor(receipt.KindRegister, reg, strings.ToUpper(run), 5, uint64(1)), "run id"},
		"REGISTER of run zero":            {cbor(receipt.KindRegister, reg, strings.Repeat("0", 32), 2, make([]byte, 16)), "run id"},
		"REGISTER of trial 0":             {cbor(receipt.KindRegister, reg, run, 5, uint64(0)), "trial 0"},
		"REGISTER of attempt 0":           {cbor(receipt.KindRegister, reg, run, 6, uint64(0)), "attempt 0"},
		"REGISTER of attempt 2^32":        {cbor(receipt.KindRegister, reg, run, 6, uint64(1<<32)), "payload"},
		"REGISTER of a negative trial":    {cbor(receipt.KindRegister, reg, run, 5, -1), "payload"},
		"REGISTER without benchmark":      {cbor(receipt.KindRegister, reg, run, 3, ""), "benchmark"},
		"REGISTER without task":           {cbor(receipt.KindRegister, reg, run, 4, ""), "task"},
		"REGISTER without recorder":       {cbor(receipt.KindRegister, reg, run, 13, ""), "recorder"},
		"REGISTER of a task with a break": {cbor(receipt.KindRegister, reg, run, 4, "a\nb"), "printable"},
		"REGISTER of a task with bidi":    {cbor(receipt.KindRegister, reg, run, 4, "a\u202eb"), "printable"},
		"REGISTER of a long task":         {cbor(receipt.KindRegister, reg, run, 4, strings.Repeat("t", 1025)), "1024"},
		"REGISTER with seal zero":         {cbor(receipt.KindRegister, reg, run, 7, make([]byte, 32)), "zeros"},
		"REGISTER with sealed zero":       {cbor(receipt.KindRegister, reg, run, 8, make([]byte, 32)), "zeros"},

		"CHECKPOINT of no rows":          {cbor(receipt.KindCheckpoint, cp, run, 2, uint64(0)), "no rows"},
		"CHECKPOINT of a final's kind":   {cbor(receipt.KindCheckpoint, fin, run, 2, uint64(9)), "unknown"},
		"CHECKPOINT with FINAL's text":   {cbor(receipt.KindCheckpoint, cp, run, 1, finalVersion), "version"},
		"CHECKPOINT of no run":           {cbor(receipt.KindCheckpoint, cp, "bench/t", 2, uint64(1)), "run id"},
		"FINAL of no rows":               {cbor(receipt.KindFinal, fin, run, 2, uint64(0)), "no rows"},
		"FINAL of no run":                {cbor(receipt.KindFinal, fin, run[:31], 2, uint64(9)), "run id"},
		"FINAL of outcome 0":             {cbor(receipt.KindFinal, fin, run, 4, uint64(0)), "outcome 0"},
		"FINAL of outcome 5":             {cbor(receipt.KindFinal, fin, run, 4, uint64(5)), "outcome 5"},
		"FINAL of code 256":              {cbor(receipt.KindFinal, fin, run, 5, uint64(256)), "256"},
		"FINAL that failed with 0":       {cbor(receipt.KindFinal, fin, run, 5, uint64(0)), "with exit code 0"},
		"FINAL that completed with 3":    {cbor(receipt.KindFinal, fin, run, 4, uint64(1)), "with exit code 3"},
		"FINAL of fewer rows than size":  {cbor(receipt.KindFinal, fin, run, 6, count(journal.OpCount{Op: journal.OpStart, N: 1})), "counts of 1 rows"},
		"FINAL of more rows than size":   {cbor(receipt.KindFinal, fin, run, 6, count(journal.OpCount{Op: journal.OpStart, N: 9})), "more rows"},
		"FINAL whose counts overflow":    {cbor(receipt.KindFinal, fin, run, 6, count(journal.OpCount{Op: journal.OpStart, N: 1<<64 - 1}, journal.OpCount{Op: journal.OpDir, N: 9})), "more rows"},
		"FINAL with a count of none":     {cbor(receipt.KindFinal, fin, run, 6, count(journal.OpCount{Op: journal.OpStart, N: 8}, journal.OpCount{Op: journal.OpDir})), "no zero"},
		"FINAL with a count twice":       {cbor(receipt.KindFinal, fin, run, 6, count(journal.OpCount{Op: journal.OpStart, N: 4}, journal.OpCount{Op: journal.OpStart, N: 4})), "order"},
		"FINAL with counts out of order": {cbor(receipt.KindFinal, fin, run, 6, count(journal.OpCount{Op: journal.OpDir, N: 4}, journal.OpCount{Op: journal.OpStart, N: 4})), "order"},
		"FINAL of phase 3":               {cbor(receipt.KindFinal, fin, run, 6, count(journal.OpCount{Phase: 3, Op: journal.OpDir, N: 8})), "phase 3"},
		"FINAL of an unknown operation":  {cbor(receipt.KindFinal, fin, run, 6, count(journal.OpCount{Op: journal.OpGuard + 1, N: 8})), "known phase"},
		"FINAL that counts itself":       {cbor(receipt.KindFinal, fin, run, 6, count(journal.OpCount{Op: journal.OpFinal, N: 8})), "known phase"},
		"FINAL of too many checkpoints":  {cbor(receipt.KindFinal, fin, run, 7, uint64(10)), "10 checkpoints"},

		"ATTEST that is no JSON":    {must(receipt.Sign1(receipt.KindReceipt, runner, run, []byte("{}"))), "_type"},
		"ATTEST of another sub":     {must(receipt.Sign1(receipt.KindReceipt, runner, other, must(statement(head(1, 9)).Marshal()))), "as sub says"},
		"ATTEST of another run":     {st(func(s *attest.Statement) { s.Predicate.Run.ID = other }), "as sub says"},
		"ATTEST of another subject": {st(func(s *attest.Statement) { s.Subject[0].Name = journal.OriginPrefix + other }), "as sub says"},
		"ATTEST of another digest":  {st(func(s *attest.Statement) { s.Subject[0].Digest.SHA256 = strings.Repeat("0", 64) }), "subject digest"},
		"ATTEST of upper-case digests": {st(func(s *attest.Statement) {
			s.Predicate.Journal.Root = strings.ToUpper(s.Predicate.Journal.Root)
			s.Subject[0].Digest.SHA256 = s.Predicate.Journal.Root
		}), "lower-case"},
		"ATTEST of no rows": {st(func(s *attest.Statement) { s.Predicate.Journal.Size = 0 }), "no rows"},

		"SUBMIT of a text":       {must(receipt.SignHashEnvelope(receipt.KindSubmit, runner, "mine", receipt.KindSubmission.Type(), sum("x"))), "submission id"},
		"SUBMIT of another id":   {must(receipt.Sign1(receipt.KindSubmission, runner, other, must(must(Parse(signSubmission(runner, 1))).body.submit.Statement.Marshal()))), "as sub says"},
		"SUBMIT of no statement": {must(receipt.Sign1(receipt.KindSubmission, runner, other, []byte("{}"))), "_type"},
	} {
		u, err := Parse(c.data)
		if u != nil {
			t.Errorf("%s: got an entry with the error", name)
		}
		wantRefusal(t, name, err, NotAnEntry, c.part)
	}
}

func FuzzParse(f *testing.F) {
	for _, data := range [][]byte{must(SignSeal(owner, seal())), must(SignRegister(runner, register(1))), must(SignCheckpoint(runner, head(1, 7))),
		must(SignFinal(runner, final(1, 9))), signAttest(runner, statement(head(1, 9))), signSubmission(runner, 1)} {
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		u, err := Parse(data)
		var r *Refusal
		if err != nil {
			if u != nil || !errors.As(err, &r) || r.ID != NotAnEntry {
				t.Fatalf("got %v, %v", u, err)
			}
			return
		}
		if u.Kind() < KindSeal || u.Kind() > KindSubmit || len(u.Subject()) == 0 {
			t.Fatalf("got %+v", u)
		}
		for _, k := range []key{owner, runner} {
			e, err := u.Verify(k.public)
			if err != nil {
				continue
			}
			// What is signed is what these inputs sign: nobody forges.
			l := NewLedger()
			l.Apply(e, 0)
			if err := l.Check(e); e.Kind() == KindSeal && err != nil {
				t.Fatal(err)
			}
		}
	})
}
