package receipt_test

import (
	"bufio"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// vector is one file of testvectors, see testvectors/bundle/gen.
type vector struct {
	name string
	head map[string]string
	data []byte
}

// readVectors reads a folder and fails if it holds fewer than least.
func readVectors(t testing.TB, folder string, least int) []vector {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "testvectors", folder, "*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if len(paths) < least {
		t.Fatalf("%s: got %d vectors, want at least %d", folder, len(paths), least)
	}
	var out []vector
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			t.Fatal(err)
		}
		v := vector{name: strings.TrimSuffix(filepath.Base(p), ".txt"), head: make(map[string]string)}
		lines := bufio.NewScanner(f)
		body := false
		for lines.Scan() {
			line := lines.Text()
			if name, value, ok := strings.Cut(line, ": "); ok && !body {
				v.head[name] = value
				continue
			}
			body = true
			b, err := hex.DecodeString(line)
			if err != nil {
				t.Fatalf("%s: %v", p, err)
			}
			v.data = append(v.data, b...)
		}
		if err := errors.Join(lines.Err(), f.Close()); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// title puts the attack's number in front of the name, as in RT66_alg-in-both.
func (v vector) title() string {
	if n := v.head["redteam"]; n != "" {
		return "RT" + n + "_" + v.name
	}
	return v.name
}

func (v vector) key(t testing.TB, name string) receipt.PublicKey {
	t.Helper()
	k, err := receipt.ParseVKey(v.head[name])
	if err != nil {
		t.Fatalf("%s: %v", v.name, err)
	}
	return k
}

// stage of an error, "ok" for none.
func stage(err error) string {
	var e *receipt.Error
	switch {
	case err == nil:
		return "ok"
	case errors.Is(err, receipt.ErrNotBundle):
		return "not-a-bundle"
	case errors.As(err, &e):
		return string(e.Stage)
	}
	return "no stage: " + err.Error()
}

func runVectors(t *testing.T, folder string, least int, check func(t *testing.T, v vector) error) {
	accepted := 0
	for _, v := range readVectors(t, folder, least) {
		t.Run(v.title(), func(t *testing.T) {
			err := check(t, v)
			if got := stage(err); got != v.head["stage"] {
				t.Errorf("got stage %q (%v), want %q: %s", got, err, v.head["stage"], v.head["comment"])
			}
			if err == nil {
				accepted++
			}
		})
	}
	if accepted < 2 {
		t.Errorf("%s: %d vectors accepted, want the positive controls", folder, accepted)
	}
}

func TestVectorsCOSE(t *testing.T) {
	kinds := make(map[string]receipt.Kind)
	for k := receipt.KindReceipt; k.Type() != ""; k++ {
		kinds[k.String()] = k
	}
	runVectors(t, "cose", 115, func(t *testing.T, v vector) error {
		kind, ok := kinds[v.head["kind"]]
		if !ok {
			t.Fatalf("kind %q is none", v.head["kind"])
		}
		u, err := receipt.ParseSign1(kind, v.data)
		if err != nil {
			return err
		}
		s, err := u.Verify(v.key(t, "key"))
		if err == nil && len(s.Payload()) == 0 {
			t.Error("verified, but no payload")
		}
		return err
	})
}

func TestVectorsLogReceipt(t *testing.T) {
	root := func(t *testing.T, v vector, name string) [32]byte {
		b := unhex(t, v.head[name])
		if len(b) != 32 {
			t.Fatalf("%s of %d bytes", name, len(b))
		}
		return [32]byte(b)
	}
	runVectors(t, "logreceipt", 80, func(t *testing.T, v vector) error {
		r, err := receipt.ParseLogReceipt(v.data)
		if err != nil {
			return err
		}
		log := v.key(t, "log")
		if v.head["older"] != "" {
			got, err := r.VerifyConsistency(log, root(t, v, "older"), root(t, v, "newer"))
			if err == nil && (got.Root() != root(t, v, "newer") || got.Consistency() == nil || got.Log() != log) {
				t.Errorf("verified another thing: %+v", got)
			}
			return err
		}
		entry := unhex(t, v.head["entry"])
		got, err := r.VerifyInclusion(log, entry)
		if err == nil && (got.Root() != must(r.InclusionRoot(entry))(t) || got.Inclusion() == nil || got.Log() != log || got.Size() != got.Inclusion().Size) {
			t.Errorf("verified another thing: %+v", got)
		}
		return err
	})
}

func TestVectorsDSSE(t *testing.T) {
	runVectors(t, "dsse", 45, func(t *testing.T, v vector) error {
		u, err := receipt.ParseDSSE(v.data)
		if err != nil {
			return err
		}
		e, err := u.Verify(v.key(t, "key"))
		if err == nil && len(e.Payload()) == 0 {
			t.Error("verified, but no payload")
		}
		return err
	})
}

func TestVectorsBundle(t *testing.T) {
	runVectors(t, "bundle", 41, func(t *testing.T, v vector) error {
		var second *receipt.PublicKey
		if v.head["second"] != "" {
			k := v.key(t, "second")
			second = &k
		}
		return openBundle(v.data, v.key(t, "runner"), v.key(t, "owner"), second)
	})
}

// openBundle is the order in which a verifier checks the signed parts, as in
// spec/bundle.md.
func openBundle(data []byte, runner, owner receipt.PublicKey, second *receipt.PublicKey) error {
	b, err := receipt.ParseBundle(data)
	if err != nil {
		return err
	}
	u, err := receipt.ParseSign1(receipt.KindReceipt, b.Receipt)
	if err != nil {
		return err
	}
	first, err := u.Verify(runner)
	if err != nil {
		return err
	}
	e, err := receipt.ParseDSSE(b.Statement)
	if err != nil {
		return err
	}
	env, err := e.Verify(runner)
	if err != nil {
		return err
	}
	if err := receipt.SamePayload(first.Payload(), env.Payload()); err != nil {
		return err
	}
	u, err = receipt.ParseSign1(receipt.KindSealedSet, b.Sealed)
	if err != nil {
		return err
	}
	if _, err := u.Verify(owner); err != nil {
		return err
	}
	if second == nil {
		return nil
	}
	u, err = receipt.ParseSign1(receipt.KindReceipt, b.Receipt2)
	if err != nil {
		return err
	}
	_, err = u.VerifySecond(first, *second)
	return err
}
