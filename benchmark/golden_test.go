package benchmark

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/cleanrun-dev/cleanrun/internal/fixture"
)

// sameControl gives every task the same control text, in whatever order the
// workers draw.
type sameControl struct{}

func (sameControl) Read(p []byte) (int, error) {
	return rand.NewChaCha8([32]byte{1}).Read(p)
}

// goldenSeal is SHA-256 of the signed file. It changes with the format or the
// profile only: what makes sealing faster must leave it alone.
const goldenSeal = "6e03be38eba2e302690c6acc705eaf02c1d7d05f7850061b492474a31a70265e"

func TestSealGolden(t *testing.T) {
	dir, _ := rowsFolder(t, fixture.Rows{Tasks: 24, Lines: 60, Seed: 9})
	for _, workers := range []int{1, 3} {
		b := loadBenchmark(t, dir)
		name, _ := sealAll(t, b, func(o *Options) { o.Random, o.Workers = sameControl{}, workers })
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		if got := hex.EncodeToString(sum[:]); got != goldenSeal {
			t.Errorf("%d workers: got b.sealed of digest %s, want %s", workers, got, goldenSeal)
		}
	}
}
