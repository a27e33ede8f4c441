package journal

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"slices"
	"testing"
)

func TestSecretIsHKDF(t *testing.T) {
	want := func(info string) []byte {
		key, err := hkdf.Key(sha256.New, testSecret[:], []byte("cleanrun/journal/secret/v1"), info, 32)
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	if got := testSecret.PathKey(); !bytes.Equal(got[:], want("path-key")) {
		t.Errorf("PathKey: got %x", got)
	}
	if got := testSecret.Salt(258); !bytes.Equal(got[:], want("row-salt\x00\x00\x00\x00\x00\x00\x01\x02")) {
		t.Errorf("Salt: got %x", got)
	}
	if DrawSecret() == DrawSecret() {
		t.Error("two draws are equal")
	}
}

func TestCommitDefinition(t *testing.T) {
	salt := [32]byte{9}
	want := sha256.Sum256(slices.Concat([]byte("cleanrun/journal/commit/v1\x00"), salt[:], []byte("detail")))
	if got := Commit(salt, []byte("detail")); got != want {
		t.Errorf("got %x, want %x", got, want)
	}
}
