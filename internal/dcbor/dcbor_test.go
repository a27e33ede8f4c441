package dcbor

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

type pair struct {
	_ struct{} `cbor:",toarray"`
	A uint8
	B [4]byte
}

type sample struct {
	N     uint32            `cbor:"1,keyasint"`
	I     int32             `cbor:"2,keyasint"`
	Text  string            `cbor:"3,keyasint"`
	Bytes []byte            `cbor:"4,keyasint"`
	Fixed [4]byte           `cbor:"5,keyasint"`
	List  []pair            `cbor:"6,keyasint"`
	Opt   *[]byte           `cbor:"7,keyasint"`
	Gone  string            `cbor:"8,keyasint,omitempty"`
	Map   map[string]uint64 `cbor:"9,keyasint,omitempty"`
	Flag  bool              `cbor:"10,keyasint"`
}

// good is sample{} with Fixed 01020304, by hand.
const good = "a8" + "0100" + "0200" + "0360" + "0440" + "054401020304" + "0680" + "07f6" + "0af4"

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRoundTrip(t *testing.T) {
	opt := []byte{9}
	for _, v := range []sample{
		{N: 7, I: -3, Text: "é", Bytes: []byte{1}, Fixed: [4]byte{1, 2, 3, 4}, List: []pair{{A: 1}, {A: 255, B: [4]byte{9}}}, Opt: &opt, Gone: "x", Map: map[string]uint64{"b": 1, "a": 2}, Flag: true},
		{Bytes: []byte{}, List: []pair{}, I: -1 << 31, N: 1<<32 - 1},
	} {
		b, err := Marshal(&v)
		if err != nil {
			t.Fatal(err)
		}
		var back sample
		if err := Unmarshal(b, &back); err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if !reflect.DeepEqual(v, back) {
			t.Errorf("got %+v, want %+v", back, v)
		}
	}
}

// Nil slices are written as empty ones, so "none" has one spelling; a nil
// pointer is null.
func TestNilIsEmpty(t *testing.T) {
	b, err := Marshal(&sample{Fixed: [4]byte{1, 2, 3, 4}})
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.EncodeToString(b); got != good {
		t.Fatalf("got %s, want %s", got, good)
	}
	var v sample
	if err := Unmarshal(b, &v); err != nil || v.List == nil || v.Bytes == nil || v.Opt != nil {
		t.Errorf("got %+v, %v", v, err)
	}
}

// refused holds one fault each, made by replacing one piece of good.
var refused = []struct{ name, old, new string }{
	{"RT59 duplicate key", "a80100", "a901000100"},
	{"RT59 duplicate key, other value", "0200", "0100"},
	{"RT60 non-shortest integer, 1 byte", "0100", "011800"},
	{"RT60 non-shortest integer, 8 bytes", "0100", "011b0000000000000000"},
	{"RT60 non-shortest key", "0100", "180100"},
	{"RT60 non-shortest length", "054401020304", "05580401020304"},
	{"RT60 float for integer", "0100", "01f90000"},
	{"RT60 null for integer", "0100", "01f6"},
	{"RT60 undefined for integer", "0100", "01f7"},
	{"RT60 true for integer", "0100", "01f5"},
	{"RT60 text for integer", "0100", "016130"},
	{"RT60 bignum for integer", "0100", "01c24100"},
	{"RT60 integer for bool", "0af4", "0a00"},
	{"RT60 null for bool", "0af4", "0af6"},
	{"RT60 negative for unsigned", "0100", "0120"},
	{"RT60 integer too large", "0100", "011b0000000100000000"},
	{"RT61 indefinite map", good, "bf" + good[2:] + "ff"},
	{"RT61 indefinite array", "0680", "069fff"},
	{"RT61 indefinite text", "0360", "037fff"},
	{"RT61 indefinite bytes", "0440", "045fff"},
	{"RT61 trailing byte", good, good + "00"},
	{"RT61 byte order mark", good, "efbbbf" + good},
	{"RT61 invalid UTF-8", "0360", "0361ff"},
	{"RT61 surrogate", "0360", "0363eda080"},
	{"RT61 empty input", good, ""},
	{"RT61 cut short", good, good[:len(good)-2]},
	{"RT62 unknown key", "0af4", "0af40b00"},
	{"RT62 unknown key, counted", good, "a9" + good[2:] + "0b00"},
	{"RT62 text key", good, "a9" + good[2:] + "616e00"},
	{"RT62 missing key", good, "a7" + good[2:len(good)-4]},
	{"keys out of order", "01000200", "02000100"},
	{"fixed array too short", "054401020304", "0543010203"},
	{"fixed array too long", "054401020304", "05450102030405"},
	{"fixed array empty", "054401020304", "0540"},
	{"fixed array as integers", "054401020304", "058401020304"},
	{"fixed array null", "054401020304", "05f6"},
	{"fixed array as text", "054401020304", "056461626364"},
	{"bytes as text", "0440", "0460"},
	{"text as bytes", "0360", "0340"},
	{"null for empty list", "0680", "06f6"},
	{"null for empty bytes", "0440", "04f6"},
	{"null for empty text", "0360", "03f6"},
	{"struct array too short", "0680", "06818101"},
	{"struct array too long", "0680", "068183014401020304" + "00"},
	{"omitempty key with empty value", "0af4", "08600af4"},
	{"tag", "0100", "01c100"},
	{"simple value", "0100", "01e0"},
	{"reserved length", "0100", "011c"},
}

func TestRT59to62_OneFaultRefused(t *testing.T) {
	var v sample
	if err := Unmarshal(unhex(t, good), &v); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	for _, c := range refused {
		if !strings.Contains(good, c.old) {
			t.Fatalf("%s: the piece %s is not in the good encoding", c.name, c.old)
		}
		bad := unhex(t, strings.Replace(good, c.old, c.new, 1))
		var v sample
		if err := Unmarshal(bad, &v); err == nil {
			t.Errorf("%s: %x: got no error", c.name, bad)
		}
	}
}

func TestNotCanonicalIsTyped(t *testing.T) {
	var v sample
	err := Unmarshal(unhex(t, strings.Replace(good, "0100", "011800", 1)), &v)
	if !errors.Is(err, ErrNotCanonical) {
		t.Errorf("got %v, want ErrNotCanonical", err)
	}
}

func TestRT63_DeepNesting(t *testing.T) {
	nest := func(n int) []byte { return append(bytes.Repeat([]byte{0x81}, n), 0x80) }
	var v any
	if err := Unmarshal(nest(MaxDepth-1), &v); err != nil {
		t.Fatalf("positive control: %v", err)
	}
	if err := Unmarshal(nest(MaxDepth+1), &v); err == nil {
		t.Error("one level too deep: got no error")
	}
	if err := Unmarshal(nest(10_000_000), &v); err == nil {
		t.Error("ten million levels: got no error")
	}
}

// A length prefix claims no memory: 2 GB and 2^64-1 of bytes, text, array, map.
func TestRT63_LengthPrefixBounded(t *testing.T) {
	for _, s := range []string{
		"5a80000000", "7a80000000", "9a80000000", "ba80000000",
		"5bffffffffffffffff", "7bffffffffffffffff", "9bffffffffffffffff", "bbffffffffffffffff",
		"5b7fffffffffffffff", "9a003fffff", "ba003fffff",
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, v := range []any{new(any), new([]pair), new([]byte), new(map[string]uint64), new(sample)} {
			if err := Unmarshal(unhex(t, s), v); err == nil {
				t.Errorf("%s into %T: got no error", s, v)
			}
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
			t.Errorf("%s: got %d bytes allocated, want at most 1 MiB", s, got)
		}
	}
}

func TestUnmarshalFirst(t *testing.T) {
	var n uint64
	rest, err := UnmarshalFirst([]byte{0x18, 0x64, 0x01, 0xff}, &n)
	if err != nil || n != 100 || !bytes.Equal(rest, []byte{0x01, 0xff}) {
		t.Errorf("got %d, rest %x, %v", n, rest, err)
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add(unhex(f, good))
	for _, c := range refused {
		f.Add(unhex(f, strings.Replace(good, c.old, c.new, 1)))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var v sample
		if err := Unmarshal(data, &v); err != nil {
			return
		}
		again, err := Marshal(&v)
		if err != nil || !bytes.Equal(again, data) {
			t.Fatalf("got %x from %x, %v", again, data, err)
		}
	})
}
