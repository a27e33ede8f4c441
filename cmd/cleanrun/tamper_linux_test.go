package main

import (
	"bytes"
	"io"
	"os"
	"testing"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// TestEveryByte changes single bytes of the quickstart's two bundles: all of the
// small members and of the frame, a sample of the evidence. Of the sealed set, which
// both have, each takes every other byte. Never CLEAN, DIRTY or undecided; and the
// check that fails is the one that guards that part.
func TestEveryByte(t *testing.T) {
	needRecorder(t)
	dir := t.TempDir() + "/q"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := quickstart(dir, io.Discard, &cli.Env{Stdout: io.Discard, Stderr: io.Discard}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(dir + "/policy.txt")
	if err != nil {
		t.Fatal(err)
	}
	policy, err := verify.ParsePolicy(text)
	if err != nil {
		t.Fatal(err)
	}
	var sealed []byte // of the first, and of the second
	for turn, name := range []string{"honest", "cheat"} {
		data, err := os.ReadFile(dir + "/" + name + ".cleanrun")
		if err != nil {
			t.Fatal(err)
		}
		b, err := receipt.ParseBundle(data)
		if err != nil {
			t.Fatal(err)
		}
		if sealed == nil {
			sealed = bytes.Clone(b.Sealed)
		} else if !bytes.Equal(sealed, b.Sealed) {
			t.Fatal("the two bundles have different sealed sets")
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if r := verify.Verify(data, policy, time.Time{}); r.Exit != map[string]int{"honest": 0, "cheat": 4}[name] {
				t.Fatalf("%s: the untouched bundle gives exit %d", name, r.Exit)
			}
			part := func(member []byte) (from, to int) {
				from = bytes.Index(data, member)
				return from, from + len(member)
			}
			guards := map[string][]string{
				"receipt":  {verify.CheckReceipt, verify.CheckRunnerKey, verify.CheckSignature},
				"dsse":     {verify.CheckEnvelope, verify.CheckEnvelopeSig},
				"sealed":   {verify.CheckSealed, verify.CheckOwnerKey, verify.CheckOwnerSig},
				"evidence": {verify.CheckEvidenceSum},
				"frame":    {verify.CheckBundle, verify.CheckMembers},
			}
			which := func(i int) string {
				for n, m := range map[string][]byte{"receipt": b.Receipt, "dsse": b.Statement, "sealed": b.Sealed, "evidence": b.Evidence} {
					if from, to := part(m); i >= from && i < to {
						return n
					}
				}
				return "frame"
			}
			from, to := part(b.Evidence)
			sealedFrom, sealedTo := part(b.Sealed)
			step, tried, set := max((to-from)/400, 1), 0, 0
			for i := 0; i < len(data); i++ {
				if i > from && i < to-1 && (i-from)%step != 0 {
					continue
				}
				if i >= sealedFrom && i < sealedTo {
					if (i-sealedFrom)%2 != turn {
						continue
					}
					set++
				}
				tried++
				was := data[i]
				data[i] ^= byte(1 << (i % 8))
				r := verify.Verify(data, policy, time.Time{})
				data[i] = was
				member := which(i)
				if r.Exit == 2 && member == "frame" {
					continue // no bundle any more
				}
				failed := r.FailedCheck()
				if r.Exit != 1 || failed == nil {
					t.Fatalf("%s: byte %d of %s changed: got exit %d, want 1", name, i, member, r.Exit)
				}
				ok := false
				for _, g := range guards[member] {
					ok = ok || failed.ID == g
				}
				if !ok {
					t.Errorf("%s: byte %d of %s changed: check %s failed (%s), want one of %v", name, i, member, failed.ID, failed.Detail, guards[member])
				}
			}
			if tried < 8000 {
				t.Errorf("%s: tried %d bytes, want at least 8,000", name, tried)
			}
			if want := (len(sealed) + 1 - turn) / 2; set != want {
				t.Errorf("%s: tried %d bytes of the sealed set, want %d", name, set, want)
			}
			t.Logf("%s: %d of %d bytes changed one by one", name, tried, len(data))
		})
	}
}
