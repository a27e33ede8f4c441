package jcs

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"unicode/utf8"

	"github.com/gowebpki/jcs"
)

type inner struct {
	Zulu  string   `json:"zulu"`
	Alpha []string `json:"alpha"`
	N     uint32   `json:"n"`
}

type outer struct {
	B      bool     `json:"b"`
	A      uint64   `json:"a"`
	Type   string   `json:"_type"`
	Upper  string   `json:"A"`
	List   []inner  `json:"list"`
	Maybe  *inner   `json:"maybe,omitempty"`
	Null   *inner   `json:"null"`
	In     inner    `json:"in"`
	Astral string   "json:\"\U00010400\"" // UTF-16 order differs from that of bytes
	Wide   string   "json:\"\ufb33\""
	None   []string `json:"none"`
}

// library is what the two libraries make of v.
func library(t testing.TB, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	if err == nil {
		data, err = jcs.Transform(data)
	}
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func same(t testing.TB, v any) {
	t.Helper()
	got, err := Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if want := library(t, v); !bytes.Equal(got, want) {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestMarshal(t *testing.T) {
	var all []rune
	for c := rune(0); c < 0x2100; c++ {
		all = append(all, c)
	}
	text := string(all) + "</script>&\u2028\u2029\ufeff\uffff\U0010ffff"
	same(t, &outer{})
	same(t, outer{Type: text, A: maxExact, B: true, Upper: `"\`, List: []inner{{}, {Zulu: text, Alpha: []string{}, N: 1<<32 - 1}},
		Maybe: &inner{Alpha: []string{"", text}}, Null: &inner{}, Astral: "x", Wide: "y", None: []string{}})
	r := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		var s []rune
		for range r.IntN(6) {
			s = append(s, []rune{'a', '"', '\\', '\n', 0, 0x1f, 0x7f, 'é', 0x2028, 0x1f600, 0xfb33}[r.IntN(11)])
		}
		return string(s)
	}
	for range 2000 {
		v := outer{A: r.Uint64N(maxExact + 1), B: r.IntN(2) == 0, Type: word(), Upper: word(), Astral: word(), Wide: word()}
		for range r.IntN(3) {
			v.List = append(v.List, inner{word(), []string{word(), word()}, r.Uint32()})
		}
		if r.IntN(2) == 0 {
			v.Maybe, v.Null = &inner{Zulu: word()}, &inner{Zulu: word()}
		}
		same(t, v)
	}
}

func TestRefused(t *testing.T) {
	for name, v := range map[string]any{
		"too large": outer{A: maxExact + 1},
		"no UTF-8":  outer{Type: "\xff"},
		"a float": struct {
			X float64 `json:"x"`
		}{1},
		"a signed number": struct {
			X int `json:"x"`
		}{1},
		"a map": struct {
			X map[string]string `json:"x"`
		}{map[string]string{}},
		"bytes": struct {
			X []byte `json:"x"`
		}{[]byte("x")},
		"no name": struct{ X string }{"x"},
		"left out": struct {
			X string `json:"-"`
		}{"x"},
		"omitempty": struct {
			X string `json:"x,omitempty"`
		}{""},
		"as text": struct {
			X uint32 `json:"x,string"`
		}{1},
		"unexported": struct{ x string }{"x"},
		"embedded": struct {
			inner `json:"x"`
		}{},
	} {
		if got, err := Marshal(v); err == nil {
			t.Errorf("%s: got %s, want an error", name, got)
		}
	}
}

func FuzzString(f *testing.F) {
	f.Add("a\"\\\x00\u2028")
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			if got, err := Marshal(s); err == nil {
				t.Fatalf("got %s, want an error", got)
			}
			return
		}
		same(t, s)
	})
}
