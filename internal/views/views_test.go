package views

import (
	"archive/zip"
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// contains tells whether a view of content holds want, and the walk's result.
func contains(content, want []byte) (bool, Result) {
	found := false
	r := Each(content, func(v View) { found = found || bytes.Contains(v.Content, want) })
	return found, r
}

func TestEachFormatIsRead(t *testing.T) {
	secret := []byte(prose(1, 400))
	other := []byte(prose(2, 300))
	for name, content := range map[string][]byte{
		"gzip":                              gz(t, secret),
		"gzip, second member":               gz(t, other, secret),
		"gzip, bytes after it":              append(gz(t, secret), "the end\n"...),
		"zlib":                              zl(t, secret),
		"git object":                        zl(t, git("blob", secret)),
		"xz, CRC-64":                        xzed(t, secret, xz.CRC64),
		"xz, SHA-256":                       xzed(t, secret, xz.SHA256),
		"xz, no check":                      xzed(t, secret, xz.None),
		"xz, two streams":                   append(append(xzed(t, other, xz.CRC32), 0, 0, 0, 0), xzed(t, secret, xz.CRC32)...),
		"zstd":                              zst(t, secret),
		"zstd, second frame":                append(zst(t, other), zst(t, secret)...),
		"zip":                               zipped(t, zip.Deflate, other, secret),
		"zip, stored":                       zipped(t, zip.Store, other, secret),
		"zip after a script":                append([]byte("#!/bin/sh\nexec unzip $0\n"), zipped(t, zip.Deflate, secret)...),
		"tar":                               tarball(t, other, secret),
		"base64":                            b64(secret),
		"base64, URL alphabet":              []byte(base64.RawURLEncoding.EncodeToString(append([]byte("\xff\xfe>>>???"), secret...))),
		"base64, 76 columns":                wrap(b64(secret), 76, "\n"),
		"base64, 64 columns, CR LF":         wrap(b64(secret), 64, "\r\n"),
		"base64, 16 columns":                wrap(b64(secret), 16, "\n"),
		"base64, indented":                  wrap(b64(secret), 60, "\n      "),
		"base64 in text":                    []byte("data: x;base64," + string(b64(secret)) + " and more"),
		"base64 after a letter":             []byte("path/" + string(b64(secret))),
		"base64 after 2 letters":            []byte("ab" + string(b64(secret))),
		"base64 in JSON, wrapped":           []byte(`{"d":"` + strings.ReplaceAll(string(wrap(b64(secret), 76, "\n")), "\n", `\n`) + `"}`),
		"PEM":                               []byte("-----BEGIN X-----\n" + string(wrap(b64(secret), 64, "\n")) + "-----END X-----\n"),
		"hex":                               []byte(hex.EncodeToString(secret)),
		"hex, upper case, wrapped":          wrap([]byte(strings.ToUpper(hex.EncodeToString(secret))), 60, "\n"),
		"hex after a digest prefix":         []byte("sha-" + hex.EncodeToString(secret)),
		"hex after a digit":                 []byte("0" + hex.EncodeToString(secret)),
		"hex by backslash x":                []byte(`"\x` + strings.Join(split2(hex.EncodeToString(secret)), `\x`) + `"`),
		"percent":                           []byte("q=" + strings.ReplaceAll(url.QueryEscape(string(secret)), "+", "%20")),
		"JSON string":                       quote(string(secret)),
		"JSON string twice":                 quote(string(quote(string(secret)))),
		"JSON string, three times":          quote(string(quote(string(quote(string(secret)))))),
		"JSON after a stray quote":          append([]byte(`x" {"a":`), quote(string(secret))...),
		"base64, 8 columns":                 wrap(b64(secret), 8, "\n"),
		"base64, blank every 4":             wrap(b64(secret), 4, " "),
		"base64, blank every 5, 60 columns": wrap(wrap(b64(secret), 5, " "), 60, "\n"),
		"base64 of gzip, blanks":            append([]byte("Here it is:\n\n"), wrap(b64(gz(t, secret)), 7, " ")...),
		"base32":                            []byte(base32.StdEncoding.EncodeToString(secret)),
		"base32, 76 columns":                wrap([]byte(base32.StdEncoding.EncodeToString(secret)), 76, "\n"),
		"base32, lower case":                []byte("x/" + strings.ToLower(base32.StdEncoding.EncodeToString(secret))),
		"base32, blank every 8":             wrap([]byte(base32.StdEncoding.EncodeToString(secret)), 8, " "),
		"base32 of gzip":                    []byte("data: " + base32.StdEncoding.EncodeToString(gz(t, secret)) + "\n"),
		"hex, blanks":                       list(secret, "%02x", " "),
		"hex, blank every 4":                wrap([]byte(hex.EncodeToString(secret)), 4, " "),
		"hex, blank every 3":                wrap([]byte(hex.EncodeToString(secret)), 3, " "),
		"hex, colons":                       list(secret, "%02X", ":"),
		"hex, dashes":                       list(secret, "%02x", "-"),
		"hex, C array":                      append([]byte("char data[] = {\n  "), list(secret, "0x%02x", ",\n  ")...),
		"hex, Go slice":                     fmt.Appendf(nil, "%#v", secret),
		"hex, after junk numbers":           append(list(noise(4, 8192), "%02x", ", "), list(secret, ", %02x", "")...),
		"decimal":                           list(secret, "%d", ", "),
		"decimal in brackets":               fmt.Appendf(nil, "%v", secret),
		"decimal, 3 digits":                 list(secret, "%03d", " "),
		"octal list":                        list(secret, "%03o", " "),
		"octal list, C":                     list(secret, "%#o", ", "),
		"octal escapes":                     list(secret, "\\%03o", ""),
		"octal escapes in JSON":             quote(string(list(secret, "\\%03o", ""))),
		"hex dump":                          []byte(hex.Dump(secret)),
		"hex dump, quoted":                  []byte("> " + strings.ReplaceAll(hex.Dump(secret), "\n", "\n> ")),
		"hex dump in JSON":                  quote(hex.Dump(secret)),
		"hex dump, line by line":            []byte(strings.ReplaceAll(hex.Dump(secret), "\n", "\nand so on\n")),
		"hex dump of gzip":                  []byte(hex.Dump(gz(t, secret))),
		"hex dump of noise and text":        []byte(hex.Dump(append(noise(5, 6000), secret...))),
		"HTML, decimal":                     runes(string(secret), "&#%d;"),
		"HTML, hex":                         runes(string(secret), "&#x%x;"),
		"HTML, no semicolon":                runes(string(secret), "&#%d"),
		"HTML twice":                        []byte(strings.ReplaceAll(string(runes(string(secret), "&#%d;")), "&", "&amp;")),
		"HTML, five times":                  []byte(strings.ReplaceAll(string(runes(string(secret), "&#%d;")), "&", "&amp;amp;amp;amp;")),
		"HTML, names":                       []byte(strings.NewReplacer(" ", "&nbsp;", "(", "&lt;", ",", "&quot;").Replace(string(secret))),
		"base64 of gzip":                    b64(gz(t, secret)),
		"gzip in tar in base64":             b64(tarball(t, gz(t, secret))),
		"tar in zip in gzip":                gz(t, zipped(t, zip.Deflate, tarball(t, secret))),
		"zstd in JSON base64":               []byte(`{"a":1,"blob":"` + string(b64(zst(t, secret))) + `"}`),
	} {
		want := secret
		if name == "HTML, names" {
			want = []byte(strings.NewReplacer(" ", "\u00a0", "(", "<", ",", "\"").Replace(string(secret)))
		}
		if found, r := contains(content, want); !found || r.Bounds != 0 || !r.Parsed {
			t.Errorf("%s: got found %v, %+v, want the text, no bound", name, found, r)
		}
		if bytes.Contains(content, secret) && name != "zip, stored" && name != "tar" && !strings.HasPrefix(name, "zstd") {
			t.Errorf("%s: the encoding shows the text: the case shows nothing", name)
		}
	}
}

// TestCommentsOfContainersAreRead: what a decoder skips is text all the same.
func TestCommentsOfContainersAreRead(t *testing.T) {
	secret := []byte(prose(12, 20))
	skippable := append([]byte{0x50, 0x2a, 0x4d, 0x18, byte(len(b64(secret))), 0, 0, 0}, b64(secret)...)
	for name, content := range map[string][]byte{
		"gzip comment": commented(t, b64(secret)), "zstd frame": append(skippable, zst(t, []byte(prose(13, 100)))...),
		"after tar": append(tarball(t, []byte(prose(13, 100))), b64(secret)...),
	} {
		if found, r := contains(content, secret); !found || r.Bounds != 0 {
			t.Errorf("%s: got found %v, %+v", name, found, r)
		}
	}
}

func split2(s string) (out []string) {
	for i := 0; i < len(s); i += 2 {
		out = append(out, s[i:i+2])
	}
	return out
}

func TestJSONSurrogates(t *testing.T) {
	text := "Größe 漢字 🙂 and a 𝔘 letter, " + prose(3, 20)
	if found, r := contains(append(append([]byte(`{"k":"`), ascii(text)...), `"}`...), []byte(text)); !found || r.Bounds != 0 {
		t.Errorf("got found %v, %+v, want the text with its letters", found, r)
	}
	if found, _ := contains([]byte(`"a lone half \ud83d stands for nothing, `+prose(4, 20)+`\n"`), []byte("half \ufffd stands")); !found {
		t.Error("got no view with U+FFFD for a lone surrogate")
	}
}

// TestRT38_DepthIsReported: three levels are read; a fourth, of each kind, is
// reported. A hash or a long word below the last level is not.
func TestRT38_DepthIsReported(t *testing.T) {
	secret := []byte(prose(5, 400))
	three := func(b []byte) []byte { return b64(tarball(t, gz(t, b))) }
	for name, c := range map[string]struct {
		inner []byte
		want  uint32
	}{
		"control: text":       {secret, 0},
		"control: a hash":     {[]byte("sha256 " + hex.EncodeToString(noise(1, 32)) + " h1:" + string(b64(noise(2, 32)))), 0},
		"control: long words": {[]byte(strings.Repeat("github.com/SomeOrganisation/some-long-package/internal/name ", 20)), 0},
		"gzip":                {gz(t, secret), BoundDepth},
		"zlib":                {zl(t, secret), BoundDepth},
		"tar":                 {tarball(t, secret), BoundDepth},
		"zip":                 {zipped(t, zip.Store, secret), BoundDepth},
		"xz":                  {xzed(t, secret, xz.CRC32), BoundDepth},
		"zstd":                {zst(t, secret), BoundDepth},
		"base64":              {b64(secret), BoundDepth},
		"base64 of gzip":      {b64(gz(t, secret)), BoundDepth},
		"hex":                 {[]byte(hex.EncodeToString(secret)), BoundDepth},
		"JSON is no level":    {quote(string(secret)), 0},
	} {
		if _, r := contains(three(c.inner), secret); r.Bounds != c.want {
			t.Errorf("%s: got bounds %x, want %x", name, r.Bounds, c.want)
		}
	}
}

// TestRT50_CutStreamsAreReported: what decoded is a view, and the cut is
// reported, for each format.
func TestRT50_CutStreamsAreReported(t *testing.T) {
	head := []byte(prose(6, 30))
	var long []byte
	for i := range uint64(100) {
		long = append(append(long, prose(7+i, 300)...), '\n')
	}
	long = append(head, long...)
	for name, whole := range map[string][]byte{
		"gzip": gz(t, long), "zlib": zl(t, long), "git": zl(t, git("blob", long)), "xz": xzed(t, long, xz.CRC64), "zstd": zst(t, long),
		"zip": zipped(t, zip.Deflate, long), "zip, stored": zipped(t, zip.Store, long, long), "tar": tarball(t, long), "base64": b64(gz(t, long)),
	} {
		if found, r := contains(whole, long); !found || r.Bounds != 0 {
			t.Errorf("%s: control: got found %v, bounds %x", name, found, r.Bounds)
		}
		cut := whole[:len(whole)*3/4]
		if found, r := contains(cut, head); !found || r.Bounds&BoundView == 0 {
			t.Errorf("%s, cut: got the first part %v, bounds %x, want both", name, found, r.Bounds)
		}
		if name == "base64" || name == "tar" || name == "zip, stored" {
			continue
		}
		bad := slices.Clone(whole)
		for i := range 8 {
			bad[len(bad)*3/4+i] ^= 0x5a
		}
		if _, r := contains(bad, head); r.Bounds&BoundView == 0 {
			t.Errorf("%s, changed: got bounds %x, want the view bound", name, r.Bounds)
		}
	}
}

// TestUnreadableMembersAreReported: an encrypted zip member and one of an unknown
// method are no views, and not silence.
func TestUnreadableMembersAreReported(t *testing.T) {
	plain := zipped(t, zip.Deflate, []byte(prose(8, 200)))
	encrypted, method := slices.Clone(plain), slices.Clone(plain)
	dir := bytes.Index(plain, []byte("PK\x01\x02"))
	encrypted[dir+8] |= 1
	method[dir+10] = 97
	for name, c := range map[string]struct {
		content []byte
		want    uint32
	}{"control": {plain, 0}, "encrypted": {encrypted, BoundView}, "method": {method, BoundView}} {
		if _, r := contains(c.content, nil); r.Bounds != c.want {
			t.Errorf("%s: got bounds %x, want %x", name, r.Bounds, c.want)
		}
	}
}

// TestFalseStarts: text and noise that begin like a container, but are none, are
// no reason to call a run inconclusive.
func TestFalseStarts(t *testing.T) {
	hits := 0
	for i := range 20_000 {
		b := noise(uint64(i), 200)
		b[0] = []byte{0x08, 0x18, 0x28, 0x38, 0x48, 0x58, 0x68, 0x78}[i%8]
		b[1] &^= 0x20
		b[1] = byte((int(b[1]) / 31) * 31)
		for (uint(b[0])<<8|uint(b[1]))%31 != 0 || b[1]&0x20 != 0 {
			b[1]++
		}
		if !zlibHeader(b) {
			t.Fatalf("got no zlib header in %x", b[:2])
		}
		if r := Each(b, func(View) {}); r.Bounds != 0 {
			hits++
		}
	}
	if hits > 60 {
		t.Errorf("got %d reports in 20,000 false zlib headers, want at most 60 (each of these is itself 1 in 2,000 noise)", hits)
	}
	for _, text := range []string{
		"x^2 + y^2 = z^2\n" + prose(9, 100), "PK\x05\x06 is the end record of a zip file", "HOWEVER " + prose(10, 100),
		strings.Repeat("-", 500), strings.Repeat("/", 500), "100%de %20 off", `C:\new\table\x`, strings.Repeat("=", 300),
		"h1:" + string(b64(noise(3, 32))) + "=\n",
	} {
		if r := Each([]byte(text), func(View) {}); r.Bounds != 0 || r.Opaque != 0 {
			t.Errorf("%.30q: got %+v, want no bound", text, r)
		}
	}
}

// TestManyShortRuns: a file of checksums, such as go.sum or a package lock, and
// an archive of many members are not many views.
func TestManyShortRuns(t *testing.T) {
	var sums, lock []byte
	var members [][]byte
	for i := range uint64(3000) {
		sums = fmt.Appendf(sums, "example.com/module/v%d v1.2.3/go.mod h1:%s\n", i, b64(noise(i, 32)))
		lock = fmt.Appendf(lock, "{\"integrity\": \"sha512-%s\", \"sha256\": \"%x\"}\n", b64(noise(i, 64)), noise(i+9, 32))
		members = append(members, []byte(prose(i, 10)))
	}
	for name, content := range map[string][]byte{"go.sum": sums, "lock": lock, "tar": tarball(t, members...), "zip": zipped(t, zip.Deflate, members...)} {
		if r := Each(content, func(View) {}); r.Bounds != 0 || r.Opaque != 0 {
			t.Errorf("%s: got %+v, want no bound, nothing opaque", name, r)
		}
	}
	var many []byte
	for i := range uint64(MaxViews + 1) {
		many = fmt.Appendf(many, "%q\n", b64(gz(t, []byte(prose(i, 50)))))
	}
	if r := Each(many, func(View) {}); r.Bounds != BoundViews {
		t.Errorf("got %+v for %d containers, want the views bound", r, MaxViews+1)
	}
}

// TestMutatedContainers: damaged containers end in a result, not in a panic, and
// without more views than the bounds allow.
func TestMutatedContainers(t *testing.T) {
	secret := []byte(prose(1, 300))
	for name, whole := range map[string][]byte{
		"gzip": gz(t, secret, secret), "zlib": zl(t, git("tree", secret)), "xz": xzed(t, secret, xz.CRC64), "zstd": zst(t, secret),
		"zip": zipped(t, zip.Deflate, secret, secret), "stored": zipped(t, zip.Store, secret), "tar": tarball(t, secret, secret),
	} {
		r := rand.New(rand.NewPCG(7, 7))
		for range 1500 {
			b := slices.Clone(whole)
			for range 1 + r.IntN(4) {
				switch at := r.IntN(len(b)); r.IntN(4) {
				case 0:
					b[at] = byte(r.Uint32())
				case 1:
					b[at] ^= 1 << r.IntN(8)
				case 2:
					b = slices.Delete(b, at, min(at+1+r.IntN(5), len(b)))
				default:
					b = slices.Insert(b, at, b[r.IntN(len(b)):][:1]...)
				}
			}
			total := 0
			Each(b, func(v View) { total += len(v.Content) })
			if total > 64<<10 {
				t.Fatalf("%s: got %d bytes of views of %d", name, total, len(b))
			}
		}
	}
}
