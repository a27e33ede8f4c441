// Package runlog puts a run into a transparency log, from the side of who runs it:
// it registers the run before it starts, logs the heads of its journal while it
// goes on and its end, and collects what a bundle carries of the log (spec/log.md).
//
// Limits first. It logs what the recorder says; that the recorder saw everything is
// asserted. A log that is away for a while costs CHECKPOINTs, which verify sees as
// a gap; a log that stays away costs assurance L1, never the run.
//
// What is known of a run's entries stands in its folder, in registration.cbor, and
// is written before and after each step, so that a run that was killed can be
// finished later.
package runlog

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
)

// File is the state's name in a run folder.
const File = "registration.cbor"

// Version is key 1 of the file.
const Version = "cleanrun/registration/v1"

// Bounds of the file.
const (
	MaxState       = 8 << 20
	MaxCheckpoints = 4000 // with the other entries, fewer than one request for proofs takes
	maxWhere       = 4096
)

// An Item is an entry of the run.
type Item struct {
	_         struct{} `cbor:",toarray"`
	Statement []byte
	Index     *uint64 // in the log; nil if the log has not answered
}

// State is what is known of a run's entries: registration.cbor, deterministic CBOR.
type State struct {
	Version     string  `cbor:"1,keyasint"`
	Log         string  `cbor:"2,keyasint"` // where it was: a URL, or the absolute path of its folder
	Key         string  `cbor:"3,keyasint"` // the log's, a vkey
	Seal        Item    `cbor:"4,keyasint"` // has its index
	Register    Item    `cbor:"5,keyasint"`
	Checkpoints []Item  `cbor:"6,keyasint"` // acknowledged: each has its index, ascending
	Final       *Item   `cbor:"7,keyasint"`
	Closing     *[]byte `cbor:"8,keyasint"` // signed note, the first one after FINAL had been logged
	ToClosing   *[]byte `cbor:"9,keyasint"` // COSE receipt: the start row's checkpoint is consistent with Closing
}

// Format returns the only file that holds s. It does not check s.
func (s *State) Format() ([]byte, error) {
	s.Version = Version
	return dcbor.Marshal(s)
}

// Parse reads a registration.cbor: its spelling, that each entry is well-formed, of
// the kind of its place and of one run, and that nothing is there before what it
// follows from. No signature is checked.
func Parse(data []byte) (*State, error) {
	if len(data) > MaxState {
		return nil, fmt.Errorf("got %d bytes, want at most %d", len(data), MaxState)
	}
	s := new(State)
	if err := dcbor.Unmarshal(data, s); err != nil {
		return nil, err
	}
	if s.Version != Version {
		return nil, fmt.Errorf("got version %.80q, want %q", s.Version, Version)
	}
	return s, s.check()
}

func (s *State) check() error {
	if s.Log == "" || len(s.Log) > maxWhere || strings.ContainsFunc(s.Log, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("got a log at %.80q, want 1 to %d bytes of printable characters", s.Log, maxWhere)
	}
	if _, err := receipt.ParseVKey(s.Key); err != nil {
		return fmt.Errorf("key of the log: %w", err)
	}
	register, err := s.Register.parse(entry.KindRegister, "")
	if err != nil {
		return err
	}
	run := register.Subject()
	if _, err := s.Seal.parse(entry.KindSeal, ""); err != nil {
		return err
	}
	if s.Seal.Index == nil {
		return errors.New("got a SEAL without index, want the one that was found in the log")
	}
	if len(s.Checkpoints) > MaxCheckpoints {
		return fmt.Errorf("got %d CHECKPOINTs, want at most %d", len(s.Checkpoints), MaxCheckpoints)
	}
	last := s.Register.Index
	for _, c := range s.Checkpoints {
		if _, err := c.parse(entry.KindCheckpoint, run); err != nil {
			return err
		}
		if last == nil || c.Index == nil || *c.Index <= *last {
			return errors.New("got a CHECKPOINT that does not come after REGISTER and the one before, want indexes that rise")
		}
		last = c.Index
	}
	if s.Final != nil {
		if _, err := s.Final.parse(entry.KindFinal, run); err != nil {
			return err
		}
		if last == nil || s.Final.Index != nil && *s.Final.Index <= *last {
			return errors.New("got a FINAL that does not come after REGISTER and every CHECKPOINT")
		}
	}
	if (s.Closing != nil) != (s.ToClosing != nil) || s.Closing != nil && (s.Final == nil || s.Final.Index == nil) {
		return errors.New("got a closing checkpoint without its proof or before FINAL, want both after it")
	}
	return nil
}

func (i *Item) parse(kind entry.Kind, run string) (*entry.Unverified, error) {
	u, err := entry.Parse(i.Statement)
	if err != nil {
		return nil, fmt.Errorf("%v: %w", kind, err)
	}
	if u.Kind() != kind {
		return nil, fmt.Errorf("got a %v, want a %v", u.Kind(), kind)
	}
	if run != "" && u.Subject() != run {
		return nil, fmt.Errorf("got a %v of run %s, want one of %s", kind, u.Subject(), run)
	}
	return u, nil
}

// Run is the id of the run, 32 hex digits.
func (s *State) Run() string {
	u, err := entry.Parse(s.Register.Statement)
	if err != nil {
		return "" // not of a state that was parsed
	}
	return u.Subject()
}

// Read reads the state of a run folder. It wraps fs.ErrNotExist for a run that
// nobody tried to log.
func Read(dir string) (*State, error) {
	name := filepath.Join(dir, File)
	data, err := regular.Read(name, MaxState)
	if err != nil {
		return nil, err
	}
	s, err := Parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// write replaces the state of a run folder durably.
func (s *State) write(dir string) error {
	data, err := s.Format()
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, File), data, 0o600)
}
