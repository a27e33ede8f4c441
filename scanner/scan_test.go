//go:build unix

package scanner

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/journal"
)

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	must(t, w.Close())
	return out.Bytes()
}

func tarred(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, m := range []struct {
		name string
		data []byte
	}{{"readme", []byte("nothing to see")}, {"data", b}} {
		must(t, w.WriteHeader(&tar.Header{Name: m.name, Size: int64(len(m.data)), Mode: 0o600}))
		w.Write(m.data)
	}
	must(t, w.Close())
	return out.Bytes()
}

func wrapped(s string, n int) string {
	var b strings.Builder
	for part := range slices.Chunk([]byte(s), n) {
		b.Write(append(part, '\n'))
	}
	return b.String()
}

func fullWidth(s string) string {
	return strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r + 0xfee0
		}
		return r
	}, s)
}

func b64(b []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(b)) }

// reasons of the verdict on a run folder.
func reasons(t *testing.T, s *sealed, key contraband.TaskKey, dir string) (*attest.Evidence, []string) {
	t.Helper()
	_, ev, _ := scanDir(t, dir, key, s.set, 2)
	var ids []string
	for _, r := range attest.Derive(s.set, ev).Reasons {
		ids = append(ids, r.ID)
	}
	return ev, ids
}

// listed writes each byte of s in a format.
func listed(format, s string) []byte {
	var b []byte
	for _, c := range []byte(s) {
		b = fmt.Appendf(b, format, c)
	}
	return b
}

// TestRT37_RT38_SealedContentIsFound: the same sealed file in many clothes, each
// as a file that the run reads. want is the reason that must be given.
func TestRT37_RT38_SealedContentIsFound(t *testing.T) {
	key := testKey("rt37")
	s := seal(t, key)
	quoted, err := json.Marshal(map[string]string{"content": secret})
	must(t, err)
	for _, c := range []struct {
		name, want string
		data       []byte
	}{
		{"whole", attest.ReasonObject, []byte(secret)},
		{"re-wrapped", attest.ReasonObject, []byte(wrapped(strings.Join(strings.Fields(secret), ""), 31))},
		{"upper-cased", attest.ReasonObject, []byte(strings.ToUpper(secret))},
		{"full-width", attest.ReasonObject, []byte(fullWidth(secret))},
		{"a third of it", attest.ReasonFragments, []byte(prose(50, 200) + secret[:len(secret)/3] + prose(51, 200))},
		{"gzip", attest.ReasonObject, gzipped(t, []byte(secret))},
		{"gzip in tar in base64", attest.ReasonObject, b64(tarred(t, gzipped(t, []byte(secret))))},
		{"base64 of gzip, wrapped", attest.ReasonObject, []byte(wrapped(string(b64(gzipped(t, []byte(secret)))), 76))},
		{"JSON string", attest.ReasonFragments, quoted},
		{"percent", attest.ReasonFragments, []byte("q=" + url.QueryEscape(secret))},
		{"hex dump", attest.ReasonObject, []byte(hex.Dump([]byte(secret)))},
		{"hex dump of gzip", attest.ReasonObject, []byte(hex.Dump(gzipped(t, []byte(secret))))},
		{"hex, blanks", attest.ReasonObject, listed("%02x ", secret)},
		{"hex, colons", attest.ReasonObject, listed("%02X:", secret)},
		{"hex, C array", attest.ReasonObject, listed("0x%02x, ", secret)},
		{"hex escapes", attest.ReasonFragments, listed(`\x%02x`, secret)},
		{"decimal", attest.ReasonObject, fmt.Appendf(nil, "%d", []byte(secret))},
		{"octal", attest.ReasonObject, listed("%03o ", secret)},
		{"octal escapes", attest.ReasonFragments, listed(`\%03o`, secret)},
		{"HTML, decimal", attest.ReasonFragments, listed("&#%d;", secret)},
		{"HTML, hex", attest.ReasonFragments, listed("&#x%x;", secret)},
		{"HTML, names", attest.ReasonFragments, []byte(strings.Join(strings.Fields(secret), "&lt;&gt;&amp;&quot;&apos;&nbsp;"))},
		{"base32", attest.ReasonObject, []byte(base32.StdEncoding.EncodeToString([]byte(secret)))},
		{"base32, wrapped", attest.ReasonObject, []byte(wrapped(base32.StdEncoding.EncodeToString([]byte(secret)), 76))},
		{"base64, a blank every 4", attest.ReasonObject, []byte(strings.ReplaceAll(wrapped(string(b64([]byte(secret))), 4), "\n", " "))},
		{"base64 of gzip, a blank every 7", attest.ReasonObject, []byte(strings.ReplaceAll(wrapped(string(b64(gzipped(t, []byte(secret)))), 7), "\n", " "))},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev, ids := reasons(t, s, key, recorded(t, s.set, nil, false, open("/work/x", c.data)))
			if !slices.Contains(ids, c.want) {
				t.Errorf("got reasons %v, want %s among them", ids, c.want)
			}
			if e := entry(ev, 0); e.Bounds != 0 || e.Opaque != 0 {
				t.Errorf("got bounds %x, %d opaque bytes, want none", e.Bounds, e.Opaque)
			}
		})
	}
	t.Run("control: honest text in the same clothes", func(t *testing.T) {
		other := []byte(prose(7, 900))
		_, ids := reasons(t, s, key, recorded(t, s.set, nil, false,
			open("/work/d", []byte(hex.Dump(other))), open("/work/e", listed("%d, ", string(other))), open("/work/f", listed("&#%d;", string(other))),
			open("/work/g", []byte(base32.StdEncoding.EncodeToString(other))), open("/work/h", []byte(strings.ReplaceAll(wrapped(string(b64(other)), 4), "\n", " "))),
			open("/work/a", other), open("/work/b", gzipped(t, other)), open("/work/c", b64(tarred(t, gzipped(t, other))))))
		for _, id := range ids {
			if attest.ReasonDirty(id) || id == attest.ReasonBounds || id == attest.ReasonOpaque || id == attest.ReasonTrace || id == attest.ReasonControls {
				t.Errorf("got reason %s for honest content", id)
			}
		}
	})
}

func TestRT38_DeeperThanTheBoundIsReported(t *testing.T) {
	key := testKey("rt38")
	s := seal(t, key)
	deep := gzipped(t, b64(tarred(t, gzipped(t, []byte(secret)))))
	ev, ids := reasons(t, s, key, recorded(t, s.set, nil, false, open("/work/x", deep)))
	if e := entry(ev, 0); e.Bounds != attest.BoundDepth || !slices.Contains(ids, attest.ReasonBounds) {
		t.Errorf("got bounds %x, reasons %v, want the depth bound", e.Bounds, ids)
	}
	ev, _ = reasons(t, s, key, recorded(t, s.set, nil, false, open("/work/x", deep[:0:0]), open("/work/y", b64(tarred(t, gzipped(t, []byte(secret)))))))
	if e := entry(ev, 1); e.Bounds != 0 {
		t.Errorf("control: got bounds %x one level higher, want none", e.Bounds)
	}
}

func noise(seed uint64, n int) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed)})
	b := make([]byte, n)
	r.Read(b)
	return b
}

// TestRT42_OpaqueContent: an encrypted blob counts if it came in, by file or
// stdin, also inside a container, and not if the run made it.
func TestRT42_OpaqueContent(t *testing.T) {
	key := testKey("rt42")
	s := seal(t, key)
	blob := noise(1, 5000)
	made := open("/work/out", blob[:4000])
	made.row = journal.Row{Op: journal.OpWrote, Dir: journal.DirOut, Origin: journal.OriginRun}
	write := open("/work/out", nil)
	write.row = journal.Row{Op: journal.OpOpen, Proc: 1, Flags: journal.FlagWrite | journal.FlagTrunc, Dir: journal.DirNone}
	ev, ids := reasons(t, s, key, recorded(t, s.set, nil, false,
		open("/work/blob", blob), stdin(string(blob[:3000])), open("/work/c.tar", tarred(t, gzipped(t, blob))),
		open("/work/text", []byte(prose(3, 500))), open("/work/short", blob[:1000]), write, made, stdout(string(blob))))
	for i, want := range []bool{true, true, true, false, false, false, false, false} {
		if e := entry(ev, i); e != nil && e.Opaque > 0 != want {
			t.Errorf("step %d: got %d opaque bytes, want some: %v", i, e.Opaque, want)
		}
	}
	if !slices.Contains(ids, attest.ReasonOpaque) {
		t.Errorf("got reasons %v, want %s", ids, attest.ReasonOpaque)
	}
}

// TestRT43_ExecAndTruncateExpose: content is scanned whatever operation exposed
// it.
func TestRT43_ExecAndTruncateExpose(t *testing.T) {
	key := testKey("rt43")
	s := seal(t, key)
	for _, op := range []journal.Op{journal.OpExec, journal.OpInterp, journal.OpTruncate} {
		x := open("/work/x", []byte(secret))
		x.row.Op, x.row.Flags = op, 0
		_, ids := reasons(t, s, key, recorded(t, s.set, nil, false, x))
		if !slices.Contains(ids, attest.ReasonObject) {
			t.Errorf("operation %d: got reasons %v, want %s", op, ids, attest.ReasonObject)
		}
	}
}

func TestRT50_CutContainerIsReported(t *testing.T) {
	key := testKey("rt50")
	s := seal(t, key)
	z := gzipped(t, []byte(prose(60, 3000)+secret))
	for name, c := range map[string]struct {
		data []byte
		want uint32
	}{"whole": {z, 0}, "cut": {z[:len(z)-200], attest.BoundView}, "changed": {append(slices.Clone(z[:len(z)-20]), make([]byte, 20)...), attest.BoundView}} {
		ev, ids := reasons(t, s, key, recorded(t, s.set, nil, false, open("/work/x", c.data)))
		if e := entry(ev, 0); e.Bounds != c.want || slices.Contains(ids, attest.ReasonBounds) != (c.want != 0) {
			t.Errorf("%s: got bounds %x, reasons %v, want %x", name, e.Bounds, ids, c.want)
		}
		if !slices.Contains(ids, attest.ReasonFragments) {
			t.Errorf("%s: got reasons %v: the part that decoded must be scanned", name, ids)
		}
	}
}

func TestTextRowsUseShortShingles(t *testing.T) {
	key := testKey("text")
	s := seal(t, key)
	text := "pytest -k " + secret[:60]
	dir := recorded(t, s.set, nil, false, argv(text), open("/work/x", []byte(text)))
	_, ev, _ := scanDir(t, dir, key, s.set, 2)
	a, f := entry(ev, 0), entry(ev, 1)
	if len(a.Digests) <= len(f.Digests) || f.Same != nil {
		t.Errorf("got %d digests as text, %d as a file, same %v: want more as text, and not shared", len(a.Digests)/16, len(f.Digests)/16, f.Same)
	}
}

func TestSameContentIsSharedInOneTreatment(t *testing.T) {
	key := testKey("same")
	s := seal(t, key)
	text := []byte(prose(5, 300))
	dir := recorded(t, s.set, nil, false, open("/work/a", text), argv(string(text)), open("/work/b", text), argv(string(text)), stdin(string(text)), stdin(string(text)))
	_, ev, _ := scanDir(t, dir, key, s.set, 2)
	seq := func(i int) uint64 {
		n, _ := rowOf(ev, i)
		return n
	}
	for i, want := range []int{-1, -1, 0, 1, -1, -1} {
		switch e := entry(ev, i); {
		case want < 0 && e.Same != nil:
			t.Errorf("step %d: got same %d, want its own digests", i, *e.Same)
		case want >= 0 && (e.Same == nil || *e.Same != seq(want)):
			t.Errorf("step %d: got same %v, want the row of step %d", i, e.Same, want)
		}
	}
}

func TestBaselineIsExemptButNotTheControl(t *testing.T) {
	key := testKey("base")
	s := seal(t, key)
	text := prose(6, 300)
	base := map[string]string{"a": text, "control": s.set.Control}
	dir := recorded(t, s.set, base, false, open("/work/a", []byte(text)), stdout(text), open("/work/b", []byte(text+".")))
	_, ev, rep := scanDir(t, dir, key, s.set, 2)
	for i, want := range []bool{true, false, false} {
		if e := entry(ev, i); (e.Baseline == e.Seen) != want || (len(e.Digests) == 0) != want {
			t.Errorf("step %d: got %d of %d bytes exempt, %d digests, want exempt: %v", i, e.Baseline, e.Seen, len(e.Digests)/16, want)
		}
	}
	var opened bool
	for r, e := range ev.Rows() {
		if r.Flags&journal.FlagControl != 0 {
			opened = e.Scanned > 0 && len(e.Digests) > 0
		}
	}
	if !opened || rep.Checked == 0 {
		t.Errorf("got control scanned %v, %d rows checked, want both", opened, rep.Checked)
	}
}

// TestControlsAreSeen: the verdict finds all challenged controls, opened and in
// the control file's row.
func TestControlsAreSeen(t *testing.T) {
	key := testKey("controls")
	s := seal(t, key)
	_, ev, _ := scanDir(t, recorded(t, s.set, nil, false, open("/work/a", []byte("x"))), key, s.set, 2)
	if c := attest.Derive(s.set, ev).Counts; c.Controls != contraband.Challenges || c.ControlsSeen != c.Controls {
		t.Errorf("got %d of %d controls seen, want all %d", c.ControlsSeen, c.Controls, contraband.Challenges)
	}
}

func TestRT95_ScansAreByteIdentical(t *testing.T) {
	key := testKey("twice")
	s := seal(t, key)
	steps := []step{stdin(secret), stdout("done")}
	for i := range 60 {
		text := []byte(prose(uint64(100+i%40), 50+20*i))
		if i%3 == 0 {
			text = gzipped(t, text)
		}
		steps = append(steps, open(fmt.Sprintf("/work/%d", i), text), argv(fmt.Sprintf("cat /work/%d and a longer argument", i%7)))
	}
	dir := recorded(t, s.set, nil, false, steps...)
	want, _, _ := scanDir(t, dir, key, s.set, 1)
	for _, workers := range []int{1, 2, 4, 4} {
		if got, _, _ := scanDir(t, dir, key, s.set, workers); !bytes.Equal(got, want) {
			t.Errorf("%d workers: got other evidence", workers)
		}
	}
}

// A run that was killed has evidence too; its verdict is not CLEAN. Rows that
// were cut off later are refused.
func TestRT2_RT08_OpenJournalIsScanned(t *testing.T) {
	key := testKey("open")
	s := seal(t, key)
	dir := recorded(t, s.set, nil, false, open("/work/x", []byte(secret)))
	name := filepath.Join(dir, journal.RowsFile)
	f, err := os.Open(name)
	must(t, err)
	var last int
	for line, err := range journal.Rows(f) {
		must(t, err)
		last = len(line.Raw)
	}
	must(t, f.Close())
	_, ids := reasons(t, s, key, dir) // positive control: the whole journal
	if slices.Contains(ids, attest.ReasonOpen) {
		t.Errorf("got reasons %v of a whole journal", ids)
	}
	must(t, shorten(name, int64(4+last)))
	// RT2: rows that were synced are missing. That is no crash.
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	if _, err := Scan(t.Context(), root, io.Discard, Config{Key: key, Set: s.set}); err == nil || !strings.Contains(err.Error(), "synced to disk") {
		t.Errorf("got %v for a journal shorter than its checkpoint, want a refusal", err)
	}
	must(t, os.Remove(filepath.Join(dir, journal.HeadFile))) // killed before the last checkpoint
	_, ids = reasons(t, s, key, dir)
	if !slices.Contains(ids, attest.ReasonOpen) || !slices.Contains(ids, attest.ReasonObject) {
		t.Errorf("got reasons %v, want %s and %s", ids, attest.ReasonOpen, attest.ReasonObject)
	}
}
