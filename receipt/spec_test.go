package receipt_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The examples of spec/bundle.md and cose-receipt.md are vectors that verify, and its list of stages
// is the one in error.go.
func TestSpecPage(t *testing.T) {
	page := string(must(os.ReadFile(filepath.Join("..", "spec", "bundle.md")))(t))
	found := 0
	for _, v := range readVectors(t, "bundle", 40) {
		if v.name != "ok-small" {
			continue
		}
		found++
		for _, role := range []string{"runner", "owner"} {
			if line := role + " " + v.head[role] + "\n"; !strings.Contains(page, line) {
				t.Errorf("the page lacks %q", line)
			}
		}
		i := strings.Index(string(v.data), `{"payload"`)
		if dsse, _, _ := strings.Cut(string(v.data[i:]), "\x00"); !strings.Contains(page, "\n"+dsse+"\n") {
			t.Errorf("the page lacks %s", dsse)
		}
	}
	text := string(must(os.ReadFile(filepath.Join("..", "testvectors", "cose", "ok-receipt-ed25519.txt")))(t))
	if _, hex, ok := strings.Cut(text, "\n\n"); !ok || !strings.Contains(page, "\n"+hex) {
		t.Error("the page lacks the hex of ok-receipt-ed25519")
	}

	receipts := string(must(os.ReadFile(filepath.Join("..", "spec", "cose-receipt.md")))(t))
	text = string(must(os.ReadFile(filepath.Join("..", "testvectors", "logreceipt", "ok-inclusion-ed25519.txt")))(t))
	if _, hex, ok := strings.Cut(text, "\n\n"); !ok || !strings.Contains(receipts, "\n"+hex) {
		t.Error("cose-receipt.md lacks the hex of ok-inclusion-ed25519")
	}
	_, key, _ := strings.Cut(text, "\nlog: ")
	if key, _, _ = strings.Cut(key, "\n"); key == "" || !strings.Contains(receipts, "\n"+key+"\n") {
		t.Errorf("cose-receipt.md lacks the key %q", key)
	}

	source := string(must(os.ReadFile("error.go"))(t))
	var stages []string
	for _, m := range regexp.MustCompile(`(?m)^\tStage\w+ += "([a-z0-9-]+)"`).FindAllStringSubmatch(source, -1) {
		stages = append(stages, m[1])
	}
	for _, m := range regexp.MustCompile(`(?m)^\tStage\w+ +Stage = "([a-z0-9-]+)"`).FindAllStringSubmatch(source, -1) {
		stages = append(stages, m[1])
	}
	_, list, ok := strings.Cut(page, "\n## Stages\n")
	list, _, ok2 := strings.Cut(list, "\n## ")
	if !ok || !ok2 || found != 1 || len(stages) < 20 {
		t.Fatalf("page or source cannot be read: %v %v %d %d", ok, ok2, found, len(stages))
	}
	rows := regexp.MustCompile(`(?m)^\| ([a-z0-9-]+) \|`).FindAllStringSubmatch(list, -1)
	listed := make(map[string]bool)
	for _, r := range rows {
		listed[r[1]] = true
	}
	delete(listed, "stage") // the head of the table
	for _, s := range stages {
		if !listed[s] {
			t.Errorf("stage %s is not on the page", s)
		}
		delete(listed, s)
	}
	for s := range listed {
		t.Errorf("the page lists %s, which is no stage", s)
	}
}
