package cli

import (
	"flag"
	"strings"

	"github.com/cleanrun-dev/cleanrun/internal/near"
)

// names of commands, without that of their group.
func names(list []*Command) (out []string) {
	for _, c := range list {
		out = append(out, c.Name[strings.LastIndexByte(c.Name, ' ')+1:])
	}
	return out
}

// names of the flags, with their dash.
func (f *Flags) names() (out []string) {
	f.fs.VisitAll(func(g *flag.Flag) { out = append(out, "-"+g.Name) })
	return out
}

// DidYouMean is a hint for a word that is not in a list: the one that was probably
// meant, else other.
func DidYouMean(word string, list []string, other string) string {
	if meant := near.Word(word, list); meant != "" {
		return "did you mean " + meant + "?"
	}
	return other
}
