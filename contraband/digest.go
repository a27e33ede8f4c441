package contraband

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
)

// Labels of the digests below. Each is 7 bytes, so that a run digest is one
// SHA-256 block: 7 + 16 + 32 bytes and 9 of padding.
const (
	labelSalt    = "run-s/1"
	labelRun     = "run-d/1"
	labelControl = "ctl-c/1"
	labelPick    = "ctl-p/1"
)

// A Digester computes layer-1 digests under one task key. It is not safe for
// concurrent use; make one for each goroutine.
type Digester struct {
	mac   [ClassAtom + 1]hash.Hash
	short [ClassAtom + 1]*shortMAC // nil where the platform's SHA-256 state is not ours to read
	head  [headSize]byte
	sum   []byte
}

// Digester returns a new digester.
func (k TaskKey) Digester() *Digester {
	d := new(Digester)
	for c := ClassCanary; c <= ClassAtom; c++ {
		key := expand(k.k, "cleanrun/v1", "class", Profile, string([]byte{byte(c)}))
		d.mac[c] = hmac.New(sha256.New, key[:])
		d.short[c] = newShortMAC(c, key)
	}
	return d
}

// Digest is layer 1: s = HMAC-SHA256(K_class, 0x01 || class || u32 length ||
// item). The profile is in K_class, which keeps a 48-byte shingle in one block.
// The class must be a known one.
func (d *Digester) Digest(class Class, item []byte) (s [32]byte) {
	if m := d.short[class]; m != nil && len(item) <= maxShort {
		m.sum(&s, item)
		return s
	}
	return d.long(class, item)
}

// long is apart so that Digest's result stays off the heap.
func (d *Digester) long(class Class, item []byte) [32]byte {
	d.head[0], d.head[1] = 0x01, byte(class)
	binary.BigEndian.PutUint32(d.head[2:], uint32(len(item)))
	h := d.mac[class]
	h.Reset()
	h.Write(d.head[:])
	h.Write(item)
	d.sum = h.Sum(d.sum[:0])
	return [32]byte(d.sum)
}

// RunSalt is the salt of a run's digests, from the bytes of its start row. It
// makes the digests of two runs unlinkable and ties them to one journal.
func RunSalt(startRow []byte) [16]byte {
	h := sha256.New()
	h.Write([]byte(labelSalt))
	h.Write(startRow)
	return [16]byte(h.Sum(nil)[:16])
}

// RunDigest is layer 2: what evidence shows of a layer-1 digest s.
func RunDigest(salt [16]byte, s [32]byte) [16]byte {
	var in [7 + 16 + 32]byte
	copy(in[:], labelRun)
	copy(in[7:], salt[:])
	copy(in[23:], s[:])
	sum := sha256.Sum256(in[:])
	return [16]byte(sum[:16])
}

// Control is what the sealed set shows of a control's layer-1 digest s. It is
// one level deeper than an item, so that nobody can derive a control's run
// digest from the sealed set.
func Control(s [32]byte) [32]byte {
	var in [7 + 32]byte
	copy(in[:], labelControl)
	copy(in[7:], s[:])
	return sha256.Sum256(in[:])
}

// Challenges is how many controls an attester opens.
const Challenges = 16

// ChallengeControls picks which of n controls must be opened for a journal with
// this head: min(16, n) indexes into the sorted list, ascending. Step i swaps
// place i with place i + SHA-256(label || SHA-256(head) || u32 i) mod (n - i),
// the first 8 bytes of it read as a big-endian number.
func ChallengeControls(head []byte, n int) []int {
	seed := sha256.Sum256(head)
	place := make([]int, n)
	for i := range place {
		place[i] = i
	}
	m := min(Challenges, n)
	for i := range m {
		in := append([]byte(labelPick), seed[:]...)
		sum := sha256.Sum256(binary.BigEndian.AppendUint32(in, uint32(i)))
		j := i + int(binary.BigEndian.Uint64(sum[:8])%uint64(n-i))
		place[i], place[j] = place[j], place[i]
	}
	picked := place[:m]
	slices.Sort(picked)
	return picked
}
