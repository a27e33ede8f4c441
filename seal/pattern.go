package seal

import (
	"strings"
)

// A pattern is a path with {column} in it, relative to benchmark.yaml.
type pattern struct {
	at    value
	parts []string // text, column, text, ..., text
}

func parsePattern(at value, t Text) (*pattern, error) {
	p := &pattern{at: value{file: at.file, item: t.Item, line: t.Line}}
	rest := t.Value
	for {
		text, after, found := strings.Cut(rest, "{")
		if strings.Contains(text, "}") {
			return nil, p.at.errorf("got %.200q, want text and {column}", t.Value)
		}
		p.parts = append(p.parts, text)
		if !found {
			return p, nil
		}
		column, more, closed := strings.Cut(after, "}")
		if !closed || column == "" || strings.Contains(column, "{") {
			return nil, p.at.errorf("got %.200q, want text and {column}", t.Value)
		}
		p.parts = append(p.parts, column)
		rest = more
	}
}

// columns are the names in braces.
func (p *pattern) columns() (names []string) {
	for i := 1; i < len(p.parts); i += 2 {
		names = append(names, p.parts[i])
	}
	return names
}

// expand puts the values in and holds the result to a clean path that stays
// below its folder: a row must not name a workspace elsewhere on the machine.
func (p *pattern) expand(column func(name string) (string, error)) (string, error) {
	var b strings.Builder
	for i, part := range p.parts {
		if i%2 == 0 {
			b.WriteString(part)
			continue
		}
		v, err := column(part)
		if err != nil {
			return "", err
		}
		b.WriteString(v)
	}
	if name := b.String(); inside(name) {
		return name, nil
	}
	return "", p.at.errorf("got the workspace %.200q, want a clean path that stays below the folder of %s", b.String(), p.at.file)
}
