package main

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/cleanrun-dev/cleanrun/"

// mayImport is the graph of DESIGN.md, "Packages".
var mayImport = map[string][]string{
	"internal/dcbor":    {},
	"internal/durable":  {},
	"internal/regular":  {},
	"internal/merkle":   {},
	"internal/jcs":      {},
	"internal/bucket":   {"internal/merkle"},
	"internal/views":    {},
	"internal/near":     {},
	"internal/cli":      {"internal/near"},
	"internal/cause":    {"attest", "journal", "scope"},
	"internal/seccomp":  {},
	"internal/objects":  {"internal/redact", "internal/regular", "internal/vault"},
	"internal/overlay":  {"internal/regular"},
	"internal/redact":   {},
	"internal/vault":    {"internal/regular", "journal"},
	"internal/store":    {},
	"internal/prune":    {"internal/vault", "journal"},
	"disclosure":        {"internal/dcbor", "journal"},
	"scope":             {"internal/dcbor"},
	"scope/footprint":   {"internal/regular"},
	"internal/compiled": {"internal/regular", "scope/footprint"},
	"internal/opening":  {"attest", "contraband", "expect", "internal/manifest", "internal/objects", "internal/regular", "internal/vault", "journal", "scope", "scope/footprint"},
	"journal":           {"internal/dcbor", "internal/durable", "internal/merkle", "internal/regular", "scope"},
	"expect":            {},
	"contraband":        {"internal/dcbor", "scope", "scope/footprint", "expect"},
	"internal/canon":    {"contraband"},
	"internal/manifest": {"internal/dcbor", "internal/durable", "scope"},
	"seal":              {"contraband", "expect", "internal/canon", "internal/views", "internal/manifest", "internal/near", "internal/regular", "scope", "scope/footprint"},
	"benchmark":         {"contraband", "internal/canon", "internal/merkle", "internal/regular", "receipt", "seal"},
	"attest":            {"internal/dcbor", "internal/jcs", "internal/bucket", "internal/merkle", "journal", "contraband", "scope", "scope/footprint", "expect"},
	"compact":           {"attest", "contraband", "journal", "internal/bucket", "internal/dcbor", "internal/merkle"},
	"receipt":           {"internal/dcbor"},
	"keys":              {"receipt", "internal/durable", "internal/regular"},
	"eval":              {"journal", "internal/durable", "internal/regular", "attest", "submission"},
	"verify":            {"attest", "compact", "receipt", "contraband", "journal", "scope", "expect", "internal/dcbor", "internal/merkle", "tlog/entry", "tlog/proof"},
	"submission":        {"attest", "contraband", "internal/jcs", "internal/merkle"},
	"audit":             {"verify", "submission", "receipt", "attest", "expect", "internal/regular", "tlog/proof"},
	"tlog":              {"internal/regular", "receipt", "tlog/proof"},
	"tlog/trillian":     {"internal/durable", "internal/regular", "receipt", "tlog", "tlog/proof"},
	"tlog/witness":      {"internal/durable", "internal/regular", "receipt", "tlog", "tlog/proof"},
	"tlog/proof":        {"internal/merkle", "receipt"},
	"internal/runlog":   {"internal/dcbor", "internal/durable", "internal/regular", "journal", "receipt", "tlog/entry", "tlog/proof", "tlog/registry"},
	"tlog/entry":        {"attest", "internal/dcbor", "journal", "receipt", "submission"},
	"tlog/registry":     {"internal/dcbor", "internal/merkle", "internal/regular", "receipt", "tlog", "tlog/entry", "tlog/proof", "tlog/trillian", "tlog/witness"},
	"tlog/monitor":      {"internal/regular", "receipt", "tlog", "tlog/entry", "tlog/proof", "tlog/registry"},
	"surface":           {"internal/dcbor"},
	"surface/oci":       {"surface", "internal/regular"},
	"surface/blob":      {"surface"},
	"surface/mcp":       {"surface"},
	"surface/rundir":    {"surface", "journal", "internal/manifest", "internal/objects", "internal/regular", "internal/vault"},
	"scanner":           {"journal", "contraband", "internal/canon", "internal/views", "internal/manifest", "attest", "internal/bucket", "internal/dcbor", "internal/objects", "internal/regular", "internal/vault", "scope"},
}

// pure packages build for js/wasm and know no clock, network, process or log.
var pure = []string{"attest", "compact", "contraband", "scope", "scope/footprint", "expect", "receipt", "verify", "journal", "submission", "disclosure", "tlog/entry", "tlog/proof"}

var forbidden = []string{"net", "net/http", "os/exec", "log", "log/slog",
	"github.com/sigstore/sigstore", "google.golang.org/protobuf", "github.com/google/trillian", "github.com/in-toto/attestation"}

func goList(t *testing.T, env []string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %v: %v", args, err)
	}
	return out
}

func TestImportGraph(t *testing.T) {
	dec := json.NewDecoder(strings.NewReader(string(goList(t, nil, "-json=ImportPath,Imports", "./..."))))
	seen := 0
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		allowed, ok := mayImport[strings.TrimPrefix(p.ImportPath, module)]
		if !ok {
			continue
		}
		seen++
		for _, i := range p.Imports {
			if own, ok := strings.CutPrefix(i, module); ok && !slices.Contains(allowed, own) {
				t.Errorf("%s imports %s; DESIGN.md does not allow it", p.ImportPath, i)
			}
		}
	}
	if seen != len(mayImport) {
		t.Errorf("got %d of the packages in the graph, want %d", seen, len(mayImport))
	}
}

func TestPurePackages(t *testing.T) {
	for _, p := range pure {
		deps := strings.Fields(string(goList(t, []string{"GOOS=js", "GOARCH=wasm"}, "-deps", "./"+p)))
		if len(deps) < 10 {
			t.Fatalf("%s: got %d dependencies, want the real list", p, len(deps))
		}
		for _, d := range deps {
			for _, f := range forbidden {
				if d == f || (strings.Contains(f, ".") && strings.HasPrefix(d, f)) {
					t.Errorf("%s depends on %s", p, d)
				}
			}
		}
	}
}

// The files of a run folder, dir_unix.go, keep monotonic time; no other file of a
// pure package has a clock.
func TestNoClock(t *testing.T) {
	files := 0
	for _, p := range pure {
		filepath.WalkDir("../../"+p, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			files++
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := s.X.(*ast.Ident)
				if ok && x.Name == "time" && (s.Sel.Name == "Now" || s.Sel.Name == "Since") && filepath.Base(path) != "dir_unix.go" {
					t.Errorf("%s uses time.%s", path, s.Sel.Name)
				}
				return true
			})
			return nil
		})
	}
	if files < 10 {
		t.Fatalf("looked at %d files, want the packages' sources", files)
	}
}
