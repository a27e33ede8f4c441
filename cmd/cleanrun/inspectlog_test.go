package main

import (
	"strings"
	"testing"
	"unicode"
)

// The origin of a checkpoint that nobody has verified does nothing to a terminal.
func TestInspectOrigin(t *testing.T) {
	for origin, want := range map[string]string{"log.example/1": " log        log.example/1, the start row", "log\u009b2J\x7f": `"log\u009b2J\x7f"`} {
		var b strings.Builder
		(&registrationJSON{Origin: origin, Size: 2}).text(&b)
		if got := b.String(); !strings.Contains(got, want) || strings.ContainsFunc(strings.TrimSuffix(got, "\n"), unicode.IsControl) {
			t.Errorf("got %q, want %q in it", got, want)
		}
	}
}
