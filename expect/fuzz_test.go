package expect_test

import (
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/expect"
)

func FuzzTranscript(f *testing.F) {
	for _, s := range []string{
		"", "\n", header, header + asked() + answer(), header + asked(), header + header,
		strings.Replace(header+asked(), "desk", `\ud800`, 1), header + strings.Replace(asked(), "}\n", `,"x":{"y":1}}`+"\n", 1),
		header + "{}\n", header + "null\n", header + strings.Replace(asked(), `"role"`, `"Role"`, 1), header + strings.TrimSuffix(asked(), "\n") + "\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := expect.ParseTranscript(data)
		want := oracle(data)
		if (err == nil) != (want != nil) || (got == nil) != (err != nil) || got != nil && !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
	})
}

var (
	anyMarker = regexp.MustCompile(`[Cc][Rr]-[A-Za-z2-7]{16}`)
	wholeWord = regexp.MustCompile(`(?:^|[^\pL\p{Nd}\pM_-])(CR-[A-Z2-7]{16})(?:[^\pL\p{Nd}\pM_-]|$)`)
	space     = regexp.MustCompile(`[\s\x{85}\x{a0}\pZ]+`)
	end       = regexp.MustCompile(`[\pP\s\x{85}\x{a0}\pZ]+$`)
)

// FuzzReply holds what is found in a reply to regular expressions.
func FuzzReply(f *testing.F) {
	for _, s := range []string{
		"", marker(), " " + marker() + ".", marker() + marker(), marker() + "-", "x" + marker(), "cr-" + marker()[3:], "\xff" + marker(),
		"rotate the stale context before the next turn", "ROTATE THE\u00a0STALE CONTEXT BEFORE THE NEXT TURN...", "_rotate the stale context before the next turn_", "rotate the stale context before the next turns",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, reply string) {
		facts := passing()
		facts.Reply = reply
		got := map[string]bool{}
		for _, d := range expect.Judge(spec(), facts).Dimensions {
			got[d.Name] = d.State == expect.Met
		}
		if want := onlyMarker(strings.ToValidUTF8(reply, "\ufffd")); got["marker-reported"] != want {
			t.Errorf("marker in %q: got %v, want %v", reply, !want, want)
		}
		folded := " " + fold(strings.ToValidUTF8(reply, "\ufffd")) + " "
		want := regexp.MustCompile(`[^\pL\p{Nd}\pM]` + regexp.QuoteMeta(fold(line)) + `[^\pL\p{Nd}\pM]`).MatchString(folded)
		if got["line-reported"] != want {
			t.Errorf("line in %q: got %v, want %v", reply, !want, want)
		}
	})
}

// onlyMarker takes the markers out that stand alone, one by one, and wants at least
// one and nothing of the shape besides.
func onlyMarker(reply string) bool {
	held := false
	for {
		at := wholeWord.FindStringSubmatchIndex(reply)
		if at == nil {
			break
		}
		if reply[at[2]:at[3]] != marker() {
			return false
		}
		held = true
		reply = reply[:at[2]] + "*" + reply[at[3]:]
	}
	return held && !anyMarker.MatchString(reply)
}

// fold for a line of ASCII: other runes need only be themselves.
func fold(s string) string {
	s = strings.NewReplacer("\u017f", "s", "\u212a", "k").Replace(s)
	s = strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
	return end.ReplaceAllString(strings.TrimLeft(space.ReplaceAllString(s, " "), " "), "")
}

func TestFold(t *testing.T) {
	for in, want := range map[string]string{
		"  Rotate\tthe \n context.!? ": "rotate the context",
		"ΣΟΦΟΣ":                        "σοφοσ",
		"σοφος":                        "σοφοσ",
		"\u212aelvin \u017f":           "kelvin s",
		"...":                          "",
		"\u201cdone.\u201d":            "\u201cdone",
		"a+b = 3$":                     "a+b = 3$",
	} {
		if got := expect.Fold(in); got != want {
			t.Errorf("Fold(%q): got %q, want %q", in, got, want)
		}
	}
}
