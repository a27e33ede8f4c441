package footprint

import (
	"path"
	"slices"
	"strings"
)

// A Touched is a path that journaled writes changed, where nothing but the journal is
// known: no state before or after.
type Touched struct {
	Path     string // absolute
	Made     Making // by the first change
	Gone     bool   // the last change took the name away
	To       string // of a name that a rename took away, the new one, "" if not known
	Tree     bool   // a folder of this name was renamed, so all below it changed too
	Compiled bool   // somebody who saw the file says that it is what its source compiles to
}

// Making is what a path's first change made.
type Making uint8

const (
	MadeNothing Making = iota // it changed what was there
	MadeFile
	MadeFolder
)

// A Written is the judgement of journaled writes alone.
type Written struct {
	Outside  []int // places in what was judged, rising
	Compiled []int // left out since they are compiled, rising
}

// JudgeWrites judges journaled writes alone. Each path is judged whether or not it is
// in the end as it was, for nobody knows. Relative patterns begin at the workspace and
// stand for nothing outside it. A folder that was renamed needs a pattern that stands
// for everything below it (Covers), for both names.
//
// A path that is called compiled is left out only if it has the name of a cached module
// and is not gone. With it go the temporary name that a rename turned into it, and a
// __pycache__ folder that the run made and that holds nothing outside.
func (p Policy) JudgeWrites(workspace string, touched []Touched) Written {
	var w Written
	compiled := map[string]bool{}
	var open []int // not allowed by a pattern, and no cached module
	for i, t := range touched {
		if p.allowsWrite(workspace, t) {
			continue
		}
		if _, ok := ParseCompiled(t.Path); ok && t.Compiled && !t.Gone && !t.Tree {
			compiled[t.Path] = true
			w.Compiled = append(w.Compiled, i)
			continue
		}
		open = append(open, i)
	}
	folders := map[string]bool{} // __pycache__ folders with something outside in them
	var caches []int
	for _, i := range open {
		t := &touched[i]
		if m, ok := ParseTemporary(t.Path); ok && t.Made == MadeFile && t.Gone && !t.Tree && t.To == m.Path && compiled[m.Path] {
			continue
		}
		if path.Base(t.Path) == cacheFolder && t.Made == MadeFolder && !t.Gone && !t.Tree {
			caches = append(caches, i)
			continue
		}
		w.Outside = append(w.Outside, i)
		for at := 0; ; at++ { // a path may have thousands of folders: only those of this name are cut out
			next := strings.Index(t.Path[at:], "/"+cacheFolder+"/")
			if next < 0 {
				break
			}
			at += next
			folders[t.Path[:at+1+len(cacheFolder)]] = true
		}
	}
	for _, i := range caches {
		if folders[touched[i].Path] {
			w.Outside = append(w.Outside, i)
		}
	}
	slices.Sort(w.Outside)
	return w
}

func (p Policy) allowsWrite(workspace string, t Touched) bool {
	rel, inside := strings.CutPrefix(t.Path, strings.TrimSuffix(workspace, "/")+"/")
	if t.Path == workspace {
		rel, inside = ".", true
	}
	return slices.ContainsFunc(p.allowed, func(q Pattern) bool {
		switch {
		case q.absolute:
			return q.stands(t.Path, t.Tree)
		case inside:
			return q.stands(rel, t.Tree)
		}
		return false
	})
}

func (p Pattern) stands(path string, tree bool) bool {
	if tree {
		return p.Covers(path)
	}
	return p.Match(path)
}

// Covers tells whether the pattern stands for a folder and for everything below it.
func (p Pattern) Covers(folder string) bool {
	return len(p.segments) > 0 && p.segments[len(p.segments)-1] == "**" && p.Match(folder)
}
