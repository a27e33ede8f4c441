package views

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
)

func noise(seed uint64, n int) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	b := make([]byte, n)
	r.Read(b)
	return b
}

// prose returns n words that no other seed gives.
func prose(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 98))
	var b strings.Builder
	for range n {
		for range 3 + r.IntN(7) {
			b.WriteByte(byte('a' + r.IntN(26)))
		}
		b.WriteByte(" \n (,"[r.IntN(5)])
	}
	return b.String()
}

func gz(t testing.TB, parts ...[]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	for _, p := range parts {
		w := gzip.NewWriter(&out)
		w.Write(p)
		must(t, w.Close())
	}
	return out.Bytes()
}

func commented(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Comment = string(b)
	w.Write([]byte("nothing to see"))
	must(t, w.Close())
	return out.Bytes()
}

func zl(t testing.TB, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zlib.NewWriter(&out)
	w.Write(b)
	must(t, w.Close())
	return out.Bytes()
}

func xzed(t testing.TB, b []byte, sum byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := xz.WriterConfig{CheckSum: sum, NoCheckSum: sum == xz.None, BlockSize: 1 << 20}.NewWriter(&out)
	must(t, err)
	w.Write(b)
	must(t, w.Close())
	return out.Bytes()
}

func zst(t testing.TB, b []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	must(t, err)
	return w.EncodeAll(b, nil)
}

func tarball(t testing.TB, members ...[]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i, m := range members {
		must(t, w.WriteHeader(&tar.Header{Name: fmt.Sprint("m", i), Size: int64(len(m)), Mode: 0o600}))
		w.Write(m)
	}
	must(t, w.Close())
	return out.Bytes()
}

func zipped(t testing.TB, method uint16, members ...[]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for i, m := range members {
		f, err := w.CreateHeader(&zip.FileHeader{Name: fmt.Sprint("m", i), Method: method})
		must(t, err)
		f.Write(m)
	}
	must(t, w.Close())
	return out.Bytes()
}

func git(kind string, b []byte) []byte {
	return append(fmt.Appendf(nil, "%s %d\x00", kind, len(b)), b...)
}

func b64(b []byte) []byte { return []byte(base64.StdEncoding.EncodeToString(b)) }

func wrap(b []byte, n int, end string) []byte {
	var out []byte
	for part := range slices.Chunk(b, n) {
		out = append(append(out, part...), end...)
	}
	return out
}

func quote(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return b
}

func ascii(s string) []byte { // \uXXXX for all that is not ASCII
	var b strings.Builder
	for _, r := range s {
		switch {
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		case r > 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return []byte(b.String())
}
