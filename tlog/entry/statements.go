package entry

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/submission"
)

// Versions of the payloads.
const (
	registerVersion   = "cleanrun/register/v1"
	checkpointVersion = "cleanrun/checkpoint/v1"
	finalVersion      = "cleanrun/final/v1"
)

// Bounds of payloads.
const (
	maxText   = 1024 // bytes, as in a start row
	maxCounts = 3 * int(journal.OpGuard)
)

// A Seal says that its issuer has sealed what has this digest.
type Seal struct {
	Subject string       // the benchmark; benchmark/task of a set that was sealed alone
	Of      receipt.Kind // KindBenchmark or KindSealedSet: what was hashed
	Digest  [32]byte     // SHA-256 of the COSE_Sign1
}

// A Register binds a run before it starts. RegisterOf makes one.
type Register struct {
	Run       [16]byte `cbor:"2,keyasint"`
	Benchmark string   `cbor:"3,keyasint"`
	Task      string   `cbor:"4,keyasint"`
	Trial     uint32   `cbor:"5,keyasint"`  // from 1
	Attempt   uint32   `cbor:"6,keyasint"`  // from 1
	Seal      [32]byte `cbor:"7,keyasint"`  // SHA-256 of task.sealed as the run got it
	Sealed    [32]byte `cbor:"8,keyasint"`  // digest of the SEAL that the run relies on
	Baseline  [32]byte `cbor:"9,keyasint"`  // root of the baseline manifest
	Scope     [32]byte `cbor:"10,keyasint"` // SHA-256 of the start row's roots
	Agent     [32]byte `cbor:"11,keyasint"` // SHA-256 of the agent's name
	Model     [32]byte `cbor:"12,keyasint"` // SHA-256 of the model's name
	Recorder  string   `cbor:"13,keyasint"` // version of the recorder
	Start     [32]byte `cbor:"14,keyasint"` // SHA-256 of the Start map without registration and freshness
}

// A Final is the end of a journal, and what its closing row says.
type Final struct {
	Head        journal.Head // of the whole journal
	Outcome     journal.Outcome
	Code        uint32            // exit code of the command
	Counts      []journal.OpCount // rows before the closing row, by phase, then operation
	Checkpoints uint64            // CHECKPOINTs that the log acknowledged
}

// An Attest is the receipt of a run.
type Attest struct {
	Head      journal.Head
	Statement *attest.Statement
}

// A Submit publishes a submission.
type Submit struct {
	ID string
	// Statement is the submission's, or nil if the entry has only its digest.
	Statement *submission.Statement
	Digest    [32]byte // SHA-256 of submission.cose; zero if the entry is that file
}

// Payloads as they are written. A run id stands in sub alone, where the payload
// has none.
type (
	registerPayload struct {
		Version string `cbor:"1,keyasint"`
		Register
	}
	checkpointPayload struct {
		Version string   `cbor:"1,keyasint"`
		Size    uint64   `cbor:"2,keyasint"`
		Root    [32]byte `cbor:"3,keyasint"`
	}
	finalPayload struct {
		Version     string            `cbor:"1,keyasint"`
		Size        uint64            `cbor:"2,keyasint"`
		Root        [32]byte          `cbor:"3,keyasint"`
		Outcome     journal.Outcome   `cbor:"4,keyasint"`
		Code        uint32            `cbor:"5,keyasint"`
		Counts      []journal.OpCount `cbor:"6,keyasint"`
		Checkpoints uint64            `cbor:"7,keyasint"`
	}
)

// parseBody reads the payload of a signed object of the given kind.
func parseBody(of receipt.Kind, said receipt.Unauthenticated) (b body, err error) {
	switch of {
	case receipt.KindSeal:
		b.seal, err = parseSeal(said)
	case receipt.KindRegister:
		b.register, err = parseRegister(said)
	case receipt.KindCheckpoint:
		b.head, err = parseCheckpoint(said)
	case receipt.KindFinal:
		b.final, err = parseFinal(said)
	case receipt.KindReceipt:
		b.attest, err = parseAttest(said)
	case receipt.KindSubmission, receipt.KindSubmit:
		b.submit, err = parseSubmit(of, said)
	default:
		err = fmt.Errorf("a %v is no entry", of)
	}
	return b, err
}

func parseSeal(said receipt.Unauthenticated) (Seal, error) {
	s := Seal{Subject: said.Subject, Of: receipt.KindSealedSet, Digest: [32]byte(said.Payload)}
	if said.PreimageType == receipt.KindBenchmark.Type() {
		s.Of = receipt.KindBenchmark
	}
	return s, checkText("sub", s.Subject)
}

func parseRegister(said receipt.Unauthenticated) (Register, error) {
	var p registerPayload
	if err := decode(said.Payload, &p, &p.Version, registerVersion); err != nil {
		return Register{}, err
	}
	if run, err := parseRun(said.Subject); err != nil {
		return Register{}, err
	} else if run != p.Run {
		return Register{}, malformed(fmt.Sprintf("the run %x in the payload", p.Run), fmt.Sprintf("%x, as sub says", run))
	}
	return p.Register, p.check()
}

func (r *Register) check() error {
	for _, f := range []struct{ what, text string }{{"benchmark", r.Benchmark}, {"task", r.Task}, {"recorder", r.Recorder}} {
		if err := checkText(f.what, f.text); err != nil {
			return err
		}
	}
	if r.Trial == 0 || r.Attempt == 0 {
		return malformed(fmt.Sprintf("trial %d, attempt %d", r.Trial, r.Attempt), "both from 1")
	}
	if r.Seal == [32]byte{} || r.Sealed == [32]byte{} {
		return malformed("a seal or sealed digest of zeros", "a run that is bound to a sealed set")
	}
	return nil
}

func parseCheckpoint(said receipt.Unauthenticated) (h journal.Head, err error) {
	var p checkpointPayload
	if err := decode(said.Payload, &p, &p.Version, checkpointVersion); err != nil {
		return h, err
	}
	if h.Run, err = parseRun(said.Subject); err != nil {
		return h, err
	}
	h.Size, h.Root = p.Size, p.Root
	return h, checkSize(h.Size)
}

func parseFinal(said receipt.Unauthenticated) (f Final, err error) {
	var p finalPayload
	if err := decode(said.Payload, &p, &p.Version, finalVersion); err != nil {
		return f, err
	}
	f = Final{journal.Head{Size: p.Size, Root: p.Root}, p.Outcome, p.Code, p.Counts, p.Checkpoints}
	if f.Head.Run, err = parseRun(said.Subject); err != nil {
		return f, err
	}
	return f, f.check()
}

// check holds to the rules of a closing row that need no other row.
func (f *Final) check() error {
	if err := checkSize(f.Head.Size); err != nil {
		return err
	}
	if f.Outcome < journal.Completed || f.Outcome > journal.Abandoned || f.Code > 255 {
		return malformed(fmt.Sprintf("outcome %d, exit code %d", f.Outcome, f.Code), "an outcome from 1 to 4, a code of at most 255")
	}
	if f.Outcome == journal.Completed && f.Code != 0 || f.Outcome == journal.Failed && f.Code == 0 {
		return malformed(fmt.Sprintf("outcome %v with exit code %d", f.Outcome, f.Code), "0 exactly if completed")
	}
	if len(f.Counts) > maxCounts {
		return malformed(fmt.Sprintf("%d counts", len(f.Counts)), fmt.Sprintf("at most %d", maxCounts))
	}
	left := f.Head.Size - 1 // the closing row is not counted
	rows := fmt.Sprintf("counts of the %d rows before the closing row", left)
	for i, c := range f.Counts {
		if c.Phase > journal.PhaseGrade || c.Op < journal.OpStart || c.Op > journal.OpGuard || c.Op == journal.OpFinal || c.N == 0 {
			return malformed(fmt.Sprintf("%d rows of %v in phase %v", c.N, c.Op, c.Phase), "a known phase and operation, and no zero")
		}
		if i > 0 && cmp.Or(cmp.Compare(f.Counts[i-1].Phase, c.Phase), cmp.Compare(f.Counts[i-1].Op, c.Op)) >= 0 {
			return malformed(fmt.Sprintf("%v in phase %v out of order", c.Op, c.Phase), "counts by phase, then operation, each once")
		}
		if c.N > left {
			return malformed("counts of more rows than there are", rows)
		}
		left -= c.N
	}
	if left != 0 {
		return malformed(fmt.Sprintf("counts of %d rows", f.Head.Size-1-left), rows)
	}
	if f.Checkpoints > f.Head.Size {
		return malformed(fmt.Sprintf("%d checkpoints of a journal of %d rows", f.Checkpoints, f.Head.Size), "no more than rows: each has more than the one before")
	}
	return nil
}

// parseAttest takes run and journal head from the statement. Each stands in it
// twice; all places must agree.
func parseAttest(said receipt.Unauthenticated) (a Attest, err error) {
	if a.Statement, err = attest.ParseStatement(said.Payload); err != nil {
		return a, err
	}
	if a.Head.Run, err = parseRun(said.Subject); err != nil {
		return a, err
	}
	p := &a.Statement.Predicate
	subject := a.Statement.Subject[0]
	if p.Run.ID != said.Subject || subject.Name != journal.OriginPrefix+said.Subject {
		return a, malformed(fmt.Sprintf("run %.80q and subject %.80q in the statement", p.Run.ID, subject.Name), "the run "+said.Subject+", as sub says")
	}
	root, err := hex.DecodeString(p.Journal.Root)
	if err != nil || len(root) != 32 || hex.EncodeToString(root) != p.Journal.Root || subject.Digest.SHA256 != p.Journal.Root {
		return a, malformed(fmt.Sprintf("journal root %.80q, subject digest %.80q", p.Journal.Root, subject.Digest.SHA256), "one SHA-256 in lower-case hex")
	}
	a.Head.Size, a.Head.Root = p.Journal.Size, [32]byte(root)
	return a, checkSize(a.Head.Size)
}

func parseSubmit(of receipt.Kind, said receipt.Unauthenticated) (s Submit, err error) {
	s.ID = said.Subject
	if _, err := parseRun(s.ID); err != nil {
		return s, malformed(fmt.Sprintf("sub %.80q", s.ID), "a submission id: 32 lower-case hex digits")
	}
	if of == receipt.KindSubmit {
		s.Digest = [32]byte(said.Payload)
		return s, nil
	}
	if s.Statement, err = submission.ParseStatement(said.Payload); err != nil {
		return s, err
	}
	if id := s.Statement.ID(); id != s.ID {
		return s, malformed("the submission "+id+" in the statement", s.ID+", as sub says")
	}
	return s, nil
}

// malformation is content that no entry of its kind has.
type malformation struct{ got, want string }

func (m *malformation) Error() string { return "got " + m.got + ", want " + m.want }

func malformed(got, want string) error { return &malformation{got, want} }

func decode(payload []byte, v any, version *string, want string) error {
	if err := dcbor.Unmarshal(payload, v); err != nil {
		return fmt.Errorf("payload: %w", err)
	}
	if *version != want {
		return malformed(fmt.Sprintf("a payload of version %.80q", *version), fmt.Sprintf("%q", want))
	}
	return nil
}

func checkSize(n uint64) error {
	if n == 0 {
		return malformed("a journal of no rows", "at least the start row")
	}
	return nil
}

// checkText refuses what a start row refuses: control characters and those that
// change the writing direction would deceive who reads a monitor's report.
func checkText(what, text string) error {
	if text == "" || len(text) > maxText || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return malformed(fmt.Sprintf("%s %.80q", what, text), fmt.Sprintf("1 to %d bytes of printable characters", maxText))
	}
	return nil
}

// SignSeal makes a SEAL.
func SignSeal(s receipt.Signer, seal Seal) ([]byte, error) {
	return signed(receipt.SignHashEnvelope(receipt.KindSeal, s, seal.Subject, seal.Of.Type(), seal.Digest))
}

// SignRegister makes a REGISTER.
func SignRegister(s receipt.Signer, r Register) ([]byte, error) {
	return sign(receipt.KindRegister, s, r.Run, registerPayload{registerVersion, r})
}

// SignCheckpoint makes a CHECKPOINT.
func SignCheckpoint(s receipt.Signer, h journal.Head) ([]byte, error) {
	return sign(receipt.KindCheckpoint, s, h.Run, checkpointPayload{checkpointVersion, h.Size, h.Root})
}

// SignFinal makes a FINAL.
func SignFinal(s receipt.Signer, f Final) ([]byte, error) {
	return sign(receipt.KindFinal, s, f.Head.Run, finalPayload{finalVersion, f.Head.Size, f.Head.Root, f.Outcome, f.Code, slices.Clone(f.Counts), f.Checkpoints})
}

// SignSubmit makes the SUBMIT of a submission.cose: the file itself, which must
// be signed by s, if an entry can hold it, else a hash envelope over it.
func SignSubmit(s receipt.Signer, file []byte) ([]byte, error) {
	u, err := receipt.ParseSign1(receipt.KindSubmission, file)
	if err != nil {
		return nil, err
	}
	if _, err := u.Verify(s.Public()); err != nil {
		return nil, err
	}
	if len(file) <= MaxSize {
		return signed(slices.Clone(file), nil)
	}
	return signed(receipt.SignHashEnvelope(receipt.KindSubmit, s, u.Unauthenticated().Subject, receipt.KindSubmission.Type(), sha256.Sum256(file)))
}

func sign(kind receipt.Kind, s receipt.Signer, run [16]byte, payload any) ([]byte, error) {
	data, err := dcbor.Marshal(payload)
	if err != nil {
		return nil, err
	}
	return signed(receipt.Sign1(kind, s, hexRun(run), data))
}

// signed lets nothing out that Parse refuses.
func signed(data []byte, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	if _, err := Parse(data); err != nil {
		return nil, err
	}
	return data, nil
}
