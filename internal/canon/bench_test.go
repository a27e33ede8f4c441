package canon

import (
	"bytes"
	"crypto/sha256"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/cleanrun-dev/cleanrun/contraband"
)

// goSource returns about n bytes of the Go standard library, as novel text.
func goSource(tb testing.TB, n int) []byte {
	tb.Helper()
	var b bytes.Buffer
	for _, dir := range []string{"net/http", "go/types", "crypto/tls", "reflect", "runtime", "os", "time", "encoding/json", "regexp"} {
		files, err := filepath.Glob(filepath.Join(runtime.GOROOT(), "src", dir, "*.go"))
		if err != nil {
			tb.Fatal(err)
		}
		for _, name := range files {
			data, err := os.ReadFile(name)
			if err != nil {
				tb.Fatal(err)
			}
			if b.Write(data); b.Len() >= n {
				return b.Bytes()[:n]
			}
		}
	}
	tb.Skipf("no Go source tree at %q with %d bytes of text", runtime.GOROOT(), n)
	return nil
}

func BenchmarkObject(b *testing.B) {
	text := goSource(b, 4<<20)
	key := testKey("bench")
	filter := make([]uint32, 1024)
	for i := range filter {
		d := key.Dummy("bench", uint32(i))
		filter[i] = uint32(d[0])<<16 | uint32(d[1])<<8 | uint32(d[2])
	}
	run := func(name string, f *Fingerprinter, content []byte) {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(content)))
			n := 0
			for b.Loop() {
				n = 0
				f.Object(content, false, func(contraband.Class, [32]byte) { n++ })
			}
			b.ReportMetric(float64(n)/float64(len(content))*1e6, "digests/MB")
		})
	}
	run("text", New(key, filter), text)
	run("text-nofilter", New(key, nil), text)
	exe, err := os.ReadFile(filepath.Join(runtime.GOROOT(), "bin/go"))
	if err == nil {
		run("binary", New(key, filter), exe[:4<<20])
	}
	run("cjk", New(key, filter), bytes.Repeat([]byte("漢字かな交じり文のテキストです。これは長い文章の例で、\n"), 50_000))
	b.Run("sha256", func(b *testing.B) {
		b.SetBytes(int64(len(text)))
		for b.Loop() {
			sha256.Sum256(text)
		}
	})
	b.Run("digest48", func(b *testing.B) {
		d := key.Digester()
		for b.Loop() {
			d.Digest(contraband.ClassShingle, text[:48])
		}
	})
}
