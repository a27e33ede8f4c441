package receipt

import (
	"fmt"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
)

// LogVersion is key 1 of the member log.cbor.
const LogVersion = "cleanrun/log/v1"

// MaxLogMember is the largest log.cbor, and MaxNote the largest signed note in
// it, in bytes.
const (
	MaxLogMember = 8 << 20
	MaxNote      = 64 << 10
)

// A LogEntry is an entry of a log with the proof that a tree holds it. Which tree
// the proof is for, the place says where the LogEntry stands.
type LogEntry struct {
	Statement []byte     // the entry: a COSE_Sign1
	Index     uint64     // from 0
	Path      [][32]byte // inclusion proof (RFC 9162, section 2.1.3.1), leaf's sibling first
}

// LogMember is the member log.cbor: what a bundle carries of the log besides the
// proof of receipt.cose (spec/log.md). Nothing in it is verified. Proofs of
// entries are for the tree of the checkpoint in log.tlog-proof.
type LogMember struct {
	Receipt     []byte     // COSE receipt: inclusion of receipt.cose
	Seal        LogEntry   // KindSeal
	Register    LogEntry   // KindRegister
	Checkpoints []LogEntry // KindCheckpoint, ascending by index, may be none
	Final       LogEntry   // KindFinal
	Closing     []byte     // signed note: the first checkpoint asked for after FINAL had been logged
	ToClosing   []byte     // COSE receipt: consistency of the start row's checkpoint with Closing
	ToNewest    []byte     // COSE receipt: consistency of Closing with the checkpoint in log.tlog-proof
	// Heads prove that the journal at each CHECKPOINT is how the whole one begins
	// (RFC 9162, section 2.1.4.1): one path for each, in a bundle without its rows.
	Heads [][][32]byte
}

type logEntryFrame struct {
	_         struct{} `cbor:",toarray"`
	Statement []byte
	Index     uint64
	Path      [][]byte // of 32 bytes each
}

type logFrame struct {
	Version     string          `cbor:"1,keyasint"`
	Receipt     []byte          `cbor:"2,keyasint"`
	Seal        logEntryFrame   `cbor:"3,keyasint"`
	Register    logEntryFrame   `cbor:"4,keyasint"`
	Checkpoints []logEntryFrame `cbor:"5,keyasint"`
	Final       logEntryFrame   `cbor:"6,keyasint"`
	Closing     []byte          `cbor:"7,keyasint"`
	ToClosing   []byte          `cbor:"8,keyasint"`
	ToNewest    []byte          `cbor:"9,keyasint"`
	Heads       [][][]byte      `cbor:"10,keyasint"` // of 32 bytes each
}

func (e LogEntry) frame() logEntryFrame {
	return logEntryFrame{Statement: e.Statement, Index: e.Index, Path: hashes(e.Path)}
}

// entry reads a frame: a path of hashes, a statement of the kind.
func (f logEntryFrame) entry(k Kind) (e LogEntry, _ error) {
	path, err := hashes32(f.Path)
	if err != nil {
		return e, err.in(k.String())
	}
	if _, err := ParseSign1(k, f.Statement); err != nil {
		return e, err
	}
	return LogEntry{f.Statement, f.Index, path}, nil
}

// FormatLog returns the only log.cbor that holds m. It refuses what ParseLog
// refuses.
func FormatLog(m *LogMember) ([]byte, error) {
	f := logFrame{
		Version: LogVersion, Receipt: m.Receipt,
		Seal: m.Seal.frame(), Register: m.Register.frame(), Final: m.Final.frame(),
		Closing: m.Closing, ToClosing: m.ToClosing, ToNewest: m.ToNewest,
	}
	for _, path := range m.Heads {
		f.Heads = append(f.Heads, hashes(path))
	}
	for _, c := range m.Checkpoints {
		f.Checkpoints = append(f.Checkpoints, c.frame())
	}
	data, err := dcbor.Marshal(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", MemberLog, err)
	}
	if _, err := ParseLog(data); err != nil {
		return nil, err
	}
	return data, nil
}

// ParseLog reads a log.cbor: the map itself, and that each statement and receipt
// in it is well-formed and of the kind of its place. No signature is checked and
// no proof followed. The error is an *Error.
func ParseLog(data []byte) (*LogMember, error) {
	if len(data) == 0 || len(data) > MaxLogMember {
		return nil, refuse(StageSize, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("1 to %d", MaxLogMember), "").in(string(MemberLog))
	}
	var f logFrame
	if err := decode(data, &f); err != nil {
		return nil, err.in(string(MemberLog))
	}
	if f.Version != LogVersion {
		return nil, refuse(StageType, fmt.Sprintf("%q", clip([]byte(f.Version))), fmt.Sprintf("%q", LogVersion), "the bundle was made by another version").in(string(MemberLog))
	}
	return f.member()
}

// member looks into the parts, in the order in which they stand.
func (f *logFrame) member() (*LogMember, error) {
	m := &LogMember{Receipt: f.Receipt, Closing: f.Closing, ToClosing: f.ToClosing, ToNewest: f.ToNewest}
	err := checkProof(m.Receipt, true)
	if err != nil {
		return nil, err
	}
	if m.Seal, err = f.Seal.entry(KindSeal); err != nil {
		return nil, err
	}
	if m.Register, err = f.Register.entry(KindRegister); err != nil {
		return nil, err
	}
	for i, c := range f.Checkpoints {
		if i > 0 && c.Index <= f.Checkpoints[i-1].Index {
			return nil, refuse(StageProof, fmt.Sprintf("a CHECKPOINT at index %d after one at %d", c.Index, f.Checkpoints[i-1].Index), "each index once, ascending", "").in(string(MemberLog))
		}
		e, err := c.entry(KindCheckpoint)
		if err != nil {
			return nil, err
		}
		m.Checkpoints = append(m.Checkpoints, e)
	}
	if m.Final, err = f.Final.entry(KindFinal); err != nil {
		return nil, err
	}
	if n := len(m.Closing); n == 0 || n > MaxNote {
		return nil, refuse(StageSize, fmt.Sprintf("a closing checkpoint of %d bytes", n), fmt.Sprintf("1 to %d", MaxNote), "").in(string(MemberLog))
	}
	if err := checkProof(m.ToClosing, false); err != nil {
		return nil, err
	}
	if err := checkProof(m.ToNewest, false); err != nil {
		return nil, err
	}
	if n := len(f.Heads); n != 0 && n != len(m.Checkpoints) {
		return nil, refuse(StageProof, fmt.Sprintf("proofs of %d heads of the journal", n), fmt.Sprintf("none, or %d, one for each CHECKPOINT", len(m.Checkpoints)), "").in(string(MemberLog))
	}
	for _, path := range f.Heads {
		h, err := hashes32(path)
		if err != nil {
			return nil, err.in(string(MemberLog))
		}
		m.Heads = append(m.Heads, h)
	}
	return m, nil
}

// checkProof parses a COSE receipt that must be of inclusion, or of consistency.
func checkProof(data []byte, inclusion bool) error {
	r, err := ParseLogReceipt(data)
	if err != nil {
		return err
	}
	if got := r.claims.Inclusion != nil; got != inclusion {
		want := "of consistency"
		if inclusion {
			want = "of inclusion"
		}
		return refuse(StageProof, "a proof of the other sort", "a proof "+want, "").in(logReceiptObject)
	}
	return nil
}
