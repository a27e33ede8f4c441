package verify_test

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/verify"
)

func TestParsePolicy(t *testing.T) {
	owner, runner, second := newSigner("bench.example/owner"), newSigner("evals.example/runner"), newSigner("evals.example/second")
	good := "# who is trusted\n\nowner " + owner.public.String() + "\nrunner\t " + runner.public.String() + "\nrunner " + second.public.String() +
		"\nrequire full-evidence\nrequire second-signature"
	p, err := verify.ParsePolicy([]byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Owners) != 1 || p.Owners[0] != owner.public || len(p.Runners) != 2 || p.Runners[1] != second.public || !p.FullEvidence || !p.SecondSignature {
		t.Fatalf("got %+v", p)
	}
	o, r := "owner "+owner.public.String()+"\n", "runner "+runner.public.String()+"\n"
	log := fixture.NewLog("log.example/1", 1)
	l, w := "log "+log.Key.Public().String()+"\n", log.Witnesses[0].Key().String()
	witnessKey := func(s receipt.Signer) string {
		c, err := proof.NewEd25519Cosigner(s)
		if err != nil {
			t.Fatal(err)
		}
		return c.Key().String()
	}
	cases := []struct {
		name, text string
		line       int
	}{
		{"empty", "", 0},
		{"comments only", "# nothing\n\n", 0},
		{"requirement only", "require full-evidence\n", 0},
		{"unknown word", o + "owners x\n", 2},
		{"case", "Owner" + o[5:], 1},
		{"repeated key", o + r + o, 3},
		{"repeated key under another name", o + "owner " + namedSigner("other.example/owner", "bench.example/owner").public.String(), 2},
		{"repeated name with another key", o + "owner " + namedSigner("bench.example/owner", "x").public.String(), 2},
		{"repeated requirement", o + "require full-evidence\nrequire full-evidence\n", 3},
		{"unknown requirement", o + "require witness\n", 2},
		{"requirement missing", o + "require\n", 2},
		{"key missing", "owner\n", 1},
		{"key cut", o[:len(o)-4] + "\n", 1},
		{"two keys on a line", o[:len(o)-1] + " " + runner.public.String() + "\n", 1},
		{"comment behind a key", o[:len(o)-1] + " # me\n", 1},
		{"CR", o[:len(o)-1] + "\r\n", 1},
		{"BOM", "\ufeff" + o, 1},
		{"NUL", o + "\x00\n", 2},
		{"other alphabet", o + "r\u0443nner x\n", 2},
		{"log", o + "log example.com/log+12345678+AQ== https://example.com\n", 2},
		{"witness", o + "witness a example.com+12345678+AQ==\n", 2},
		{"group", o + "group g 1 a\n", 2},
		{"quorum", o + "quorum g\n", 2},
		{"second signature with one key", o + r + "require second-signature\n", 0},
		{"rate missing", o + "require infrastructure-rate\n", 2},
		{"rate above 100", o + "require infrastructure-rate 101\n", 2},
		{"rate below 0", o + "require infrastructure-rate -1\n", 2},
		{"rate in another spelling", o + "require infrastructure-rate 02\n", 2},
		{"rate with a sign", o + "require infrastructure-rate 2%\n", 2},
		{"rate and more", o + "require infrastructure-rate 2 3\n", 2},
		{"rate twice", o + "require infrastructure-rate 2\nrequire infrastructure-rate 0\n", 3},
		{"period missing", o + "require period\n", 2},
		{"period of two words", o + "require period 2026 1\n", 2},
		{"interval without a log", o + "require checkpoint-interval 60\n", 0},
		{"freshness without a log", o + "require freshness 60\n", 0},
		{"log without quorum", o + l, 0},
		{"log again", o + l + l, 3},
		{"witness line cut", o + l + "witness w1\n", 3},
		{"quorum of nobody known", o + l + "quorum w1\n", 3},
		{"quorum twice", o + l + "quorum none\nquorum none\n", 4},
		{"RT79 one witness key under two names", o + l + "witness a " + w + "\nwitness b " + w + "\n", 4},
		{"RT79 one key in two groups", o + l + "witness a " + w + "\ngroup g any a\ngroup h any a\n", 5},
		{"RT79 the runner as witness", o + r + l + "witness a " + witnessKey(runner) + "\nquorum a\n", 0},
		{"RT79 the owner as witness", o + r + l + "witness a " + witnessKey(owner) + "\nquorum a\n", 0},
		{"a witness of no log", o + "witness a " + w + "\nquorum a\n", 0},
		{"interval of 0", o + l + "quorum none\nrequire checkpoint-interval 0\n", 4},
		{"interval above a year", o + l + "quorum none\nrequire checkpoint-interval 31536001\n", 4},
		{"interval twice", o + l + "quorum none\nrequire checkpoint-interval 1\nrequire checkpoint-interval 1\n", 5},
		{"freshness in another spelling", o + l + "quorum none\nrequire freshness 060\n", 4},
		{"freshness missing", o + l + "quorum none\nrequire freshness\n", 4},
		{"too long", strings.Repeat("#", verify.MaxPolicy+1), 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, err := verify.ParsePolicy([]byte(c.text))
			var e *verify.PolicyError
			if !errors.As(err, &e) || p != nil || e.Line != c.line {
				t.Fatalf("got %v, %v, want an error in line %d", p, err, c.line)
			}
		})
	}
	if p, err := verify.ParsePolicy([]byte(o + "require infrastructure-rate 7\n")); err != nil || p.InfrastructureRate != 7 {
		t.Errorf("got %+v, %v, want a rate of 7", p, err)
	}
	if p.Log != nil {
		t.Errorf("got %+v of a policy without a log line", p.Log)
	}
	p, err = verify.ParsePolicy([]byte(o + "require period 2026-2\n" + l + "witness w1 " + w + "\nquorum w1\nrequire checkpoint-interval 60\nrequire freshness 600\n"))
	if err != nil || p.Log == nil || len(p.Log.Logs) != 1 || p.Log.Quorum != "w1" || p.CheckpointInterval != 60 || p.Freshness != 600 || p.Period != "2026-2" {
		t.Errorf("got %+v, %v", p, err)
	}
}

// The example in spec/policy.md is a policy.
func TestSpecPolicy(t *testing.T) {
	page, err := os.ReadFile("../spec/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := bytes.Cut(page, []byte("```\n"))
	example, _, ok2 := bytes.Cut(rest, []byte("```"))
	if !ok || !ok2 {
		t.Fatal("no example")
	}
	p, err := verify.ParsePolicy(example)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Owners) != 1 || len(p.Runners) != 2 || !p.FullEvidence || !p.SecondSignature || p.Log == nil || len(p.Log.Witnesses) != 3 || p.CheckpointInterval != 60 {
		t.Errorf("got %+v", p)
	}
}

func FuzzParsePolicy(f *testing.F) {
	f.Add([]byte("owner " + newSigner("bench.example/owner").public.String() + "\nrequire full-evidence\n"))
	f.Add([]byte("# x\n\nrunner x\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := verify.ParsePolicy(data)
		if (p == nil) == (err == nil) {
			t.Fatalf("got %v and %v", p, err)
		}
		if p != nil && len(p.Owners)+len(p.Runners) == 0 {
			t.Fatal("accepted a policy that trusts nobody")
		}
	})
}
