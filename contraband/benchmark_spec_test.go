package contraband

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The values and rules of spec/benchmark.md are those of this package.
func TestBenchmarkPage(t *testing.T) {
	raw, err := os.ReadFile("../spec/benchmark.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	secret := make([]byte, 32)
	for i := range secret {
		secret[i] = byte(i)
	}
	audit, err := NewAuditKey(secret)
	if err != nil {
		t.Fatal(err)
	}
	key := audit.Benchmark("bench", "")
	head := Head{Version: BenchmarkVersion, Benchmark: "bench", Tasks: 2, Weak: 1, Revision: "v1", Data: [32]byte{31: 1}, Key: key.Publish()}
	data, err := head.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		fmt.Sprintf("| K_benchmark | `%x` |", key.Publish()), fmt.Sprintf("that key | `%x` |", data),
		`"` + BenchmarkVersion + `"`, "`" + benchmarkKeyWord + "`",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	source, err := os.ReadFile("benchmark.go")
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile(`(?m)^\tRule\w+ +Rule = "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(rules) != 4 {
		t.Fatalf("got %d rules in the source", len(rules))
	}
	for _, r := range rules {
		if !strings.Contains(page, "\n| `"+r[1]+"` |") {
			t.Errorf("the page has no line for rule %s", r[1])
		}
	}
}
