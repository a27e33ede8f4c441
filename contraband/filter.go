package contraband

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// FilterBits is the size of a filter value. Of n values in a set's filter, one
// random line in 2^24/n passes and gets a digest.
const FilterBits = 24

// CanarySize is the part of a canary that is sealed and looked for, in
// canonical bytes.
const CanarySize = 24

// A Filter computes the keyed values by which lines, atoms and canaries are
// told apart from the mass that needs no digest (DESIGN.md, D5). Lines and
// atoms, which may be guessable, go through SipHash-2-4, a pseudo-random
// function. Canaries must be found at every position and are random themselves:
// they go through a rolling hash with a secret table.
// It is read-only after it is made and safe for concurrent use.
type Filter struct {
	k0, k1 uint64
	// Table and Mul define the canary value of 24 bytes c:
	// r = xor of rotl(Table[c[i]], 23-i), value = (r * Mul) >> 40.
	Table [256]uint64
	Mul   uint64
}

// Filter derives the filter of k.
func (k TaskKey) Filter() *Filter {
	key := expand(k.k, "cleanrun/v1", "filter", Profile)
	f := &Filter{
		k0: binary.LittleEndian.Uint64(key[:]),
		k1: binary.LittleEndian.Uint64(key[8:]),
	}
	f.Table, f.Mul = Table(expand(k.k, "cleanrun/v1", "filter-roll", Profile))
	return f
}

// Table expands a key into the table and odd multiplier of a rolling hash:
// HMAC(key, u32 i) for i = 0, 1, ... read as little-endian 64-bit numbers; the
// 257th, made odd, is the multiplier.
func Table(key [KeySize]byte) (table [256]uint64, mul uint64) {
	h := hmac.New(sha256.New, key[:])
	stream := make([]byte, 0, 257*8+sha256.Size)
	var count [4]byte
	for i := uint32(0); len(stream) < 257*8; i++ {
		binary.BigEndian.PutUint32(count[:], i)
		h.Reset()
		h.Write(count[:])
		stream = h.Sum(stream)
	}
	for i := range table {
		table[i] = binary.LittleEndian.Uint64(stream[8*i:])
	}
	return table, binary.LittleEndian.Uint64(stream[8*256:]) | 1
}

// Value is the 24-bit filter value of an item. Only ClassLine, ClassAtom and
// ClassCanary (of exactly CanarySize bytes) have one; anything else is a
// programming error and panics.
func (f *Filter) Value(class Class, item []byte) uint32 {
	switch {
	case class == ClassLine || class == ClassAtom:
		return uint32(siphash(f.k0^uint64(class), f.k1, item) >> (64 - FilterBits))
	case class == ClassCanary && len(item) == CanarySize:
		var r uint64
		for _, b := range item {
			r = bits.RotateLeft64(r, 1) ^ f.Table[b]
		}
		return uint32((r * f.Mul) >> (64 - FilterBits))
	}
	panic("contraband: class without a filter value")
}

// siphash is SipHash-2-4 (Aumasson, Bernstein 2012) with a 64-bit result.
func siphash(k0, k1 uint64, p []byte) uint64 {
	v0, v1 := k0^0x736f6d6570736575, k1^0x646f72616e646f6d
	v2, v3 := k0^0x6c7967656e657261, k1^0x7465646279746573
	last := uint64(len(p)) << 56
	for ; len(p) >= 8; p = p[8:] {
		m := binary.LittleEndian.Uint64(p)
		v3 ^= m
		v0, v1, v2, v3 = sipround(v0, v1, v2, v3)
		v0, v1, v2, v3 = sipround(v0, v1, v2, v3)
		v0 ^= m
	}
	for i, b := range p {
		last |= uint64(b) << (8 * i)
	}
	v3 ^= last
	v0, v1, v2, v3 = sipround(v0, v1, v2, v3)
	v0, v1, v2, v3 = sipround(v0, v1, v2, v3)
	v0 ^= last
	v2 ^= 0xff
	for range 4 {
		v0, v1, v2, v3 = sipround(v0, v1, v2, v3)
	}
	return v0 ^ v1 ^ v2 ^ v3
}

func sipround(v0, v1, v2, v3 uint64) (uint64, uint64, uint64, uint64) {
	v0 += v1
	v1 = bits.RotateLeft64(v1, 13) ^ v0
	v0 = bits.RotateLeft64(v0, 32)
	v2 += v3
	v3 = bits.RotateLeft64(v3, 16) ^ v2
	v0 += v3
	v3 = bits.RotateLeft64(v3, 21) ^ v0
	v2 += v1
	v1 = bits.RotateLeft64(v1, 17) ^ v2
	v2 = bits.RotateLeft64(v2, 32)
	return v0, v1, v2, v3
}
