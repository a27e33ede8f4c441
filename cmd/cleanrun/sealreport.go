package main

import (
	"crypto/sha256"
	"fmt"
	"strings"

	"github.com/cleanrun-dev/cleanrun/benchmark"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/expect"
)

// sealedFootprint is what a run may change, as it stands in a sealed set.
type sealedFootprint struct {
	Allow   []string `json:"allow"`
	Outside string   `json:"outside"` // report or dirty
}

// sealedExpect is what must happen with a named path, as it stands in a sealed set.
type sealedExpect struct {
	Read    string `json:"read"`
	Bytes   int    `json:"bytes"`  // of the text to plant
	SHA256  string `json:"sha256"` // of it, with the placeholder
	Line    string `json:"line,omitempty"`
	Reply   string `json:"reply"` // stdout, file or transcript
	File    string `json:"file,omitempty"`
	Agent   string `json:"agent,omitempty"`
	Channel string `json:"channel,omitempty"`
}

func footprintJSON(f *contraband.Footprint) *sealedFootprint {
	if f == nil {
		return nil
	}
	out := &sealedFootprint{append([]string{}, f.Allowed...), "report"}
	if f.Gate {
		out.Outside = "dirty"
	}
	return out
}

func expectJSON(x *contraband.Expect) *sealedExpect {
	if x == nil {
		return nil
	}
	reply := map[expect.Reply]string{expect.Stdout: "stdout", expect.File: "file", expect.Transcript: "transcript"}[x.Reply]
	return &sealedExpect{Read: x.Read, Bytes: len(x.Template), SHA256: fmt.Sprintf("%x", sha256.Sum256([]byte(x.Template))),
		Line: x.Line, Reply: reply, File: x.File, Agent: x.Agent, Channel: x.Channel}
}

// shownPatterns is how many patterns the text shows; -json has all.
const shownPatterns = 8

// surroundingsText says in text what the set holds of footprint and named path: all of
// it is in clear.
func surroundingsText(f *contraband.Footprint, x *contraband.Expect) string {
	var b strings.Builder
	if f != nil {
		may := "nothing"
		if n := len(f.Allowed); n > 0 {
			may = strings.Join(f.Allowed[:min(n, shownPatterns)], ", ")
			if n > shownPatterns {
				may += fmt.Sprintf(" and %d more (-json has all)", n-shownPatterns)
			}
		}
		outside := "is only reported"
		if f.Gate {
			outside = "makes the run DIRTY"
		}
		fmt.Fprintf(&b, " footprint  may change: %s; any other change %s\n", may, outside)
	}
	if x != nil {
		where := map[expect.Reply]string{expect.Stdout: "on stdout", expect.File: "in " + x.File,
			expect.Transcript: fmt.Sprintf("by %s to %s in %s", x.Agent, x.Channel, x.File)}[x.Reply]
		what := "its marker"
		if x.Line != "" {
			what += fmt.Sprintf(" and the line %q", x.Line)
		}
		fmt.Fprintf(&b, " named path %s is read, and %s reported %s\n", x.Read, what, where)
		fmt.Fprintf(&b, "            its text (%s) stands in the file in clear, but for the marker, which each run draws\n", several(len(x.Template), "byte", "bytes"))
	}
	return b.String()
}

// surroundingsOf says of how many tasks a benchmark states them.
func surroundingsOf(tasks []benchmark.TaskSeal) string {
	stated, dirty, named := 0, 0, 0
	for _, t := range tasks {
		if t.Footprint != nil {
			stated++
			if t.Footprint.Gate {
				dirty++
			}
		}
		if t.Expect != nil {
			named++
		}
	}
	var b strings.Builder
	if stated > 0 {
		fmt.Fprintf(&b, " footprint  of %s; a change outside makes a run DIRTY in %d of them (-json has the patterns)\n", counted(stated, "task"), dirty)
	}
	if named > 0 {
		fmt.Fprintf(&b, " named path of %s\n", counted(named, "task"))
	}
	return b.String()
}
