package entry

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/fxamacker/cbor/v2"

	"github.com/cleanrun-dev/cleanrun/internal/dcbor"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// vector is one file of testvectors/log, see testvectors/log/gen.
type vector struct {
	name             string
	refusal, redteam string
	keys             map[Role]map[[32]byte]receipt.PublicKey
	entries          [][]byte
	text             []string // the hex of each, in lines
}

func readVectors(t *testing.T) (list []vector) {
	t.Helper()
	paths, err := filepath.Glob("../../testvectors/log/*.txt")
	if err != nil || len(paths) < 70 {
		t.Fatalf("got %d vectors, %v, want at least 70", len(paths), err)
	}
	for _, p := range paths {
		parts := strings.Split(string(must(os.ReadFile(p))), "\n\n")
		v := vector{name: strings.TrimSuffix(filepath.Base(p), ".txt"),
			keys: map[Role]map[[32]byte]receipt.PublicKey{RoleOwner: {}, RoleRunner: {}}}
		for line := range strings.Lines(parts[0]) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch name {
			case "refusal":
				v.refusal = value
			case "redteam":
				v.redteam = value
			case "owner", "runner":
				role := map[string]Role{"owner": RoleOwner, "runner": RoleRunner}[name]
				k := must(receipt.ParseVKey(value))
				v.keys[role][k.Thumbprint()] = k
			}
		}
		v.text = parts[1:]
		for _, e := range v.text {
			v.entries = append(v.entries, must(hex.DecodeString(strings.ReplaceAll(e, "\n", ""))))
		}
		if v.refusal == "" || len(v.entries) == 0 {
			t.Fatalf("%s: no vector", p)
		}
		list = append(list, v)
	}
	return list
}

// take does with an entry what a log does.
func (v *vector) take(l *Ledger, data []byte, index uint64) error {
	u, err := Parse(data)
	if err != nil {
		return err
	}
	key, ok := v.keys[u.Kind().Role()][u.Issuer()]
	if !ok {
		return Unknown(u)
	}
	e, err := u.Verify(key)
	if err != nil {
		return err
	}
	if err := l.Check(e); err != nil {
		return err
	}
	l.Apply(e, index)
	return nil
}

// Each vector is a log that takes all entries but the last, and what it says to
// that one. Every refusal has a vector.
func TestVectors(t *testing.T) {
	seen := map[ID]bool{}
	for _, v := range readVectors(t) {
		name := v.name
		if v.redteam != "" {
			name = "RT" + v.redteam + "_" + name
		}
		t.Run(name, func(t *testing.T) {
			l := NewLedger()
			last := len(v.entries) - 1
			for i, data := range v.entries[:last] {
				if err := v.take(l, data, uint64(i)); err != nil {
					t.Fatalf("entry %d: %v", i, err)
				}
			}
			got := "ok"
			err := v.take(l, v.entries[last], uint64(last))
			if err != nil {
				var r *Refusal
				if !errors.As(err, &r) {
					t.Fatal(err)
				}
				got = string(r.ID)
			}
			if got != v.refusal {
				t.Errorf("got %s (%v), want %s", got, err, v.refusal)
			}
		})
		seen[ID(v.refusal)] = true
	}
	for _, id := range append([]ID{"ok"}, IDs...) {
		if !seen[id] {
			t.Errorf("no vector has %s", id)
		}
	}
}

// What REGISTER says of scope and start is the hash of the very bytes in the row,
// which the generator of the journal's vectors wrote.
func TestRegisterOfRowBytes(t *testing.T) {
	text := string(must(os.ReadFile("../../testvectors/journal/ok-start-only.txt")))
	_, body, _ := strings.Cut(text, "\n\n")
	record := must(hex.DecodeString(strings.ReplaceAll(body, "\n", "")))
	row := must(journal.ParseRow(record[4:])) // after the length
	var raw, fields map[int]cbor.RawMessage
	if err := errors.Join(dcbor.Unmarshal(record[4:], &raw), dcbor.Unmarshal(raw[16], &fields)); err != nil {
		t.Fatal(err)
	}
	if string(fields[17]) != "\xf6" || string(fields[18]) != "\xf6" {
		t.Fatal("the vector's run is registered: want null in keys 17 and 18")
	}
	r, err := RegisterOf(row.Start, sum("head"))
	if err != nil {
		t.Fatal(err)
	}
	if r.Scope != sha256.Sum256(fields[10]) || r.Start != sha256.Sum256(raw[16]) {
		t.Errorf("got scope %x, start %x, want %x, %x", r.Scope, r.Start, sha256.Sum256(fields[10]), sha256.Sum256(raw[16]))
	}
}

// spec/log.md lists the refusals of the code, in its order, and shows a REGISTER
// that is a vector.
func TestSpecPage(t *testing.T) {
	page := string(must(os.ReadFile("../../spec/log.md")))
	_, list, ok := strings.Cut(page, "\n## What a log refuses\n")
	list, _, ok2 := strings.Cut(list, "\n## ")
	var ids []ID
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(list, -1) {
		ids = append(ids, ID(m[1]))
	}
	if !ok || !ok2 || !reflect.DeepEqual(ids, IDs) {
		t.Errorf("got %q on the page, want %q", ids, IDs)
	}
	for _, v := range readVectors(t) {
		if v.name == "ok-register" && !strings.Contains(page, "```\n"+v.text[len(v.text)-1]+"```\n") {
			t.Error("the page lacks the hex of ok-register")
		}
	}
	for k := KindSeal; k <= KindSubmit; k++ {
		if !strings.Contains(page, "\n| "+k.String()+" | ") {
			t.Errorf("the page lacks %v", k)
		}
	}
}
