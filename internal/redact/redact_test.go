package redact

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"testing"
)

const value = "hunter2-correct-horse/battery+staple="

func redactor(t testing.TB, c Config) *Redactor {
	t.Helper()
	r, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// examples has one key of each shape. They are made up: no service gave them out.
var examples = func() map[string]string {
	const alnum = "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8s9T0u1V2w3X4y5Z6a7B8c9D0e1F2g3H4i5J6k7L8m9N0"
	out := map[string]string{}
	for _, s := range Shapes() {
		rest := strings.Repeat(alnum, 4)[:s.Min]
		if s.Rest == "upper" {
			rest = strings.ToUpper(rest)
		}
		out[s.Prefix] = s.Prefix + rest
	}
	return out
}()

func privateKey(t testing.TB, label string) string {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: label, Bytes: der}))
}

func TestValues(t *testing.T) {
	r := redactor(t, Config{Values: [][]byte{[]byte(value), []byte("hunter2-correct"), []byte("abcabcabc")}})
	for in, want := range map[string]string{
		"":                           "",
		value:                        strings.Repeat("*", len(value)),
		"x" + value + value + "y":    "x" + strings.Repeat("*", 2*len(value)) + "y",
		"hunter2-correct-house":      "***************-house",
		"hunter2-correc":             "hunter2-correc",
		"abcabcabcabc!":              "************!",
		strings.ToUpper(value):       strings.ToUpper(value),
		"key=\x00" + value + "\x00z": "key=\x00" + strings.Repeat("*", len(value)) + "\x00z",
	} {
		b := []byte(in)
		res := r.Bytes(b)
		if string(b) != want || res.Bytes != strings.Count(want, "*") || res.Over {
			t.Errorf("%q: got %q, %+v, want %q", in, b, res, want)
		}
	}
	if s, _ := r.String("/work/"+value+"/x", true); s != "/work/"+strings.Repeat("*", 21)+"/"+strings.Repeat("*", 15)+"/x" {
		t.Errorf("got path %q, want its slashes kept", s)
	}
	if !r.Finds([]byte("a"+value)) || r.Finds([]byte("nothing")) {
		t.Error("Finds does not tell")
	}
	var none *Redactor
	if b := []byte(value); none.Bytes(b).Bytes != 0 || string(b) != value {
		t.Error("nil removed something")
	}
}

func TestRefused(t *testing.T) {
	long := bytes.Repeat([]byte("ab"), MaxValue)
	for name, c := range map[string]Config{
		"short":         {Values: [][]byte{[]byte("1234567")}},
		"long":          {Values: [][]byte{long}},
		"one byte":      {Values: [][]byte{[]byte("aaaaaaaaaaaa")}},
		"many":          {Values: make([][]byte, MaxValues+1)},
		"endless":       {Patterns: []string{`tok-[a-z]{8,}`}},
		"star":          {Patterns: []string{`token-.*`}},
		"nested":        {Patterns: []string{`(?:[a-z]{30}){20}`}},
		"short match":   {Patterns: []string{`[a-z]{4,20}`}},
		"optional":      {Patterns: []string{`(?:abcdefgh|ijk)`}},
		"blank":         {Values: [][]byte{[]byte("return the answer")}},
		"line":          {Values: [][]byte{[]byte("answer\nof two lines")}},
		"any text":      {Patterns: []string{`[ -~]{8,400}`}},
		"any character": {Patterns: []string{`.{8,100}`}},
		"not a quote":   {Patterns: []string{`[^"]{8,100}`}},
		"two words":     {Patterns: []string{`return [a-z]{2,20}`}},
		"no pattern":    {Patterns: []string{`[a-`}},
		"empty pattern": {Patterns: []string{``}},
		"wide":          {Patterns: []string{`.{200}`}}, // 800 bytes
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: got no error", name)
		}
	}
	redactor(t, Config{Patterns: []string{`(?i)tok_(live|test)_[a-z0-9]{16,64}\b`, `[!-~]{8,100}`, `(?:ab){4,16}?`}})
}

func TestShapes(t *testing.T) {
	r := redactor(t, Config{Shapes: true})
	if len(examples) < 20 {
		t.Fatalf("got %d examples, want one for each prefix", len(examples))
	}
	for prefix, key := range examples {
		for _, around := range [][2]string{{"", ""}, {"KEY=", "\n"}, {`{"k":"`, `"}`}, {"https://u:", "@host/"}, {`a\n`, `\n`}, {"x_", " "}, {strings.Repeat("word ", 50), "."}} {
			b := []byte(around[0] + key + around[1])
			want := around[0] + strings.Repeat("*", len(key)) + around[1]
			if r := redactor(t, Config{Shapes: true}); r.Bytes(b).Bytes != len(key) || string(b) != want {
				t.Errorf("%s: got %q, want %q", prefix, b, want)
			}
		}
		for _, near := range []string{key[:len(key)-1], "x" + key, strings.ToLower(key[:2]) + strings.ToUpper(key[2:])} {
			if near == key || strings.HasPrefix(near, prefix) && len(prefix)+minOf(prefix) <= len(near) {
				continue
			}
			b := []byte(near)
			if res := r.Bytes(b); res.Bytes != 0 || string(b) != near {
				t.Errorf("%q is no key, got %q", near, b)
			}
		}
	}
}

func minOf(prefix string) int {
	for _, s := range Shapes() {
		if s.Prefix == prefix {
			return s.Min
		}
	}
	return 0
}

// What programs hold and no key is: nothing of it may be removed.
func TestHonestTextStays(t *testing.T) {
	r := redactor(t, Config{Shapes: true})
	for _, s := range []string{
		"sk-loading-spinner-container-inner-wrapper-bold", "task-0123456789abcdef0123456789abcdef0123", "risk-4e1243bd22c66e76c2ba9eddc1f91394e57f9f83",
		"hf_download_model_weights_from_hub_with_retry", "npm_config_cache_directory_for_the_current_user", "AKIA", "AIzaSy", "ghp_",
		strings.Repeat("0123456789abcdef", 4096), strings.Repeat("-", 5000), strings.Repeat("=_-", 2000),
		"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n",
		"-----BEGIN RSA PRIVATE KEY-----\n" + strings.Repeat("this is the answer to the task and no key\n", 20) + "-----END RSA PRIVATE KEY-----\n",
		"-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQEA\n-----END RSA PRIVATE KEY-----\n", // its length is not its own
		"-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----\n",
	} {
		b := []byte(s)
		if res := r.Bytes(b); res != (Result{}) || string(b) != s {
			t.Errorf("got %.60q, %+v, want %.60q", b, res, s)
		}
	}
}

func TestPEM(t *testing.T) {
	r := redactor(t, Config{Shapes: true})
	for _, label := range []string{"PRIVATE KEY", "EC PRIVATE KEY"} {
		key := privateKey(t, label)
		for _, text := range []string{key, strings.ReplaceAll(key, "\n", `\n`), "    " + strings.ReplaceAll(key, "\n", "\n    "), strings.ReplaceAll(key, "\n", "\r\n")} {
			b := []byte("before\n" + text + "after")
			r.Bytes(b)
			body := strings.Split(key, "\n")[1]
			if bytes.Contains(b, []byte(body[:16])) || bytes.Contains(b, []byte(body[len(body)-16:])) {
				t.Errorf("%q is still a key", b)
			}
			if !bytes.HasPrefix(b, []byte("before\n")) || !bytes.HasSuffix(b, []byte("after")) || len(b) != len(text)+12 {
				t.Errorf("got %q, want the text around the key unchanged", b)
			}
		}
	}
}

// An answer that is cut into pieces of the shape of keys hides at most so much.
func TestRemovalIsBounded(t *testing.T) {
	key := examples["sk-"]
	text := []byte(strings.Repeat(key+"\n", 1000))
	for name, remove := range map[string]func(r *Redactor, b []byte) ([]byte, Result){
		"whole":  func(r *Redactor, b []byte) ([]byte, Result) { res := r.Bytes(b); return b, res },
		"pieces": func(r *Redactor, b []byte) ([]byte, Result) { return pieces(r, b, 777) },
		"stream": func(r *Redactor, b []byte) ([]byte, Result) { return r.Stream().Chunk(b) },
	} {
		r := redactor(t, Config{Shapes: true})
		total := 0
		for range MaxRun/MaxRow + 2 {
			b, res := remove(r, bytes.Clone(text))
			if n := bytes.Count(b, []byte{Mark}); n > MaxRow || n != res.Bytes || !res.Over {
				t.Fatalf("%s: got %d bytes removed, %+v, want at most %d and Over", name, n, res, MaxRow)
			}
			total += res.Bytes
		}
		if total > MaxRun || total < MaxRun-MaxRow {
			t.Errorf("%s: got %d bytes removed in the run, want at most %d", name, total, MaxRun)
		}
		// A value that was given is still removed.
		r.values = [][]byte{[]byte(value)}
		if b, res := remove(r, []byte("a "+value)); bytes.Contains(b, []byte(value)) || res.Bytes != len(value) {
			t.Errorf("%s: got %q, want the value removed beyond the bound", name, b)
		}
		b := bytes.Clone(text)
		if res := r.Unbounded().Bytes(b); res.Over || bytes.Contains(b, []byte(key)) {
			t.Errorf("%s: Unbounded left a key", name)
		}
	}
}

func pieces(r *Redactor, b []byte, n int) ([]byte, Result) {
	var out []byte
	p := r.Pass()
	for len(b) > n {
		out = append(out, p.Next(b[:n], false)...)
		b = b[n:]
	}
	out = append(out, p.Next(b, true)...)
	return out, p.Result()
}

// random text that holds values, keys and parts of them.
func random(rnd *mathrand.Rand, secrets []string) []byte {
	var b []byte
	for range 1 + rnd.IntN(12) {
		s := secrets[rnd.IntN(len(secrets))]
		switch rnd.IntN(6) {
		case 0:
			b = append(b, s...)
		case 1:
			b = append(b, s[:rnd.IntN(len(s))]...)
		case 2:
			b = append(b, s[rnd.IntN(len(s)):]...)
		case 3:
			b = append(b, strings.Repeat("x", rnd.IntN(3000))...)
		case 4:
			b = append(b, "\n ="[rnd.IntN(3)])
		case 5:
			for range rnd.IntN(200) {
				b = append(b, byte(rnd.IntN(256)))
			}
		}
	}
	return b
}

// A content in pieces becomes what it becomes as a whole.
func TestPassAgainstWhole(t *testing.T) {
	secrets := []string{value, "abcabcabc", examples["sk-"], examples["AKIA"], examples["ghp_"], examples["github_pat_"], privateKey(t, "PRIVATE KEY")}
	r := redactor(t, Config{Values: [][]byte{[]byte(value), []byte("abcabcabc")}, Shapes: true, Patterns: []string{`x=[0-9a-f]{8,32}`}}).Unbounded()
	rnd := mathrand.New(mathrand.NewPCG(1, 2))
	changed := 0
	for i := range 800 {
		b := random(rnd, secrets)
		whole := bytes.Clone(b)
		res := r.Bytes(whole)
		got, pres := pieces(r, bytes.Clone(b), 1+rnd.IntN(2000))
		if !bytes.Equal(got, whole) || res != pres {
			t.Fatalf("case %d: in pieces %q, %+v; as a whole %q, %+v", i, got, pres, whole, res)
		}
		if res.Bytes > 0 {
			changed++
		}
	}
	if changed < 200 {
		t.Errorf("got %d cases with a secret, want many", changed)
	}
}

// However a stream is cut, no secret stands in what is stored, and what differs
// is a Mark.
func TestStreamAgainstCuts(t *testing.T) {
	secrets := []string{value, examples["sk-"], examples["AKIA"], examples["github_pat_"], privateKey(t, "PRIVATE KEY")}
	c := Config{Values: [][]byte{[]byte(value)}, Shapes: true}
	rnd := mathrand.New(mathrand.NewPCG(3, 4))
	for i := range 800 {
		r := redactor(t, c).Unbounded()
		key := secrets[rnd.IntN(len(secrets))]
		before := random(rnd, secrets)
		b := slices.Concat(before, []byte("\n"), []byte(key), []byte("\n"), random(rnd, secrets))
		s := r.Stream()
		var got []byte
		for rest, most := b, 1+rnd.IntN(60); len(rest) > 0; {
			n := min(len(rest), 1+rnd.IntN(most))
			chunk, _ := s.Chunk(rest[:n])
			got = append(got, chunk...)
			rest = rest[n:]
		}
		if len(got) != len(b) {
			t.Fatalf("case %d: got %d bytes, want %d", i, len(got), len(b))
		}
		for k := range b {
			if got[k] != b[k] && got[k] != Mark {
				t.Fatalf("case %d: byte %d became %q", i, k, got[k])
			}
		}
		body := key
		if strings.HasPrefix(key, "-----") {
			body = strings.Split(key, "\n")[1][16:] // a few bytes tell nothing yet
		}
		if len(body) > 24 {
			body = body[20:]
		}
		if stored := got[len(before)+1:][:len(key)]; bytes.Contains(stored, []byte(body)) {
			t.Fatalf("case %d: %q is stored in %q", i, body, stored)
		}
	}
}

func TestStreamBytewise(t *testing.T) {
	r := redactor(t, Config{Values: [][]byte{[]byte(value)}})
	s := r.Stream()
	var got []byte
	for _, c := range []byte("say " + value + " hunt now") {
		chunk, _ := s.Chunk([]byte{c})
		got = append(got, chunk...)
	}
	if want := "say hun" + strings.Repeat("*", len(value)-3) + " hun* now"; string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b := []byte("plain")
	if out, res := s.Chunk(b); &out[0] != &b[0] || res != (Result{}) {
		t.Error("a chunk without a secret was copied")
	}
}

func FuzzPass(f *testing.F) {
	f.Add([]byte("a "+value+" b"), 3)
	f.Add([]byte(examples["sk-"]), 7)
	f.Add([]byte("-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----"), 11)
	r, err := New(Config{Values: [][]byte{[]byte("12345678"), []byte(value)}, Shapes: true})
	if err != nil {
		f.Fatal(err)
	}
	r = r.Unbounded()
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		if n < 1 || n > 1<<16 {
			return
		}
		whole := bytes.Clone(b)
		r.Bytes(whole)
		if got, _ := pieces(r, bytes.Clone(b), n); !bytes.Equal(got, whole) {
			t.Errorf("in pieces of %d: %q, as a whole %q", n, got, whole)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	r, err := New(Config{Values: [][]byte{[]byte(value)}, Shapes: true})
	if err != nil {
		b.Fatal(err)
	}
	rnd := mathrand.New(mathrand.NewPCG(5, 6))
	text := []byte(strings.Repeat("func (r *Redactor) find(b []byte, first, open bool) (found []span) {\n\tfor _, v := range r.values {\n", 1<<13))
	random := make([]byte, 1<<20)
	for i := range random {
		random[i] = byte(rnd.Uint32())
	}
	for name, data := range map[string][]byte{"source": text, "random": random} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				r.Bytes(data)
			}
		})
	}
}

func BenchmarkPass(b *testing.B) {
	r, err := New(Config{Values: [][]byte{[]byte(value)}, Shapes: true})
	if err != nil {
		b.Fatal(err)
	}
	rnd := mathrand.New(mathrand.NewPCG(5, 6))
	data := make([]byte, 16<<20)
	for i := range data {
		data[i] = byte(rnd.Uint32())
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		pieces(r, data, 128<<10)
	}
}
