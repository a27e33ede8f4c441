package verify_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// believed tells whether a report relies on the log.
func believed(r *verify.Report) bool { return r.Assurance != nil && r.Assurance.Level == verify.L1 }

// Any changed byte of what a bundle carries of the log is noticed: the bundle is
// INVALID by a log check, or undecided because a cosignature is no longer one.
func TestTamperEveryByteOfLog(t *testing.T) {
	k := loggedKit()
	policy, data := k.logPolicy(t), k.make(t)
	free := parsePolicy(t, k.keyLines()...)
	if r := verify.Verify(data, policy, now); !believed(r) || r.Exit != verify.ExitClean {
		t.Fatalf("control: %s", r.Text("x"))
	}
	b, err := receipt.ParseBundle(data)
	if err != nil {
		t.Fatal(err)
	}
	step := 5
	if testing.Short() {
		step = 101
	}
	flips, undecided := 0, 0
	for _, member := range [][]byte{b.LogProof, b.Log} {
		from := bytes.Index(data, member)
		for at := 0; at < len(member); at += step {
			flips++
			broken := bytes.Clone(data)
			broken[from+at] ^= 1 << (flips % 8)
			r := verify.Verify(broken, policy, now)
			switch c := r.FailedCheck(); {
			case believed(r):
				t.Fatalf("byte %d: believed", at)
			case c != nil && r.Exit == verify.ExitInvalid && strings.HasPrefix(c.ID, "log-"):
			case r.Exit == verify.ExitUndecided && openCheck(r) == verify.CheckLogWitnesses:
				undecided++
			default:
				t.Fatalf("byte %d: got %s", at, r.Text("x"))
			}
			if at%(5*step) == 0 && believed(verify.Verify(broken, free, now)) {
				t.Fatalf("byte %d: believed without a pinned log", at)
			}
		}
	}
	if undecided > flips/10 || !testing.Short() && flips < 800 {
		t.Errorf("got %d flips, %d of them undecided", flips, undecided)
	}
}

// openCheck is the first check that is undecided.
func openCheck(r *verify.Report) string {
	i := slices.IndexFunc(r.Checks, func(c verify.Check) bool { return c.Status == verify.Open })
	if i < 0 {
		return ""
	}
	return r.Checks[i].ID
}

// Each value in log.cbor and log.tlog-proof guards something, also if it is
// replaced by one of the right form.
func TestTamperFieldsOfLog(t *testing.T) {
	type fields struct {
		*receipt.LogMember
		*proof.LogProof
	}
	list := map[string]func(fields){}
	flip := func(name string, get func(fields) []byte) {
		list[name+", first byte"] = func(f fields) { get(f)[0] ^= 1 }
		list[name+", middle byte"] = func(f fields) { b := get(f); b[len(b)/2] ^= 1 }
		list[name+", last byte"] = func(f fields) { b := get(f); b[len(b)-1] ^= 1 }
	}
	path := func(name string, get func(fields) *[][32]byte) {
		list[name+", a hash"] = func(f fields) { (*get(f))[1][5] ^= 1 }
		list[name+", a hash less"] = func(f fields) { *get(f) = (*get(f))[1:] }
		list[name+", a hash more"] = func(f fields) { *get(f) = append(*get(f), [32]byte{1}) }
		list[name+", no hash"] = func(f fields) { *get(f) = [][32]byte{} }
		list[name+", swapped"] = func(f fields) { p := *get(f); p[0], p[1] = p[1], p[0] }
	}
	entry := func(name string, get func(fields) *receipt.LogEntry) {
		flip(name, func(f fields) []byte { return get(f).Statement })
		path(name, func(f fields) *[][32]byte { return &get(f).Path })
		list[name+", index before"] = func(f fields) { get(f).Index-- }
		list[name+", index after"] = func(f fields) { get(f).Index++ }
		list[name+", large index"] = func(f fields) { get(f).Index = 1 << 63 }
	}
	flip("receipt", func(f fields) []byte { return f.Receipt })
	entry("seal", func(f fields) *receipt.LogEntry { return &f.Seal })
	entry("register", func(f fields) *receipt.LogEntry { return &f.Register })
	entry("checkpoint 1", func(f fields) *receipt.LogEntry { return &f.Checkpoints[0] })
	entry("checkpoint 2", func(f fields) *receipt.LogEntry { return &f.Checkpoints[1] })
	entry("final", func(f fields) *receipt.LogEntry { return &f.Final })
	flip("closing", func(f fields) []byte { return f.Closing })
	flip("to closing", func(f fields) []byte { return f.ToClosing })
	flip("to newest", func(f fields) []byte { return f.ToNewest })
	path("proof", func(f fields) *[][32]byte { return &f.LogProof.Path })
	flip("proof, checkpoint", func(f fields) []byte { return f.LogProof.Checkpoint })
	list["proof, index"] = func(f fields) { f.LogProof.Index-- }
	list["a checkpoint less"] = func(f fields) { f.Checkpoints = f.Checkpoints[1:] }
	list["receipts swapped"] = func(f fields) { f.ToClosing, f.ToNewest = f.ToNewest, f.ToClosing }
	list["closing is newest"] = func(f fields) { f.Closing = f.LogProof.Checkpoint }
	list["newest is closing"] = func(f fields) { f.LogProof.Checkpoint = f.Closing }

	k := loggedKit()
	policy, data := k.logPolicy(t), k.make(t)
	built := 0
	for name, change := range list {
		b, err := receipt.ParseBundle(data)
		if err != nil {
			t.Fatal(err)
		}
		m, err := receipt.ParseLog(b.Log)
		if err != nil {
			t.Fatal(err)
		}
		p, err := proof.ParseLogProof(b.LogProof)
		if err != nil {
			t.Fatal(err)
		}
		change(fields{m, p})
		b.LogProof = proof.FormatLogProof(p)
		if b.Log, err = receipt.FormatLog(m); err != nil {
			continue // it cannot even be written
		}
		broken, err := receipt.FormatBundle(b)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(broken, data) {
			t.Errorf("%s: nothing was changed", name)
		}
		built++
		r := verify.Verify(broken, policy, now)
		if c := r.FailedCheck(); believed(r) || (c == nil || !strings.HasPrefix(c.ID, "log-") || r.Exit != verify.ExitInvalid) && openCheck(r) != verify.CheckLogWitnesses {
			t.Errorf("%s: got %s", name, r.Text("x"))
		}
	}
	if built < 55 {
		t.Errorf("got %d of %d changes that can be written", built, len(list))
	}
	if r := verify.Verify(data, policy, now); !believed(r) {
		t.Fatalf("control: %s", r.Text("x"))
	}
}

// Entries of two logged runs do not fit each other, wherever they are taken from.
func TestTamperMixedRuns(t *testing.T) {
	a, b := loggedKit(), loggedKit()
	b.record, b.logging.Log = cheat, a.logging.Log
	one, err := receipt.ParseBundle(a.make(t))
	if err != nil {
		t.Fatal(err)
	}
	b.start = nil
	two, err := receipt.ParseBundle(b.make(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*receipt.Bundle){
		"log.cbor":        func(x *receipt.Bundle) { x.Log = two.Log },
		"log.tlog-proof":  func(x *receipt.Bundle) { x.LogProof = two.LogProof },
		"both of the log": func(x *receipt.Bundle) { x.Log, x.LogProof = two.Log, two.LogProof },
	} {
		mixed := *one
		change(&mixed)
		data, err := receipt.FormatBundle(&mixed)
		if err != nil {
			t.Fatal(err)
		}
		r := verify.Verify(data, a.logPolicy(t), now)
		if c := r.FailedCheck(); c == nil || !strings.HasPrefix(c.ID, "log-") {
			t.Errorf("%s: got %s", name, r.Text("x"))
		}
	}
}

func FuzzVerifyLogged(f *testing.F) {
	k := loggedKit()
	good := k.make(f)
	policy := k.logPolicy(f)
	b, err := receipt.ParseBundle(good)
	if err != nil {
		f.Fatal(err)
	}
	// core is all but signature lines: a note may have lines of witnesses whom the
	// policy does not name.
	core := func(log, tlogProof []byte) string {
		m, err := receipt.ParseLog(log)
		if err != nil {
			return err.Error()
		}
		p, err := proof.ParseLogProof(tlogProof)
		if err != nil {
			return err.Error()
		}
		for _, note := range []*[]byte{&m.Closing, &p.Checkpoint} {
			text, _, _ := bytes.Cut(*note, []byte("\n\n"))
			*note = text
		}
		return fmt.Sprintf("%x %x", *m, *p)
	}
	want := core(b.Log, b.LogProof)
	f.Add(b.Log, b.LogProof)
	f.Add([]byte{}, []byte("x"))
	f.Fuzz(func(t *testing.T, log, tlogProof []byte) {
		x := *b
		x.Log, x.LogProof = log, tlogProof
		data, err := receipt.FormatBundle(&x)
		if err != nil {
			return
		}
		if r := verify.Verify(data, policy, now); believed(r) && core(log, tlogProof) != want {
			t.Fatal("a log that nobody signed is believed")
		}
	})
}
