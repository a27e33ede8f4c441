package contraband

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/expect"
)

// The values and rules of spec/sealed-set.md are those of this package.
func TestSealedSetPage(t *testing.T) {
	raw, err := os.ReadFile("../spec/sealed-set.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(raw)
	s := sampleSet()
	s.Scope.Grants = []Grant{{Path: "/s", Mode: 2}}
	s.Footprint = &Footprint{Allowed: []string{"out/*"}, Gate: true}
	s.Expect = &Expect{Read: "/s", Template: "Report " + expect.Placeholder + ".", Reply: expect.Stdout}
	data, err := s.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(data, append([]byte{0x16, 0x82, 0x81, 0x65}, "out/*"...)) // key 22 and what follows, to the end
	if at < 0 {
		t.Fatal("the set has no key 22")
	}
	if want := fmt.Sprintf("| `%x` |", data[at:]); !strings.Contains(page, want) {
		t.Errorf("the page lacks %s", want)
	}
	_, list, _ := strings.Cut(page, "\n## Rules\n")
	list, _, _ = strings.Cut(list, "\n## ")
	source, err := os.ReadFile("parse.go")
	if err != nil {
		t.Fatal(err)
	}
	rules := regexp.MustCompile(`(?m)^\tRule\w+ +Rule = "([a-z-]+)"`).FindAllStringSubmatch(string(source), -1)
	if len(rules) != 21 {
		t.Fatalf("got %d rules in the source", len(rules))
	}
	for _, r := range rules {
		if !regexp.MustCompile("(?m)^\\| [^|]*`" + r[1] + "`[^|]*\\|").MatchString(list) {
			t.Errorf("the page has no line for rule %s", r[1])
		}
	}
}
