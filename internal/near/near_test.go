package near

import "testing"

func TestWord(t *testing.T) {
	list := []string{"verify", "seal", "submit", "ls", "-policy", "words/one"}
	for word, want := range map[string]string{
		"verfy": "verify", "vreify": "verify", "verify": "verify", "sael": "seal", "submti": "submit", "-polcy": "-policy", "words/oen": "words/one",
		"": "", "x": "", "lz": "", "frobnicate": "", "se": "", "audit": "", "été": "",
	} {
		if got := Word(word, list); got != want {
			t.Errorf("%q: got %q, want %q", word, got, want)
		}
	}
}

// Distances counted by hand; a swapped pair is not edited again.
func TestEdits(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"", "ab", 2}, {"ab", "", 2}, {"ab", "ba", 1}, {"abc", "acb", 1}, {"ca", "abc", 3}, {"kitten", "sitting", 3}, {"seal", "sael", 1}} {
		if got := edits([]rune(c.a), []rune(c.b)); got != c.want {
			t.Errorf("%q, %q: got %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
