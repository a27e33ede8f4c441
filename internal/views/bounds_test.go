package views

import (
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/ulikunitz/xz"
)

// TestRT51_Bombs: every kind of bomb is reported, the views together stay within
// the bound, and so does memory.
func TestRT51_Bombs(t *testing.T) {
	zeros := make([]byte, 66<<20)
	one := gz(t, zeros)
	quine := bytes.Repeat(gz(t, one), 1)
	overlapping := overlappingZip(t)
	mixed := bytes.Repeat(noise(1, 20<<10), 4000)
	for name, c := range map[string]struct {
		content []byte
		want    uint32
	}{
		"control":               {gz(t, []byte(prose(1, 1000))), 0},
		"control: small zeros":  {gz(t, make([]byte, 1<<20)), 0},
		"gzip":                  {one, BoundRatio},
		"gzip twice":            {quine, BoundRatio},
		"zlib":                  {zl(t, zeros), BoundRatio},
		"xz":                    {xzed(t, make([]byte, 3<<20), xz.CRC32), BoundRatio},
		"xz, many blocks":       {manyBlocks(t), BoundView},
		"zstd":                  {zst(t, zeros), BoundRatio},
		"zip":                   {zipped(t, zip.Deflate, zeros), BoundRatio},
		"zip, one overlapping":  {overlapping, BoundView},
		"more than 64 MiB":      {gz(t, mixed), BoundBytes},
		"64 MiB, many members":  {zipped(t, zip.Deflate, slices.Repeat([][]byte{mixed[:8<<20]}, 12)...), BoundBytes},
		"xz, 4 GiB dictionary":  {giantDictionary(), BoundView},
		"zip, giant directory":  {giantDirectory(), BoundViews},
		"gzip of many in a tar": {tarball(t, slices.Repeat([][]byte{one}, 70)...), BoundRatio},
	} {
		var total int
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		before := m.TotalAlloc
		r := Each(c.content, func(v View) { total += len(v.Content) })
		runtime.ReadMemStats(&m)
		if r.Bounds&c.want != c.want || c.want == 0 && r.Bounds != 0 {
			t.Errorf("%s: got bounds %x, want %x", name, r.Bounds, c.want)
		}
		if limit := 3*MaxBytes + 4*len(c.content); total > limit {
			t.Errorf("%s: got %d bytes of views, want at most %d", name, total, limit)
		}
		if used := m.TotalAlloc - before; used > 600<<20 {
			t.Errorf("%s: allocated %d MiB in all, want at most 600", name, used>>20)
		}
	}
}

// overlappingZip has two directory entries for one member, and lies about one.
func overlappingZip(t *testing.T) []byte {
	b := zipped(t, zip.Deflate, []byte(prose(2, 500)), []byte(prose(3, 500)))
	first := bytes.Index(b, []byte("PK\x01\x02"))
	second := bytes.LastIndex(b, []byte("PK\x01\x02"))
	copy(b[second+42:second+46], b[first+42:first+46])
	return b
}

// giantDictionary is an xz file whose block header claims 4 GiB.
func giantDictionary() []byte {
	var out bytes.Buffer
	w, err := xz.WriterConfig{CheckSum: xz.CRC32}.NewWriter(&out)
	if err != nil {
		panic(err)
	}
	w.Write([]byte(prose(4, 200)))
	w.Close()
	b := out.Bytes()
	size := (int(b[12]) + 1) * 4
	i := bytes.Index(b[12:12+size], []byte{0x21, 1})
	b[12+i+2] = 40
	// The header's own checksum is made to fit: the claim is the only fault.
	sum := crc(b[12 : 12+size-4])
	copy(b[12+size-4:], sum[:])
	return append(b[:len(b)-8], "12345678"...) // and the end is damaged
}

// manyBlocks is an xz file of 40 small blocks that each claim 8 MiB.
func manyBlocks(t *testing.T) []byte {
	var out bytes.Buffer
	w, err := xz.WriterConfig{CheckSum: xz.CRC32, BlockSize: 4096}.NewWriter(&out)
	must(t, err)
	w.Write(noise(3, 40*4096))
	must(t, w.Close())
	return out.Bytes()
}

func giantDirectory() []byte {
	b := append([]byte("PK\x03\x04"), make([]byte, 100)...)
	dir := bytes.Repeat(append([]byte("PK\x01\x02"), make([]byte, 42)...), 100_000)
	at := len(b)
	b = append(b, dir...)
	end := append([]byte("PK\x05\x06"), make([]byte, 18)...)
	le(end[12:], uint32(len(dir)))
	le(end[16:], uint32(at))
	return append(b, end...)
}

func le(b []byte, v uint32) { b[0], b[1], b[2], b[3] = byte(v), byte(v>>8), byte(v>>16), byte(v>>24) }

func crc(b []byte) (sum [4]byte) {
	v := ^uint32(0)
	for _, c := range b {
		v ^= uint32(c)
		for range 8 {
			v = v>>1 ^ 0xedb88320&-(v&1)
		}
	}
	le(sum[:], ^v)
	return sum
}

func TestRT42_Opaque(t *testing.T) {
	secret := noise(1, 5000)
	for name, c := range map[string]struct {
		content []byte
		want    bool
	}{
		"noise":                   {secret, true},
		"noise, 1 KiB":            {noise(2, 1024), true},
		"noise, 1023 bytes":       {noise(2, 1023), false},
		"text":                    {[]byte(prose(1, 1000)), false},
		"Chinese text":            {bytes.Repeat([]byte("漢字かな交じり文のテキストです。これは長い文章の例で、"), 100), false},
		"gzip of text":            {gz(t, []byte(prose(1, 1000))), false},
		"gzip of noise":           {gz(t, secret), true},
		"zip with text and noise": {zipped(t, zip.Deflate, []byte(prose(1, 1000)), secret), true},
		"tar of gzip of text":     {tarball(t, gz(t, []byte(prose(1, 3000)))), false},
		"gzip, noise after it":    {append(gz(t, []byte(prose(1, 1000))), secret...), true},
		"zip after noise":         {append(slices.Clone(secret), zipped(t, zip.Deflate, []byte(prose(1, 1000)))...), true},
		"noise with base64 in it": {append(slices.Clone(secret), b64([]byte(prose(1, 100)))...), true},
		"base64 of noise":         {b64(secret), false}, // text: RFC 4648 carries certificates, hashes, images
	} {
		r := Each(c.content, func(View) {})
		if r.Opaque > 0 != c.want {
			t.Errorf("%s: got %d opaque bytes, want some: %v", name, r.Opaque, c.want)
		}
	}
}

// TestOrderIsTheContents: two walks give the same views in the same order, and
// none twice.
func TestOrderIsTheContents(t *testing.T) {
	content := tarball(t, gz(t, []byte(prose(1, 100))), quote(prose(2, 100)), b64(zipped(t, zip.Deflate, []byte(prose(3, 50)), []byte(prose(4, 50)))), gz(t, []byte(prose(1, 100))))
	walk := func() (list []string) {
		Each(content, func(v View) { list = append(list, fmt.Sprintf("%s %d %x", v.Kind, v.Depth, sha256.Sum256(v.Content))) })
		return list
	}
	first := walk()
	if second := walk(); !slices.Equal(first, second) || len(first) < 8 {
		t.Errorf("got %d and %d views, want the same, at least 8", len(first), len(second))
	}
	slices.Sort(first)
	if n := len(slices.Compact(slices.Clone(first))); n != len(first) {
		t.Errorf("got %d distinct views of %d", n, len(first))
	}
}

// TestLargeContentEqualsSmall: a content over the window's size is walked in
// pieces, and what stands over an edge is found.
func TestLargeContentEqualsSmall(t *testing.T) {
	secret := []byte(prose(1, 300))
	big := bytes.Repeat([]byte("a line of nothing much.\n"), (window+1<<20)/24)
	copy(big[window-200:], quote(string(secret)))
	copy(big[window+5000:], b64(gz(t, secret)))
	if found, r := contains(big, secret); !found || r.Bounds != 0 {
		t.Errorf("got found %v, %+v", found, r)
	}
	reader := failing{bytes.NewReader(big), window / 2}
	if r := EachAt(reader, int64(len(big)), func(View) {}); r.Bounds&BoundView == 0 {
		t.Errorf("got %+v of a file that cannot be read, want it reported", r)
	}
}

type failing struct {
	r     io.ReaderAt
	after int64
}

func (f failing) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.after {
		return 0, errors.New("no")
	}
	return f.r.ReadAt(p, off)
}

// TestHonestTreesHitNoBound: every file of the Go source tree and of Python's
// library is walked. The only reports are for files that are corrupt or bombs on
// purpose.
func TestHonestTreesHitNoBound(t *testing.T) {
	roots := []string{filepath.Join(runtime.GOROOT(), "src")}
	python, _ := filepath.Glob("/usr/lib/python3*")
	roots = append(roots, python...)
	files := 0
	for _, root := range roots {
		var bounded, opaque, n int
		var size, viewed int64
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			n++
			size += int64(len(content))
			r := Each(content, func(v View) { viewed += int64(len(v.Content)) })
			if strings.Contains(path, "/testdata/") {
				return nil
			}
			if strings.HasSuffix(path, "src/archive/zip/reader_test.go") { // holds a zip bomb as a hex dump
				if r.Bounds == 0 {
					t.Errorf("%s: got no bound, want its bomb reported", path)
				}
				return nil
			}
			if r.Bounds != 0 {
				bounded++
				t.Errorf("%s: bounds %x", path, r.Bounds)
			}
			if r.Opaque > 0 {
				opaque++
				t.Logf("%s: %d of %d bytes opaque", path, r.Opaque, len(content))
			}
			return nil
		})
		must(t, err)
		t.Logf("%s: %d files, %d bytes, %d bytes of views, %d at a bound, %d opaque", root, n, size, viewed, bounded, opaque)
		files += n
	}
	if files == 0 {
		t.Skipf("no Go source tree at %s and no Python library", roots[0])
	}
	if files < 5000 {
		t.Errorf("got %d files, want at least 5,000", files)
	}
}

func FuzzEach(f *testing.F) {
	secret := []byte(prose(1, 60))
	for _, b := range [][]byte{
		{}, secret, gz(f, secret), zl(f, secret), zl(f, git("blob", secret)), xzed(f, secret, xz.CRC64), zst(f, secret), tarball(f, secret),
		zipped(f, zip.Deflate, secret), zipped(f, zip.Store, secret), b64(gz(f, secret)), quote(string(quote(string(secret)))),
		[]byte("%41%42%2543 \\u0041\\ud83d\\ude00 \\x41 \\101 &#65;&amp;#x41;&lt;"), []byte(hex.Dump(secret)), list(secret, "0x%02x", ", "), list(secret, "%d", " "),
		list(secret, "%03o", " "), wrap(b64(secret), 4, " "), []byte(base32.StdEncoding.EncodeToString(secret)), wrap(b64(secret), 20, "\n"), b64(tarball(f, gz(f, secret))),
	} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		keep := slices.Clone(b)
		var first [][32]byte
		total := 0
		r := Each(b, func(v View) {
			total += len(v.Content)
			if v.Depth > MaxDepth || len(v.Content) == 0 {
				t.Fatalf("got a view %s of %d bytes at depth %d", v.Kind, len(v.Content), v.Depth)
			}
			first = append(first, sha256.Sum256(v.Content))
		})
		if !bytes.Equal(b, keep) {
			t.Fatal("the content was changed")
		}
		if total > 2*MaxBytes+4*len(b) {
			t.Fatalf("got %d bytes of views of %d", total, len(b))
		}
		again := 0
		if r2 := Each(b, func(v View) {
			if again >= len(first) || first[again] != sha256.Sum256(v.Content) {
				t.Fatal("got other views the second time")
			}
			again++
		}); r2 != r || again != len(first) {
			t.Fatalf("got %+v, then %+v", r, r2)
		}
	})
}

func BenchmarkEach(b *testing.B) {
	var text []byte
	files, _ := filepath.Glob(filepath.Join(runtime.GOROOT(), "src/net/http/*.go"))
	for _, name := range files {
		data, err := os.ReadFile(name)
		must(b, err)
		text = append(text, data...)
	}
	if len(text) == 0 {
		b.Skip("no Go source tree")
	}
	for name, content := range map[string][]byte{"source": text, "prose": []byte(prose(1, 300_000)), "noise": noise(1, 2<<20), "base64": wrap(b64(text), 76, "\n"), "gzip": gz(b, text)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				Each(content, func(View) {})
			}
		})
	}
}
