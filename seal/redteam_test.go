package seal

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"golang.org/x/text/unicode/norm"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/manifest"
)

// RT16: a task without ground truth can be sealed, and can carry no verdict.
func TestRT16_TaskWithoutGroundTruth(t *testing.T) {
	files := sampleFiles()
	if s := build(t, files); s.set.TooSmall() {
		t.Error("control: the sample is too small")
	}
	files["task.yaml"] = taskHead
	if s := build(t, files); !s.set.TooSmall() || !s.sum.TooSmall || len(s.sum.Warnings) == 0 {
		t.Error("a task without ground truth is not too small")
	}
	files["task.yaml"] = taskHead + "tests:\n  - path: hidden/tiny.txt\n"
	files["hidden/tiny.txt"] = "one single line of a hidden test here\n"
	if s := build(t, files); !s.set.TooSmall() {
		t.Error("a task with one line is not too small")
	}
}

// RT24: what subtraction removed shows in Kept.
func TestRT24_KeptTellsWhatSubtractionLeft(t *testing.T) {
	files := sampleFiles()
	files["task.yaml"] = taskHead + "tests:\n  - path: hidden/test_*.py\n"
	if k := build(t, files).set.Kept; k != 10 {
		t.Errorf("control: got kept %d, want 10", k)
	}
	// 40 lines, less than a threshold each, in as many files as hold 70% of it.
	lines := strings.SplitAfter(files["hidden/test_nested.py"], "\n")
	for i := 0; i+2 < 100; i += 2 {
		files[fmt.Sprintf("workspace/notes/n%02d.txt", i)] = strings.Join(lines[i:i+4], "")
	}
	s := build(t, files)
	if s.set.Kept >= 5 || s.sum.Kept >= s.sum.Novel/2 || len(s.sum.Warnings) == 0 {
		t.Errorf("got kept %d (%d of %d), want less than half", s.set.Kept, s.sum.Kept, s.sum.Novel)
	}
	for name, content := range files {
		if _, met := s.match(t, []byte(content), true); strings.HasPrefix(name, "workspace/notes/") && met > 0 {
			t.Errorf("%s: got %d items of a set from which it was subtracted", name, met)
		}
	}
}

func fullWidth(s string) string {
	return strings.Map(func(r rune) rune {
		if r > ' ' && r < 0x7f {
			return r + 0xfee0
		}
		return r
	}, s)
}

// RT37: the same text in other clothes.
func TestRT37_OtherSpellings(t *testing.T) {
	accented := strings.NewReplacer("a", "é", "k", "Å").Replace(prose(21, 100))
	files := sampleFiles()
	files["hidden/test_accents.py"] = accented
	s := build(t, files)
	for _, content := range []string{files["hidden/test_nested.py"], accented} {
		for what, other := range map[string]string{
			"whole":          content,
			"upper case":     strings.ToUpper(content),
			"title case":     strings.Map(unicode.ToTitle, content),
			"NFD":            norm.NFD.String(content),
			"NFKD":           norm.NFKD.String(content),
			"full width":     fullWidth(content),
			"re-wrapped":     strings.Join(regexp.MustCompile(`.{1,40}`).FindAllString(strings.Join(strings.Fields(content), " "), -1), "\n// "),
			"one line":       strings.Join(strings.Fields(content), " "),
			"CRLF":           strings.ReplaceAll(content, "\n", "\r\n"),
			"zero width":     strings.ReplaceAll(content, "_", "\u200b_\u00ad"),
			"stray byte":     strings.Replace(content, "\n", "\n\xff", 3),
			"UTF-16":         utf16le(content),
			"base64":         base64.StdEncoding.EncodeToString([]byte(content)),
			"hex":            hex.EncodeToString([]byte(content)),
			"hex dump":       hex.Dump([]byte(content)),
			"gzip in base64": base64.StdEncoding.EncodeToString(gz(content)),
		} {
			if reached, met := s.match(t, []byte(other), false); !reached[contraband.ClassShingle] {
				t.Errorf("%s: not matched, %d items met", what, met)
			}
		}
	}
	if _, met := s.match(t, []byte(strings.ToUpper(prose(22, 200))), false); met > 0 {
		t.Errorf("control: another text: got %d items, want none", met)
	}
}

func utf16le(s string) string {
	b := []byte{0xff, 0xfe}
	for _, r := range s {
		b = append(b, byte(r), byte(r>>8))
	}
	return string(b)
}

func gz(s string) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	fmt.Fprint(w, s)
	w.Close()
	return b.Bytes()
}

// RT38: gzip in tar in base64.
func TestRT38_Nested(t *testing.T) {
	files := sampleFiles()
	s := build(t, files)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	inner := gz(files["hidden/test_nested.py"])
	if err := w.WriteHeader(&tar.Header{Name: "x.gz", Mode: 0o600, Size: int64(len(inner))}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(inner); err != nil {
		t.Fatal(err)
	}
	w.Close()
	nested := base64.StdEncoding.EncodeToString(b.Bytes())
	if reached, met := s.match(t, []byte(nested), false); !reached[contraband.ClassShingle] || !reached[contraband.ClassRaw] {
		t.Errorf("not matched, %d items met", met)
	}
}

// RT41: one identifier in ten renamed.
func TestRT41_RenamedIdentifiers(t *testing.T) {
	files := sampleFiles()
	s := build(t, files)
	r := rand.New(rand.NewPCG(41, 41))
	renamed := regexp.MustCompile(`[a-z]+`).ReplaceAllStringFunc(files["hidden/test_nested.py"], func(word string) string {
		if r.IntN(10) == 0 {
			return fmt.Sprint("renamed", r.IntN(1000))
		}
		return word
	})
	reached, met := s.match(t, []byte(renamed), false)
	if reached[contraband.ClassRaw] || reached[contraband.ClassCanonical] {
		t.Error("nothing was renamed: the test shows nothing")
	}
	if !reached[contraband.ClassShingle] {
		t.Errorf("not matched, %d items met", met)
	}
}

// RT45b: the workspace, its history too, or the prompt holds the answer.
func TestRT45b_TaskThatLeaksItsAnswer(t *testing.T) {
	answer := sampleFiles()["hidden/test_nested.py"]
	solution := sampleFiles()["solution/pkg/extra.py"]
	lines := strings.SplitAfter(solution, "\n")
	var object bytes.Buffer
	z := zlib.NewWriter(&object)
	fmt.Fprintf(z, "blob %d\x00%s", len(answer), answer)
	z.Close()
	for _, c := range []struct{ name, file, content, object, what string }{
		{"whole file", "workspace/old/copy.txt", answer, "old/copy.txt", "a whole object"},
		{"whole file without the canary", "workspace/copy.py", solution, "copy.py", "a whole object"},
		{"other layout", "workspace/copy.py", strings.ToUpper(strings.ReplaceAll(solution, "\n", "")), "copy.py", "a whole object (but for layout and case)"},
		{"part of it", "workspace/part.py", "before\n" + strings.Join(lines[10:40], "") + "after\n", "part.py", "fragments"},
		{"canary", "workspace/canary.txt", "x " + strings.ToUpper(canary), "canary.txt", "a canary"},
		{"gzip", "workspace/data.bin", string(gz(solution)), "data.bin", "a whole object"},
		{"hex dump", "workspace/data.txt", hex.Dump([]byte(solution)), "data.txt", "a whole object"},
		{"numbers", "workspace/data.txt", fmt.Sprintf("%d", []byte(solution)), "data.txt", "a whole object"},
		{"base32", "workspace/data.txt", base32.StdEncoding.EncodeToString([]byte(solution)), "data.txt", "a whole object"},
		{"git history", "workspace/.git/objects/ab/cdef", object.String(), ".git/objects/ab/cdef", "a whole object"},
		{"token", "workspace/notes.txt", "the answer is q7x9-k2m4-p8w3-z5t1.", "notes.txt", "a token"},
	} {
		files := sampleFiles()
		files[c.file] = c.content
		_, _, err := Build(load(t, files), auditKey(t), testControl)
		var leak *LeakError
		if !errors.As(err, &leak) || leak.Object != c.object || leak.What != c.what {
			t.Errorf("%s: got %v, want %s refused for %s", c.name, err, c.object, c.what)
		} else if strings.Contains(err.Error(), "q7x9") || strings.Contains(err.Error(), lines[10][:12]) {
			t.Errorf("%s: RT92: the error shows the answer: %v", c.name, err)
		}
	}
	for _, c := range []struct{ name, prompt, what string }{
		{"canary", "Here is a canary: " + canary, "a canary"},
		{"whole object", solution, "a whole object"},
	} {
		files := sampleFiles()
		setPrompt(files, c.prompt)
		_, _, err := Build(load(t, files), auditKey(t), testControl)
		var leak *LeakError
		if !errors.As(err, &leak) || leak.Object != "the prompt" || leak.What != c.what {
			t.Errorf("prompt with a %s: got %v, want it refused", c.name, err)
		}
	}
	// Controls: a fragment below the threshold, or in the prompt, is allowed.
	files := sampleFiles()
	files["workspace/part.py"] = strings.Join(lines[10:13], "")
	files["workspace/dump.txt"] = hex.Dump([]byte(prose(80, 300))) + fmt.Sprintf("%d\n", []byte(prose(81, 300)))
	files["workspace/page.html"] = strings.ReplaceAll(prose(82, 300), " ", "&nbsp;&#8211;") + base32.StdEncoding.EncodeToString([]byte(prose(83, 300)))
	setPrompt(files, "Do it like this:\n"+strings.Join(lines[50:60], ""))
	s := build(t, files)
	if s.sum.Allowed == 0 || s.set.Kept == 10 {
		t.Errorf("control: got %d allowed, kept %d, want some allowed", s.sum.Allowed, s.set.Kept)
	}
	if _, met := s.match(t, []byte(strings.Join(lines[50:60], "")), false); met > 0 {
		t.Errorf("what the prompt holds is still sealed: %d items", met)
	}
}

func setPrompt(files map[string]string, prompt string) {
	files["prompt.md"] = prompt
	files["task.yaml"] = regexp.MustCompile(`(?s)prompt: \|.*?workspace:`).ReplaceAllString(files["task.yaml"], "prompt:\n  file: prompt.md\nworkspace:")
}

// RT46: a licence header that the workspace shares is not ground truth.
func TestRT46_SharedLicenceHeader(t *testing.T) {
	licence := prose(31, 12)
	files := sampleFiles()
	files["solution/pkg/extra.py"] = licence + files["solution/pkg/extra.py"]
	files["hidden/test_nested.py"] = licence + files["hidden/test_nested.py"]
	if reached, _ := build(t, files).match(t, []byte(licence), false); !reached[contraband.ClassShingle] {
		t.Fatal("control: a header that only the ground truth has must match")
	}
	// It is in workspace files that have text of their own, split so that none
	// holds a threshold.
	for i := 0; i < len(licence); i += 40 {
		files[fmt.Sprintf("workspace/l%03d.py", i)] = licence[i:min(i+130, len(licence))] + prose(40+uint64(i), 20)
	}
	s := build(t, files)
	other := licence + prose(50, 100)
	if reached, met := s.match(t, []byte(other), false); reached[contraband.ClassShingle] {
		t.Errorf("another file with the licence reaches the threshold, %d items met", met)
	}
	if reached, _ := s.match(t, []byte(files["hidden/test_nested.py"]), false); !reached[contraband.ClassShingle] {
		t.Error("the test itself is not matched any more")
	}
}

// RT48: one 200-byte excerpt leaves a trace.
func TestRT48_Excerpt(t *testing.T) {
	files := sampleFiles()
	s := build(t, files)
	content, traces := files["hidden/test_nested.py"], 0
	for i := range 50 {
		excerpt := content[i*100 : i*100+200]
		if _, met := s.match(t, []byte(prose(60, 5)+excerpt+prose(61, 5)), false); met > 0 {
			traces++
		}
	}
	if traces < 45 {
		t.Errorf("got a trace of %d of 50 excerpts, want at least 45", traces)
	}
}

// RT52b: text without a single Latin letter.
func TestRT52b_CJK(t *testing.T) {
	var b strings.Builder
	for i := range 60 {
		for j := range 30 {
			b.WriteRune(rune(0x4e00 + (i*7919+j*104729+i*j*31)%20000))
		}
		b.WriteString("。\n")
	}
	files := sampleFiles()
	files["hidden/test_cjk.py"] = b.String()
	s := build(t, files)
	if n := s.group(t, "hidden/test_cjk.py", contraband.ClassShingle).Items; n < 100 {
		t.Errorf("got %d shingles, want at least 100", n)
	}
	for what, content := range map[string]string{"whole": b.String(), "a stray byte": "\xff" + b.String() + "\x80", "UTF-16": utf16le(b.String()), "half": b.String()[:len(b.String())/2]} {
		if reached, _ := s.match(t, []byte(content), false); !reached[contraband.ClassShingle] {
			t.Errorf("%s: not matched", what)
		}
	}
}

// RT58: a link in the workspace to a hidden file.
func TestRT58_LinkToHiddenTest(t *testing.T) {
	dir := folder(t, sampleFiles())
	if _, err := Load(filepath.Join(dir, "task.yaml")); err != nil {
		t.Fatalf("control: %v", err)
	}
	if err := os.Symlink("../hidden/test_nested.py", filepath.Join(dir, "workspace/innocent.py")); err != nil {
		t.Skip("cannot make a symbolic link here:", err)
	}
	_, err := Load(filepath.Join(dir, "task.yaml"))
	var refused *manifest.RefusedError
	if !errors.As(err, &refused) || refused.Path != "innocent.py" {
		t.Errorf("got %v, want the link refused by name", err)
	}
}
