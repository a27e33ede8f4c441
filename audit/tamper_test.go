package audit_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
)

// small is a submission of one task in one trial.
func small() *kit {
	k := newKit()
	k.seal = mustSeal(owner, "bench", []string{"task-a"})
	k.tasks, k.trials = []string{"task-a"}, 1
	k.attempts = []fixture.Attempt{{Task: "task-a", Trial: 1, Attempt: 1, Score: "1"}}
	return k
}

// Any changed byte of the two signed files is found, and so is any cut.
func TestTamperEveryByte(t *testing.T) {
	k := small()
	dir := k.make(t)
	expect(t, run(policy(), dir), 0)
	flips := 0
	for _, member := range []string{audit.MemberCOSE, audit.MemberDSSE} {
		path := filepath.Join(dir, member)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		step := 1
		if testing.Short() {
			step = 10
		}
		try := func(what string, bad []byte) {
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			r := run(policy(), dir)
			if got := ids(r.Submissions[0]); r.Exit != 1 || len(got) != 1 || got[0] != audit.SubmissionInvalid {
				t.Fatalf("%s, %s: got exit %d, %q, want 1, %s", member, what, r.Exit, got, audit.SubmissionInvalid)
			}
			flips++
		}
		for at := 0; at < len(good); at += step {
			bad := bytes.Clone(good)
			bad[at] ^= 1 << (at % 8)
			try(fmt.Sprintf("byte %d", at), bad)
		}
		for _, n := range []int{0, 1, len(good) / 2, len(good) - 1} {
			try(fmt.Sprintf("%d bytes", n), good[:n])
		}
		try("a byte more", append(bytes.Clone(good), 0))
		if err := os.WriteFile(path, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if flips < 300 {
		t.Errorf("got %d changes", flips)
	}
	expect(t, run(policy(), dir), 0)
}

// A changed byte anywhere in a bundle changes its digest; what else is wrong with
// it is verify's business.
func TestTamperBundle(t *testing.T) {
	k := small()
	dir := k.make(t)
	name := k.nameOf(t, "task-a", 1, 1)
	good := k.bundles[name[:64]]
	for at := 0; at < len(good); at += 1 + len(good)/200 {
		bad := bytes.Clone(good)
		bad[at] ^= 1 << (at % 8)
		put(t, dir, name, bad)
		expect(t, run(policy(), dir), 1, audit.BundleInvalid)
	}
}
