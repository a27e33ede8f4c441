package runlog

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/cleanrun-dev/cleanrun/tlog/entry"
)

// whole is the state of a run that was finished.
func whole(t testing.TB) *State {
	t.Helper()
	b := newBench(t)
	r := b.run()
	b.register(r)
	for i := range 2 {
		r.Head(b.rows(1))
		b.wait(3 + i)
	}
	b.end()
	r.Stop(t.Context())
	if err := b.c.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	st, err := os.Stat(filepath.Join(b.c.Dir, File))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("got mode %v, %v, want it private", st.Mode(), err)
	}
	return b.state()
}

func TestState(t *testing.T) {
	s := whole(t)
	data, err := s.Format()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Parse(data); err != nil {
		t.Fatal(err)
	}
	n := func(i uint64) *uint64 { return &i }
	other := whole(t)
	other.Register.Statement, err = entry.SignRegister(runner, entry.Register{Run: [16]byte{2}, Benchmark: "bench", Task: "task", Trial: 1, Attempt: 1, Seal: [32]byte{1}, Sealed: [32]byte{2}, Recorder: "test"})
	if err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(s *State){
		"version":                 func(s *State) { s.Version = "" }, // Format sets it: see below
		"no place":                func(s *State) { s.Log = "" },
		"place with a line break": func(s *State) { s.Log = "/a\nb" },
		"no key":                  func(s *State) { s.Key = "" },
		"SEAL without index":      func(s *State) { s.Seal.Index = nil },
		"REGISTER as SEAL":        func(s *State) { s.Seal.Statement = s.Register.Statement },
		"SEAL as REGISTER":        func(s *State) { s.Register.Statement = s.Seal.Statement },
		"another run":             func(s *State) { s.Register.Statement = other.Register.Statement },
		"unregistered":            func(s *State) { s.Register.Index = nil },
		"CHECKPOINT first":        func(s *State) { s.Register.Index = n(2) },
		"CHECKPOINTs back":        func(s *State) { s.Checkpoints[1].Index = n(2) },
		"CHECKPOINT unanswered":   func(s *State) { s.Checkpoints[0].Index = nil },
		"FINAL first":             func(s *State) { s.Final.Index = n(3) },
		"closing without FINAL":   func(s *State) { s.Final = nil },
		"closing too early":       func(s *State) { s.Final.Index = nil },
		"closing without proof":   func(s *State) { s.ToClosing = nil },
		"proof without closing":   func(s *State) { s.Closing = nil },
		"too many":                func(s *State) { s.Checkpoints = make([]Item, MaxCheckpoints+1) },
	} {
		bad := whole(t)
		edit(bad)
		b, err := bad.Format()
		if err != nil {
			t.Fatal(err)
		}
		if name == "version" {
			b = bytes.Replace(b, []byte("registration/v1"), []byte("registration/v2"), 1)
		}
		if _, err := Parse(b); err == nil {
			t.Errorf("%s: it was taken", name)
		}
	}
	for _, b := range [][]byte{nil, data[:len(data)-1], append(bytes.Clone(data), 0), make([]byte, MaxState+1)} {
		if _, err := Parse(b); err == nil {
			t.Errorf("%d bytes were taken", len(b))
		}
	}
}

func FuzzParse(f *testing.F) {
	data, err := whole(f).Format()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data)
		if err != nil {
			return
		}
		again, err := s.Format()
		if err != nil || !bytes.Equal(again, data) {
			t.Errorf("got other bytes, %v, want those that were parsed", err)
		}
	})
}
