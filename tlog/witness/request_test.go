package witness

import (
	"bytes"
	"testing"

	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// The example of c2sp.org/tlog-witness.
const example = `old 20852014
PlRNCrwHpqhGrupue0L7gxbjbMiKA9temvuZZDDpkaw=
jrJZDmY8Y7SyJE0MWLpLozkIVMSMZcD5kvuKxPC3swk=
5+pKlUdi2LeF/BcMHBn+Ku6yhPGNCswZZD1X/6QgPd8=
/6WVhPs2CwSsb5rYBH5cjHV/wSmA79abXAwhXw3Kj/0=

example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

— example.com/behind-the-sofa Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
— example.com/behind-the-sofa opLqBQsREYCgu6xQkYQwJr9fo45a62DN9EdmHXnZdXNqlcVGlCum2Wks+49/V6267UEjw6QUXTS5Rovnzv++qbSzm9Q=
`

func TestParseExample(t *testing.T) {
	old, path, u, err := parseRequest([]byte(example))
	if err != nil {
		t.Fatal(err)
	}
	if cp := u.Checkpoint(); old != 20852014 || len(path) != 4 || path[0][0] != 0x3e || cp.Origin != "example.com/behind-the-sofa" || cp.Size != 20852163 {
		t.Errorf("got %d, %x, %+v", old, path, cp)
	}
}

// What is taken has one spelling.
func FuzzParseRequest(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("old 0\n\nlog\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n\n— log AAAAAAA=\n"))
	f.Fuzz(func(t *testing.T, body []byte) {
		old, path, u, err := parseRequest(body)
		if err != nil {
			if u != nil || path != nil {
				t.Error("a value came with an error")
			}
			return
		}
		if got := formatRequest(old, path, u.Note()); !bytes.Equal(got, body) {
			t.Errorf("got %q, want %q", got, body)
		}
		if len(path) > maxPath || len(u.Note()) > proof.MaxNote {
			t.Error("a bound was not held")
		}
	})
}
