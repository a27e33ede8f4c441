package proof_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

// vkeys of a log and of witnesses w1, w2, ...
func vkey(t testing.TB, name string) string {
	if name == "log" {
		return newSigner(t, logName, "log").Public().String()
	}
	return edCosigner(t, name+".example.org", name).Key().String()
}

func TestPolicy(t *testing.T) {
	text := "# logs\n\nlog " + vkey(t, "log") + " https://log.example.org/\n" +
		"witness X1 " + vkey(t, "x1") + "\n" +
		"\t witness  X2\t" + vkey(t, "x2") + "  http://127.0.0.1:8080/x2 \n" +
		"witness X3 " + pqCosigner(t, "x3.example.org", "x3").Key().String() + "\n" +
		"group X-witnesses 2 X1 X2 X3\n" +
		"witness Y1 " + vkey(t, "y1") + "\ngroup Y any Y1\n" +
		"group X-and-Y all X-witnesses Y\nquorum X-and-Y\n" +
		"log " + newSigner(t, "second.example.org", "second").Public().String() + "\n"
	p := mustPolicy(t, text)
	if len(p.Logs) != 2 || len(p.Witnesses) != 4 || p.Quorum != "X-and-Y" ||
		!reflect.DeepEqual(p.Groups, []proof.Group{{"X-witnesses", 2, []string{"X1", "X2", "X3"}}, {"Y", 1, []string{"Y1"}}, {"X-and-Y", 2, []string{"X-witnesses", "Y"}}}) {
		t.Errorf("got %+v", p)
	}
	if l, ok := p.FindLog(logName); !ok || l.URL != "https://log.example.org/" || l.Key.String() != vkey(t, "log") {
		t.Errorf("got log %+v, %v", l, ok)
	}
	if l, ok := p.FindLog("third.example.org"); ok {
		t.Errorf("got log %+v", l)
	}
	if again := mustPolicy(t, p.String()); !reflect.DeepEqual(again, p) {
		t.Errorf("got %+v back, want %+v", again, p)
	}
	if err := new(proof.Policy).Done(); err != nil {
		t.Errorf("a policy without lines: %v", err)
	}
}

// Each case is a good policy and a line that it must not take, by its keyword: the
// policy is then as before.
func TestPolicyRefuses(t *testing.T) {
	log := "log " + vkey(t, "log")
	w := func(name, key string) string { return "witness " + name + " " + vkey(t, key) }
	three := log + "\n" + w("w1", "w1") + "\n" + w("w2", "w2") + "\n" + w("w3", "w3") + "\n"
	p256 := "log " + p256Key(t).String()
	for _, c := range []struct{ name, before, line, says string }{
		{"an unknown keyword", "", "wittness w1 x", `"wittness"`},
		{"an upper-case keyword", "", "Log " + vkey(t, "log"), `"Log"`},
		{"a log without a key", "", "log", "1 words"},
		{"a log with a name", "", "log a b c", "4 words"},
		{"a log's key cut off", "", log[:len(log)-4], "want the vkey of a log"},
		{"a log with a witness's key", "", "log " + vkey(t, "w1"), "0x04"},
		{"a log with a P-256 key", "", p256, "want Ed25519"},
		{"a log twice", three, log, "again"},
		{"a log's key under another name", three, "log " + newSigner(t, "other.example.org", "log").Public().String(), "as other.example.org"},
		{"an origin with two keys", three, "log " + newSigner(t, logName, "other").Public().String(), "another key"},
		{"a URL that is none", "", log + " log.example.org", "https://"},
		{"a URL of a file", "", log + " file:///etc/passwd", "https://"},
		{"a URL without a host", "", log + " https:///x", "https://"},
		{"a comment after a line", "", log + " #comment", "#"},
		{"a URL that others cut at #", "", log + " https://log.example.org/#x", "#"},
		{"a name in another alphabet", "", "witness w\u0456 " + vkey(t, "w1"), "printable ASCII"},
		{"a witness without a key", "", "witness w1", "2 words"},
		{"a witness with a log's key", "", "witness w1 " + newSigner(t, "w1.example.org", "w1").Public().String(), "0x01"},
		{"a name twice", three, w("w1", "w4"), `"w1" again`},
		{"a name of a group", three + "group g any w1\n", w("g", "w4"), `"g" again`},
		{"a witness called none", three, w("none", "w4"), `"none"`},
		{"a witness called all", three, w("all", "w4"), `"all"`},
		{"a witness called log", three, w("log", "w4"), `"log"`},
		{"a group called none", three, "group none any w1", `"none"`},
		{"a group without a number", three, "group g w1", "3 words"},
		{"a group without a member", three, "group g all", "3 words"},
		{"a group of 0", three, "group g 0 w1 w2", `"0"`},
		{"a group of more than there are", three, "group g 3 w1 w2", "from 1 to 2"},
		{"a group of -1", three, "group g -1 w1 w2", `"-1"`},
		{"a number with a zero", three, "group g 01 w1 w2", `"01"`},
		{"a number that overflows", three, "group g 18446744073709551617 w1 w2", "from 1 to 2"},
		{"a group called as a witness", three, "group w1 any w2", `"w1" again`},
		{"a group twice", three + "group g any w1\n", "group g any w2", `"g" again`},
		{"a member that is defined later", three, "group g any h", `member "h"`},
		{"a group in itself", three, "group g any g w1", `member "g"`},
		{"none as a member", three, "group g any w1 none", `member "none"`},
		{"a quorum without a name", three, "quorum", "1 words"},
		{"a quorum of two", three, "quorum w1 w2", "3 words"},
		{"a quorum that is not defined", three, "quorum w4", `quorum "w4"`},
		{"a quorum of a log", three, "quorum " + logName, "quorum"},
		{"a second quorum", three + "quorum none\n", "quorum w1", "second quorum"},
		{"the same quorum twice", three + "quorum w1\n", "quorum w1", "second quorum"},
	} {
		p := new(proof.Policy)
		for l := range strings.Lines(c.before) {
			if err := p.Line(strings.Fields(l)); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		before := p.String()
		wantError(t, c.name, p.Line(strings.Fields(c.line)), proof.StagePolicy, c.says)
		if p.String() != before {
			t.Errorf("%s: the policy is another one after the error:\n%s", c.name, p)
		}
	}
	for name, words := range map[string][]string{"no word": nil, "an empty word": {"quorum", ""}, "a space in a word": {"quorum", "a b"}, "a newline in a word": {"log", "a\nquorum"}} {
		wantError(t, name, new(proof.Policy).Line(words), proof.StagePolicy, "")
	}
	for name, text := range map[string]string{"a log": log, "a witness": w("w1", "w1"), "a group": w("w1", "w1") + "\ngroup g any w1"} {
		_, err := policy(text)
		wantError(t, name+" without a quorum", err, proof.StagePolicy, "no quorum line")
	}
}

func p256Key(t *testing.T) receipt.PublicKey {
	t.Helper()
	const vkey = "rekor.sigstore.dev+c0d23d6a+AjBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABNhtmPtrWm3U1eQXBogSMdGvXwBcK5AW5i0hrZLOC96l+smGNM7nwZ4QvFK/4sueRoVj//QP22Ni4Qt9DPfkWLc="
	k, err := receipt.ParseVKey(vkey)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Nobody counts twice: not by a second name of a key, not as a log and its
// witness, not by a second group, and not by a second key of one name.
func TestRT79_OperatorCountedTwice(t *testing.T) {
	ed, pq := edCosigner(t, "w1.example.org", "w1").Key().String(), pqCosigner(t, "w1.example.org", "w1 pq").Key().String()
	two := "log " + vkey(t, "log") + "\nwitness w1 " + ed + "\nwitness w2 " + vkey(t, "w2") + "\n"
	both := two + "witness pq " + pq + "\n"
	for _, c := range []struct{ name, text, says string }{
		{"a key under two names", two + "witness w3 " + ed + "\ngroup g 2 w1 w3\nquorum g\n", "key of witness w1 again, as w3"},
		{"a key under two key names", two + "witness w3 " + edCosigner(t, "w3.example.org", "w1").Key().String() + "\ngroup g 2 w1 w3\nquorum g\n", "key of witness w1 again, as w3"},
		{"an ML-DSA-44 key under two key names", both + "witness w3 " + pqCosigner(t, "w3.example.org", "w1 pq").Key().String() + "\nquorum none\n", "key of witness pq again, as w3"},
		{"a member twice", two + "group g 2 w1 w1\nquorum g\n", `"w1" as a member again`},
		{"a member of two groups", two + "group g all w1 w2\ngroup h 2 g w1\nquorum h\n", `"w1" as a member again`},
		{"a group in two groups", two + "group g any w1\ngroup h any g\ngroup i 2 g h\nquorum i\n", `"g" as a member again`},
		{"two keys of one operator in a group of two", both + "group g 2 w1 w2 pq\nquorum g\n", "w1 and pq"},
		{"two keys of one operator in two groups", both + "group g any w1 w2\ngroup h any pq\ngroup i all g h\nquorum i\n", "pq and w1"},
		{"the log's key as a witness", two + "witness self " + edCosigner(t, "self.example.org", "log").Key().String() + "\nquorum self\n", "as witness self"},
		{"the log's second key as a witness", two + "witness self " + pqCosigner(t, logName, "log pq").Key().String() + "\nquorum self\n", "as witness self"},
		{"a log that is a witness before", "witness w1 " + ed + "\nlog " + newSigner(t, "x.example.org", "w1").Public().String() + "\nquorum w1\n", "as witness w1"},
	} {
		_, err := policy(c.text)
		wantError(t, c.name, err, proof.StagePolicy, c.says)
	}
	// The control: both keys of one operator count once, and only once.
	p := mustPolicy(t, both+"group one any w1 pq\ngroup g 2 one w2\nquorum g\n")
	log := newSigner(t, logName, "log")
	by := []*proof.Cosigner{edCosigner(t, "w1.example.org", "w1"), pqCosigner(t, "w1.example.org", "w1 pq"), edCosigner(t, "w2.example.org", "w2")}
	for _, c := range []struct {
		at  []uint64
		met bool
	}{{[]uint64{7, 8, 0}, false}, {[]uint64{0, 8, 9}, true}, {[]uint64{7, 8, 9}, true}} {
		note := cosign(t, signNote(t, log, 11, mth(leaves(11))), log.Public(), by, c.at)
		if q, err := p.Check(verify(t, note, log.Public())); err != nil || q.Met != c.met {
			t.Errorf("%v: got %+v, %v, want met %v", c.at, q, err, c.met)
		}
	}
}

// Two keys of one name whose ids are equal: a signature line of one would be taken
// for a false one of the other. The seeds were found by trying 50,000.
func TestPolicyRefusesEqualKeyIDs(t *testing.T) {
	a, b := edCosigner(t, "w1.example.org", "collide 30788").Key(), edCosigner(t, "w1.example.org", "collide 48257").Key()
	if a.ID() != b.ID() || a.SameKey(b) {
		t.Fatalf("got ids %08x and %08x, want equal ones of two keys", a.ID(), b.ID())
	}
	_, err := policy(fmt.Sprintf("witness a %s\nwitness b %s\nquorum a\n", a, b))
	wantError(t, "equal ids", err, proof.StagePolicy, "key name and id of witness a again")
	mustPolicy(t, fmt.Sprintf("witness a %s\nquorum a\n", a))
}

// 64 of each are taken, in the shape that is dearest to count: groups in groups.
func TestPolicyBounds(t *testing.T) {
	var b strings.Builder
	for i := range proof.MaxOfEach {
		fmt.Fprintf(&b, "log %s\n", newSigner(t, fmt.Sprintf("log%d.example.org", i), fmt.Sprint("log", i)).Public())
		fmt.Fprintf(&b, "witness w%d %s\n", i, vkey(t, fmt.Sprint("w", i)))
	}
	before := "w0"
	for i := range proof.MaxOfEach {
		member := before
		if i > 0 {
			member += fmt.Sprintf(" w%d", i)
		}
		fmt.Fprintf(&b, "group g%d all %s\n", i, member)
		before = fmt.Sprintf("g%d", i)
	}
	b.WriteString("quorum " + before + "\n")
	p := mustPolicy(t, b.String())
	for name, line := range map[string]string{
		"logs":      "log " + newSigner(t, "more.example.org", "more").Public().String(),
		"witnesses": "witness more " + vkey(t, "more"),
		"groups":    "group more any " + before,
	} {
		wantError(t, name, p.Line(strings.Fields(line)), proof.StagePolicy, "at most 64 "+name)
	}
	if len(b.String()) > 64<<10 {
		t.Errorf("got a policy of %d bytes: no policy file holds that", b.Len())
	}
}
