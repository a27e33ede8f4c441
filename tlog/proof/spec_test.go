package proof_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// specExample is the example of spec/checkpoint.md.
func specExample(t *testing.T) (policy string, file []byte) {
	log := newSigner(t, "log.example/2026", "log")
	d := leaves(11)
	by := []*proof.Cosigner{edCosigner(t, "witness1.example/w", "w1"), edCosigner(t, "witness2.example/w", "w2"), edCosigner(t, "witness3.example/w", "w3")}
	note := cosign(t, signNote(t, log, 11, mth(d)), log.Public(), by, []uint64{1796030047, 0, 1796030049})
	policy = "log " + log.Public().String() + " https://log.example/2026/\n"
	for i, c := range by {
		policy += fmt.Sprintf("witness w%d %s https://witness%d.example/\n", i+1, c.Key(), i+1)
	}
	policy += "group witnesses 2 w1 w2 w3\nquorum witnesses\n"
	return policy, proof.FormatLogProof(&proof.LogProof{Index: 5, Path: inclusionPath(5, d), Checkpoint: note})
}

// The example of spec/checkpoint.md is what we write, it verifies as the page says,
// and its list of stages is the one in error.go.
func TestSpecPage(t *testing.T) {
	data, err := os.ReadFile(filepath.Join("..", "..", "spec", "checkpoint.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	policy, file := specExample(t)
	for _, want := range []string{policy, string(file)} {
		if !strings.Contains(page, "```\n"+want+"```\n") {
			t.Errorf("the page lacks\n%s", want)
		}
	}
	p, err := proof.ParseLogProof(file)
	if err != nil {
		t.Fatal(err)
	}
	rules := mustPolicy(t, policy)
	v := verify(t, p.Checkpoint, rules.Logs[0].Key)
	if err := proof.Inclusion(p.Index, v.Checkpoint().Size, sha256.Sum256([]byte("\x00entry 5")), p.Path, v.Checkpoint().Root); err != nil {
		t.Error(err)
	}
	if q, err := rules.Check(v); err != nil || !q.Met || q.Time != 1796030049 || q.Got != 2 || q.Want != 3 {
		t.Errorf("got %+v, %v", q, err)
	}

	source, err := os.ReadFile("error.go")
	if err != nil {
		t.Fatal(err)
	}
	stages := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^\tStage\w+ +Stage = "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1) {
		stages[m[1]] = true
	}
	_, list, ok := strings.Cut(page, "\n## Stages\n")
	rows := regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(list, -1)
	if !ok || len(stages) < 11 {
		t.Fatalf("page or source cannot be read: %v, %d stages", ok, len(stages))
	}
	for _, r := range rows {
		if !stages[r[1]] {
			t.Errorf("the page lists %s, which is no stage", r[1])
		}
		delete(stages, r[1])
	}
	for s := range stages {
		t.Errorf("stage %s is not on the page", s)
	}
}
