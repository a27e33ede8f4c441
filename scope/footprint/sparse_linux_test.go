package footprint

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A sparse file has the digest of the same content without holes, and takes no time.
func TestSparseFileOfFiveGigabytes(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, size int64, parts map[int64]string) {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		err = f.Truncate(size)
		for at, text := range parts {
			_, werr := f.WriteAt([]byte(text), at)
			err = errors.Join(err, werr)
		}
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	parts := map[int64]string{3<<20 - 2: "text", 5 << 20: "more"}
	const size = 6<<20 + 7
	write("sparse", size, parts)
	whole := make([]byte, size)
	for at, text := range parts {
		copy(whole[at:], text)
	}
	put(t, dir+"/whole", string(whole))
	write("huge", 5<<30, map[int64]string{1 << 30: "text"})
	m := take(t, dir, true, DefaultLimits)
	if len(m.Gaps) != 0 || m.Find("huge").Size != 5<<30 || !m.Find("huge").Read {
		t.Fatalf("got gaps %v", m.Gaps)
	}
	// The naive digest: of the digests of the pieces.
	h := sha256.New()
	for piece := range slices.Chunk(whole, 1<<20) {
		sum := sha256.Sum256(piece)
		h.Write(sum[:])
	}
	if want := [32]byte(h.Sum(nil)); m.Find("whole").Digest != want || m.Find("sparse").Digest != want {
		t.Errorf("got %x without holes and %x with, want %x", m.Find("whole").Digest, m.Find("sparse").Digest, want)
	}
	write("huge", 5<<30, map[int64]string{1 << 30: "tExt"})
	changes, _ := Diff(m, take(t, dir, true, DefaultLimits))
	if same(t, "changes", described(changes), "modified huge"); changes[0].What != "content" {
		t.Errorf("got %q, want content", changes[0].What)
	}
	// Its size counts against the limit of bytes.
	low := take(t, dir, true, Limits{Entries: 100, Bytes: 1 << 30, Depth: 10})
	if !slices.Equal(low.Gaps, []Gap{{"huge", GapLimit}}) || low.Find("huge").Read {
		t.Errorf("got gaps %v, want huge alone", low.Gaps)
	}
}
