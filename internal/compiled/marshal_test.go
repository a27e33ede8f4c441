package compiled

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// codes are of one source, made by a real interpreter: as compile and marshal give it,
// after objects in it were held from elsewhere, under another file name, with a nested
// function under a name of its own, with another constant, and cut.
const codesScript = `import marshal, sys
source = "import os\ndef f(x, k='deep text'):\n    def g():\n        return x + k + os.sep + '/name.py'\n    return g, x in {'a', 'b'}, 1.5, 2j, 10**20, b'raw', (1, 2)\nclass C:\n    z = [...]\n"
def code(s=source, name="/name.py"): return compile(s, name, "exec", dont_inherit=True)
def put(b): sys.stdout.write(b.hex() + "\n")
print(sys.version_info[1])
c = code()
put(marshal.dumps(c))
held = code()
def hold(c, into):
    into.append((c.co_code, c.co_consts, c.co_names, c.co_name, c.co_filename, [list(c.co_consts)]))
    for k in c.co_consts:
        if hasattr(k, "co_code"): hold(k, into)
kept = []
hold(held, kept)
put(marshal.dumps(held))
put(marshal.dumps(code(name="rel/other.py")))
f = [k for k in c.co_consts if hasattr(k, "co_code")][0]
put(marshal.dumps(c.replace(co_consts=tuple(k.replace(co_filename="/elsewhere.py") if k is f else k for k in c.co_consts))))
put(marshal.dumps(code(source.replace("deep text", "deep test"))))
put(marshal.dumps(c)[:-9])
put(marshal.dumps(c) + b"N")
`

func codes(t *testing.T) (minor int, out [][]byte) {
	t.Helper()
	text, err := exec.Command("python3", "-I", "-S", "-c", codesScript).CombinedOutput()
	if err != nil {
		t.Skipf("no python3 that makes codes: %v", err)
	}
	for i, line := range strings.Fields(string(text)) {
		if i == 0 {
			for _, c := range line {
				minor = 10*minor + int(c-'0')
			}
			continue
		}
		b := make([]byte, len(line)/2)
		for j := range b {
			b[j] = unhex(line[2*j])<<4 | unhex(line[2*j+1])
		}
		out = append(out, b)
	}
	return minor, out
}

func unhex(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}

func TestSameCode(t *testing.T) {
	minor, all := codes(t)
	if _, ok := layoutOf(minor); !ok {
		t.Skipf("no layout of Python 3.%d is known here", minor)
	}
	if bytes.Equal(all[0], all[1]) {
		t.Fatal("control: holding objects changed no byte, so nothing is tested")
	}
	for i, want := range []string{"", "", "", "its code names several source files", "other code", "its code is cut off", "1 bytes after the code"} {
		got := ""
		if err := sameCode(all[0], all[i], minor); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("code %d: got %q, want %q", i, got, want)
		}
	}
}

// Each byte of a module, changed: only marks of objects and the file's name may differ.
func TestRT58e_EveryByteOfAModule(t *testing.T) {
	minor, all := codes(t)
	code := all[0]
	if sameCode(code, bytes.Clone(code), minor) != nil {
		t.Fatal("control: equal bytes are not the same")
	}
	name := []byte("/name.py")
	at := bytes.Index(code, name)
	first := bytes.Index(code[at+1:], name) + at + 1 // the constant and the file's name are two texts
	if first <= at {
		at, first = -100, at
	}
	for i := range code {
		for _, bit := range []byte{1, 0x40, 0x80} {
			b := bytes.Clone(code)
			b[i] ^= bit
			inName := i >= first && i < first+len(name) || i >= at && i < at+len(name)
			if err := sameCode(code, b, minor); err == nil && bit != 0x80 && !inName {
				t.Errorf("byte %d, bit %#x: the same", i, bit)
			}
		}
	}
}

// A constant that is the file's name itself, by reference, is part of the code.
func TestNameThatTheCodeRefersTo(t *testing.T) {
	// A code object of 3.11 without anything but its names: the constant is a
	// reference to the outer name, which stands before it as the only text.
	object := func(name string) []byte {
		text := func(s string) []byte { return append([]byte{'z' | marked, byte(len(s))}, s...) }
		b := []byte{'c'}
		b = append(b, make([]byte, 4*5)...)
		b = append(b, 's', 0, 0, 0, 0)                  // code
		b = append(b, ')', 0, ')', 0, ')', 0)           // consts, names, localsplusnames
		b = append(b, text(name)...)                    // in place of localspluskinds: a text
		b = append(b, 'r', 0, 0, 0, 0)                  // file name: that text
		b = append(b, 'r', 0, 0, 0, 0, 'r', 0, 0, 0, 0) // name, qualname
		b = append(b, 0, 0, 0, 0)
		return append(b, 's', 0, 0, 0, 0, 's', 0, 0, 0, 0)
	}
	later := func(name string) []byte {
		b := []byte{'c'}
		b = append(b, make([]byte, 4*5)...)
		b = append(b, 's', 0, 0, 0, 0, ')', 0, ')', 0, ')', 0, 's', 0, 0, 0, 0)
		b = append(append(b, 'z'|marked, byte(len(name))), name...) // file name
		b = append(b, 'r', 0, 0, 0, 0, 'N')                         // name: the same object
		b = append(b, 0, 0, 0, 0)
		return append(b, 's', 0, 0, 0, 0, 's', 0, 0, 0, 0)
	}
	for name, make := range map[string]func(string) []byte{"before": object, "after": later} {
		if err := sameCode(make("a"), append([]byte{}, make("a")...), 11); err != nil {
			t.Errorf("%s: control: %v", name, err)
		}
		if sameCode(make("a"), make("b"), 11) == nil {
			t.Errorf("%s: two values of a name that the code refers to are the same", name)
		}
	}
}

// Python up to 3.10 writes a set in the order of chance, later ones in an order that
// depends on what is interned.
func TestSets(t *testing.T) {
	set := func(elements ...string) []byte {
		b := []byte{'>', byte(len(elements)), 0, 0, 0}
		for _, e := range elements {
			b = append(b, e...)
		}
		return b
	}
	for _, c := range []struct {
		name      string
		want, got []byte
		same      bool
	}{
		{name: "texts in another order", want: set("z\x01a", "z\x01b"), got: set("Z\x01b", "z\x01a"), same: true},
		{name: "another text", want: set("z\x01a", "z\x01b"), got: set("z\x01a", "z\x01c")},
		{name: "a text twice", want: set("z\x01a", "z\x01b"), got: set("z\x01a", "z\x01a")},
		{name: "numbers in another order", want: set("i\x01\x00\x00\x00", "i\x09\x00\x00\x00"), got: set("i\x09\x00\x00\x00", "i\x01\x00\x00\x00")},
		{name: "tuples in another order", want: set(")\x01z\x01a", ")\x01z\x01b"), got: set(")\x01z\x01b", ")\x01z\x01a")},
		{name: "a text and a number", want: set("z\x01a", "i\x01\x00\x00\x00"), got: set("i\x01\x00\x00\x00", "z\x01a")},
	} {
		if got := sameCode(c.want, c.got, 11) == nil; got != c.same {
			t.Errorf("%s: got %v, want %v", c.name, got, c.same)
		}
	}
}

func FuzzSameCode(f *testing.F) {
	f.Add([]byte{'c' | marked, 0, 0}, uint8(11))
	f.Add([]byte{')', 2, 'z' | marked, 1, 'a', 'r', 0, 0, 0, 0}, uint8(13))
	f.Add(bytes.Repeat([]byte{')', 1}, 3000), uint8(12))
	f.Fuzz(func(t *testing.T, b []byte, minor uint8) {
		if sameCode(b, bytes.Clone(b), int(minor)) != nil {
			t.Fatal("equal bytes differ")
		}
		// A mark of an object that nothing refers to means nothing; anything that is
		// cut does.
		if len(b) > 1 && sameCode(b, b[:len(b)-1], int(minor)) == nil {
			t.Fatal("a cut module is the same")
		}
	})
}
