package verify_test

import (
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// loggedKit makes an honest logged run: three witnesses, two CHECKPOINTs, entries
// of others between.
func loggedKit() *kit {
	k := newKit()
	k.logging = &fixture.Logging{Log: fixture.NewLog("log.example/1", 3), Owner: k.owner, Runner: k.runner, Heads: []uint64{4, 6}, Between: 2}
	return k
}

// logPolicy pins the kit's keys and its log, with a quorum of all witnesses.
func (k *kit) logPolicy(t testing.TB, lines ...string) *verify.Policy {
	t.Helper()
	return k.quorumPolicy(t, len(k.logging.Log.Witnesses), lines...)
}

func (k *kit) quorumPolicy(t testing.TB, quorum int, lines ...string) *verify.Policy {
	t.Helper()
	text := "owner " + k.owner.public.String() + "\nrunner " + k.runner.public.String() + "\n" + k.logging.Log.PolicyLines(quorum) + strings.Join(lines, "\n")
	p, err := verify.ParsePolicy([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestAssuranceL1(t *testing.T) {
	k := loggedKit()
	r := verify.Verify(k.make(t), k.logPolicy(t), now)
	t.Log("\n" + r.Text("x"))
	for _, c := range r.Checks {
		t.Logf("%+v", c)
	}
	if r.Exit != verify.ExitClean || r.Assurance.Level != verify.L1 {
		t.Fatal("want L1")
	}
}
