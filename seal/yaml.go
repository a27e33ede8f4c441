package seal

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/cleanrun-dev/cleanrun/internal/near"
)

// MaxTaskFile is the largest task file, in bytes.
const MaxTaskFile = 1 << 20

// A TaskError says what is wrong with a task file, and where.
type TaskError struct {
	File    string
	Line    int    // 0 if the whole file
	Item    string // "reference[2].path"; "" if the whole file
	Problem string // what was got, what is wanted
}

func (e *TaskError) Error() string {
	var b strings.Builder
	b.WriteString(e.File)
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d", e.Line)
	}
	if e.Item != "" {
		fmt.Fprintf(&b, ": %s", e.Item)
	}
	return b.String() + ": " + e.Problem
}

// A Value is one node of a task file, with the way to it. Only what a task file
// needs of YAML is read: mappings, sequences and strings. Anchors, aliases,
// tags and merge keys are refused, since a reader of the file would have to
// look elsewhere to know what it says.
type Value struct {
	File, Item string // where it stands; Item is as in TaskError
	Line       int    // 0 if it is the whole file
	node       ast.Node
}

// Errorf is a *TaskError at v.
func (v Value) Errorf(format string, args ...any) error {
	return &TaskError{File: v.File, Line: v.Line, Item: v.Item, Problem: fmt.Sprintf(format, args...)}
}

// ParseYAML returns the root of the only document in data, at most MaxTaskFile
// bytes of UTF-8. The error is a *TaskError.
func ParseYAML(file string, data []byte) (root Value, err error) {
	root = Value{File: file}
	switch {
	case len(data) > MaxTaskFile:
		return root, root.Errorf("got %d bytes, want at most %d", len(data), MaxTaskFile)
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return root, root.Errorf("got a byte order mark, want plain UTF-8; save the file without it")
	case !utf8.Valid(data):
		return root, root.Errorf("got bytes that are not UTF-8")
	}
	if i := bytes.IndexFunc(data, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == 0x7f || r == '\ufeff' }); i >= 0 {
		root.Line = 1 + bytes.Count(data[:i], []byte("\n"))
		return root, root.Errorf("got a control character, want text")
	}
	// The parser is a dependency that runs on a file from elsewhere: a panic in
	// it is an error of that file, not a crash.
	defer func() {
		if p := recover(); p != nil {
			err = root.Errorf("got YAML that cannot be parsed")
		}
	}()
	doc, parseErr := parser.ParseBytes(data, 0)
	if parseErr != nil {
		return root, yamlError(file, parseErr)
	}
	if len(doc.Docs) != 1 || doc.Docs[0].Body == nil {
		return root, root.Errorf("got %d YAML documents, want one mapping", len(doc.Docs))
	}
	root.node = doc.Docs[0].Body
	root.Line = lineOf(root.node)
	return root, nil
}

// yamlError moves the parser's position into our own form.
func yamlError(file string, err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n")
	var line, column int
	if n, _ := fmt.Sscanf(first, "[%d:%d]", &line, &column); n == 2 {
		_, first, _ = strings.Cut(first, "] ")
	}
	if first == "unexpected scalar value type" { // - **/x
		first += "; text that begins with * or & must be in quotes"
	}
	return &TaskError{File: file, Line: line, Problem: first}
}

func lineOf(n ast.Node) int {
	if n == nil || n.GetToken() == nil || n.GetToken().Position == nil {
		return 0
	}
	return n.GetToken().Position.Line
}

// Mapping calls set for each key, in order. A key twice, or one that is no
// plain string, is an error; so is a key that set does not know. keys are those that it
// knows: the error names the one that was probably meant.
func (v Value) Mapping(set func(key string, v Value) (known bool, err error), keys ...string) error {
	m, ok := v.node.(*ast.MappingNode)
	if !ok {
		return v.Errorf("got %s, want a mapping (key: value)", describe(v.node))
	}
	seen := map[string]int{}
	for _, entry := range m.Values {
		key, ok := entry.Key.(*ast.StringNode)
		if !ok {
			return Value{File: v.File, Item: v.Item, Line: lineOf(entry.Key)}.Errorf("got a key that is no plain word")
		}
		child := Value{File: v.File, Item: strings.TrimPrefix(v.Item+"."+key.Value, "."), Line: lineOf(entry.Key), node: entry.Value}
		if first, twice := seen[key.Value]; twice {
			return child.Errorf("got the key again, first on line %d; want each once", first)
		}
		seen[key.Value] = child.Line
		known, err := set(key.Value, child)
		if err != nil {
			return err
		}
		if !known {
			if meant := near.Word(key.Value, keys); meant != "" {
				return child.Errorf("unknown key; did you mean %s?", meant)
			}
			return child.Errorf("unknown key, want one of %s", strings.Join(keys, ", "))
		}
	}
	return nil
}

// Sequence calls add for each element.
func (v Value) Sequence(add func(v Value) error) error {
	s, ok := v.node.(*ast.SequenceNode)
	if !ok {
		return v.Errorf("got %s, want a list", describe(v.node))
	}
	if len(s.Values) == 0 {
		return v.Errorf("got an empty list; leave the key out")
	}
	for i, n := range s.Values {
		if err := add(Value{File: v.File, Item: fmt.Sprintf("%s[%d]", v.Item, i), Line: lineOf(n), node: n}); err != nil {
			return err
		}
	}
	return nil
}

// Text returns a string that is not empty.
func (v Value) Text() (string, error) {
	var s string
	switch n := v.node.(type) {
	case *ast.StringNode:
		s = n.Value
	case *ast.LiteralNode:
		s = n.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.NullNode, *ast.InfinityNode, *ast.NanNode:
		return "", v.Errorf("got %s, want a string; put it in quotes", describe(v.node))
	default:
		return "", v.Errorf("got %s, want a string", describe(v.node))
	}
	if strings.TrimSpace(s) == "" {
		return "", v.Errorf("got an empty string")
	}
	return s, nil
}

// Word returns the place of v in the given strings.
func (v Value) Word(want ...string) (int, error) {
	s, err := v.Text()
	if err != nil {
		return 0, err
	}
	for i, w := range want {
		if s == w {
			return i, nil
		}
	}
	return 0, v.Errorf("got %.80q, want one of %s", s, strings.Join(want, ", "))
}

func describe(n ast.Node) string {
	switch n.(type) {
	case nil, *ast.NullNode:
		return "nothing"
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a mapping"
	case *ast.SequenceNode:
		return "a list"
	case *ast.StringNode, *ast.LiteralNode:
		return "a string"
	case *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		return "a number"
	case *ast.BoolNode:
		return "true or false"
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		return "an anchor or alias (text that begins with * or & must be in quotes)"
	case *ast.TagNode:
		return "a tag"
	}
	return "something else"
}
