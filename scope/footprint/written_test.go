package footprint

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestJudgeWrites(t *testing.T) {
	file := func(p string) Touched { return Touched{Path: p} }
	const pyc = "/work/a/__pycache__/m.cpython-312.pyc"
	honest := []Touched{
		{Path: "/work/a/__pycache__", Made: MadeFolder},
		{Path: pyc, Compiled: true},
		{Path: pyc + ".1405", Made: MadeFile, Gone: true, To: pyc},
	}
	with := func(change func([]Touched) []Touched) []Touched { return change(slices.Clone(honest)) }
	for name, c := range map[string]struct {
		allowed  []string
		touched  []Touched
		outside  string // places
		compiled string
	}{
		"nothing":                         {nil, nil, "[]", "[]"},
		"nothing is allowed":              {nil, []Touched{file("/work/a")}, "[0]", "[]"},
		"relative to the workspace":       {[]string{"out/**"}, []Touched{file("/work/out"), file("/work/out/a/b"), file("/work/outside"), file("/srv/out/a")}, "[2 3]", "[]"},
		"absolute":                        {[]string{"/srv/out/*"}, []Touched{file("/srv/out/a"), file("/srv/out/a/b"), file("/work/srv/out/a")}, "[1 2]", "[]"},
		"absolute below the workspace":    {[]string{"/work/a"}, []Touched{file("/work/a"), file("/work/b")}, "[1]", "[]"},
		"everything is of the workspace":  {[]string{"**"}, []Touched{file("/work"), file("/work/a"), file("/srv/a")}, "[2]", "[]"},
		"really everything":               {[]string{"**", "/**"}, []Touched{file("/work"), file("/srv/a")}, "[]", "[]"},
		"the workspace itself":            {[]string{"*"}, []Touched{file("/work"), file("/work/a")}, "[]", "[]"},
		"a name that begins like it":      {[]string{"**"}, []Touched{file("/workspace2/a")}, "[0]", "[]"},
		"a folder that moved":             {[]string{"a", "b/**", "*"}, []Touched{{Path: "/work/a", Tree: true}, {Path: "/work/b", Tree: true}, {Path: "/work/b/c", Tree: true}}, "[0]", "[]"},
		"a folder that moved, everywhere": {[]string{"**/b/**"}, []Touched{{Path: "/work/a/b", Tree: true}, {Path: "/work/a/c", Tree: true}}, "[1]", "[]"},

		"what importing leaves":          {nil, honest, "[]", "[1]"},
		"nobody says that it is":         {nil, with(func(t []Touched) []Touched { t[1].Compiled = false; return t }), "[0 1 2]", "[]"},
		"allowed anyway":                 {[]string{"a/**"}, honest, "[]", "[]"},
		"gone again":                     {nil, with(func(t []Touched) []Touched { t[1].Gone = true; return t }), "[0 1 2]", "[]"},
		"another program beside it":      {nil, with(func(t []Touched) []Touched { return append(t, file("/work/a/__pycache__/x.py")) }), "[0 3]", "[1]"},
		"a temporary name left":          {nil, with(func(t []Touched) []Touched { t[2].Gone = false; return t }), "[0 2]", "[1]"},
		"a temporary name that led away": {nil, with(func(t []Touched) []Touched { t[2].To = "/work/x"; return t }), "[0 2]", "[1]"},
		"a temporary name that was there": {nil, with(func(t []Touched) []Touched { t[2].Made = MadeNothing; return t }),
			"[0 2]", "[1]"},
		"a cache folder that was there":  {nil, with(func(t []Touched) []Touched { t[0].Made = MadeNothing; return t }), "[0]", "[1]"},
		"a cache folder that moved here": {nil, with(func(t []Touched) []Touched { t[0].Made, t[0].Tree = MadeNothing, true; return t }), "[0]", "[1]"},
		"a cache folder that is gone":    {nil, with(func(t []Touched) []Touched { t[0].Gone = true; return t }), "[0]", "[1]"},
		"called compiled, but no module": {nil, []Touched{{Path: "/work/conftest.py", Compiled: true}, {Path: "/work/__pycache__/conftest.py", Compiled: true},
			{Path: "/work/m.cpython-312.pyc", Compiled: true}, {Path: pyc + ".1405", Compiled: true}}, "[0 1 2 3]", "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := NewPolicy(c.allowed)
			if err != nil {
				t.Fatal(err)
			}
			got := p.JudgeWrites("/work", c.touched)
			if o, m := fmt.Sprint(got.Outside), fmt.Sprint(got.Compiled); o != c.outside || m != c.compiled {
				t.Errorf("got outside %s, compiled %s, want %s, %s", o, m, c.outside, c.compiled)
			}
		})
	}
}

// oracle says the same by regular expressions and by asking each path about all others.
type oracle struct {
	allowed []string
	res     map[string]*regexp.Regexp
	touched []Touched
}

func (o *oracle) isAllowed(t Touched) bool {
	return slices.ContainsFunc(o.allowed, func(text string) bool {
		if t.Tree && text != "**" && !strings.HasSuffix(text, "/**") {
			return false
		}
		if strings.HasPrefix(text, "/") {
			return o.res[text].MatchString(t.Path)
		}
		rel, ok := strings.CutPrefix(t.Path+"/", "/work/")
		if rel = strings.TrimSuffix(rel, "/"); rel == "" {
			rel = "."
		}
		return ok && o.res[text].MatchString(rel)
	})
}

var (
	moduleName    = regexp.MustCompile(`^/(.*/)?__pycache__/[^/]+\.cpython-[0-9]{1,3}(\.opt-[12])?\.pyc$`)
	temporaryName = regexp.MustCompile(`^(.*)\.[0-9]+$`)
)

func (o *oracle) isCompiled(i int) bool {
	t := o.touched[i]
	return !o.isAllowed(t) && t.Compiled && !t.Gone && !t.Tree && moduleName.MatchString(t.Path)
}

func (o *oracle) isOutside(i int) bool {
	t := o.touched[i]
	if o.isAllowed(t) || o.isCompiled(i) {
		return false
	}
	if m := temporaryName.FindStringSubmatch(t.Path); m != nil && t.Made == MadeFile && t.Gone && !t.Tree && t.To == m[1] {
		for j := range o.touched {
			if o.touched[j].Path == t.To && o.isCompiled(j) {
				return false
			}
		}
	}
	if strings.HasSuffix(t.Path, "/__pycache__") && t.Made == MadeFolder && !t.Gone && !t.Tree {
		for j := range o.touched {
			if strings.HasPrefix(o.touched[j].Path, t.Path+"/") && o.isOutside(j) {
				return true
			}
		}
		return false
	}
	return true
}

func TestJudgeWritesEqualsOracle(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 8))
	names := []string{"a", "b", "__pycache__", "m.cpython-312.pyc", "m.cpython-312.pyc.7", "x.py"}
	patterns := []string{"a", "a/**", "**/b", "*/*", "/srv/**", "/work/b/*", "**", "**/__pycache__/**", "__pycache__/*"}
	res := map[string]*regexp.Regexp{}
	for _, text := range patterns {
		res[text] = naive(text)
	}
	seen := map[string]int{}
	for range 10000 {
		o := &oracle{res: res}
		for _, text := range patterns {
			if rng.IntN(8) == 0 {
				o.allowed = append(o.allowed, text)
			}
		}
		paths := map[string]bool{}
		for range 1 + rng.IntN(6) {
			p := []string{"/work", "/work", "/work", "/work/__pycache__", "/srv"}[rng.IntN(5)]
			for range rng.IntN(3) {
				p += "/" + names[rng.IntN(len(names))]
			}
			if m, ok := strings.CutSuffix(p, ".7"); ok && !paths[m] && rng.IntN(2) == 0 {
				paths[m] = true
				o.touched = append(o.touched, Touched{Path: m, Compiled: rng.IntN(4) > 0})
			}
			if paths[p] {
				continue
			}
			paths[p] = true
			one := Touched{Path: p, Made: Making(rng.IntN(3)), Gone: rng.IntN(3) == 0, Tree: rng.IntN(8) == 0, Compiled: rng.IntN(2) == 0}
			if strings.HasSuffix(p, ".7") && rng.IntN(2) == 0 {
				one.Made, one.Gone = MadeFile, true
			}
			if one.Gone && rng.IntN(4) > 0 {
				one.To = strings.TrimSuffix(p, ".7")
			}
			o.touched = append(o.touched, one)
		}
		p, err := NewPolicy(o.allowed)
		if err != nil {
			t.Fatal(err)
		}
		got := p.JudgeWrites("/work", o.touched)
		for i, one := range o.touched {
			if out, want := slices.Contains(got.Outside, i), o.isOutside(i); out != want {
				t.Fatalf("allowed %q, touched %+v: place %d outside %v, want %v", o.allowed, o.touched, i, out, want)
			}
			if left, want := slices.Contains(got.Compiled, i), o.isCompiled(i); left != want {
				t.Fatalf("allowed %q, touched %+v: place %d compiled %v, want %v", o.allowed, o.touched, i, left, want)
			}
			switch temp := strings.HasSuffix(one.Path, ".7"); {
			case o.isCompiled(i):
				seen["compiled"]++
			case o.isOutside(i):
				seen["outside"]++
			case o.isAllowed(one):
				seen["allowed"]++
			case temp:
				seen["temporary"]++
			default:
				seen["cache"]++
			}
		}
		if !slices.IsSorted(got.Outside) || !slices.IsSorted(got.Compiled) {
			t.Fatalf("got %+v, want rising places", got)
		}
	}
	for _, kind := range []string{"compiled", "outside", "allowed", "temporary", "cache"} {
		if seen[kind] < 20 {
			t.Errorf("got %v, want at least 20 of %s", seen, kind)
		}
	}
}

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		pattern, folder string
		want            bool
	}{
		{"out/**", "out", true}, {"out/**", "out/a", true}, {"out/**", "outs", false}, {"out/*", "out/a", false}, {"out", "out", false},
		{"**", "a", true}, {"**/b/**", "a/b", true}, {"**/b/**", "a", false}, {"**/b", "a/b", false}, {"/srv/**", "/srv", true}, {"/srv/**", "srv", false},
	} {
		p, err := ParsePattern(c.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Covers(c.folder); got != c.want {
			t.Errorf("%q of %q: got %v, want %v", c.pattern, c.folder, got, c.want)
		}
		// What it covers it stands for, whatever lies below.
		for _, below := range []string{"", "/x", "/x/y\nz", "/**"} {
			if c.want && !p.Match(c.folder+below) {
				t.Errorf("%q covers %q and does not stand for %q", c.pattern, c.folder, c.folder+below)
			}
		}
	}
	if (Pattern{}).Covers("a") {
		t.Error("the zero pattern covers something")
	}
}
