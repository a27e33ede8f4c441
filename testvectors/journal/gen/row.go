package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
)

// CBOR, RFC 8949, section 3.

func head(major byte, n uint64) []byte {
	m := major << 5
	switch {
	case n < 24:
		return []byte{m | byte(n)}
	case n < 1<<8:
		return []byte{m | 24, byte(n)}
	case n < 1<<16:
		return binary.BigEndian.AppendUint16([]byte{m | 25}, uint16(n))
	case n < 1<<32:
		return binary.BigEndian.AppendUint32([]byte{m | 26}, uint32(n))
	}
	return binary.BigEndian.AppendUint64([]byte{m | 27}, n)
}

func num(n uint64) []byte  { return head(0, n) }
func bstr(b []byte) []byte { return append(head(2, uint64(len(b))), b...) }
func tstr(s string) []byte { return append(head(3, uint64(len(s))), s...) }
func list(items ...[]byte) []byte {
	return append(head(4, uint64(len(items))), bytes.Join(items, nil)...)
}

var null = []byte{0xf6}

// A table is a CBOR map with small integer keys. A nil value is left out.
type table map[int][]byte

func (t table) encode() []byte {
	t = maps.Clone(t)
	maps.DeleteFunc(t, func(_ int, v []byte) bool { return v == nil })
	out := head(5, uint64(len(t)))
	for _, k := range slices.Sorted(maps.Keys(t)) {
		out = append(append(out, num(uint64(k))...), t[k]...)
	}
	return out
}

// Keys of a row.
const (
	kSeq = iota + 1
	kTime
	kPhase
	kProc
	kOp
	kDir
	kOrigin
	kResult
	kFlags
	kSize
	kObject
	kCommit
	kPath
	kPath2
	kChild
	kStart
	kFinal
	kEnd
	kReward
	kGuard
)

// Operations, directions, origins and flags, as in spec/journal.md.
const (
	opStart    = 1
	opFinal    = 2
	opDir      = 3
	opOpen     = 4
	opWrote    = 5
	opExec     = 6
	opArgv     = 8
	opRename   = 10
	opMkdir    = 13
	opMknod    = 14
	opTruncate = 15
	opFork     = 22
	opExit     = 23
	opStdin    = 24
	opStdout   = 25
	opDenied   = 27
	opVoid     = 29
	opLost     = 30
	opPhase    = 31
	opReward   = 32
	opGuard    = 33

	in, out = 1, 2

	input, driver, model, run = 1, 3, 4, 6

	fScope, fRead, fWrite, fCreate, fTrunc, fDirectory, fPseudo, fHidden = 1, 2, 4, 8, 16, 32, 64, 128
	fText, fControl, fPath, fUnreadable                                  = 512, 1024, 2048, 16384
)

// row returns a row with all keys that every row has.
func row(op uint64, set table) table {
	r := table{kPhase: num(1), kOp: num(op), kCommit: bstr(make([]byte, 32))}
	for _, k := range []int{kSeq, kTime, kProc, kDir, kOrigin, kResult, kFlags, kSize, kObject} {
		r[k] = num(0)
	}
	maps.Copy(r, set)
	return r
}

// Path digests, spec/journal.md, "Paths".

var pathKey = bytes.Repeat([]byte{7}, 32)

func keyOf(path string) []byte {
	mac := hmac.New(sha256.New, pathKey)
	mac.Write([]byte("cleanrun/path-key/v1\x00" + path))
	return mac.Sum(nil)
}

func digestOf(path string) []byte {
	sum := sha256.Sum256([]byte("cleanrun/path/v1\x00" + string(keyOf(path)) + path))
	return sum[:]
}

func ref(dir uint64, path string) []byte { return list(num(dir), bstr(digestOf(path))) }

// root is one entry of the start row.
func root(path string, mode, class uint64) []byte {
	return list(tstr(path), bstr(keyOf(path)), num(mode), num(class))
}

// frame is the file: each row after its length.
func frame(rows [][]byte) []byte {
	var b []byte
	for _, r := range rows {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(r))), r...)
	}
	return b
}

// treeHash is MTH of RFC 9162, section 2.1.1, as it is written there.
func treeHash(rows [][]byte) []byte {
	if len(rows) == 1 {
		sum := sha256.Sum256(append([]byte{0}, rows[0]...))
		return sum[:]
	}
	k := 1
	for k*2 < len(rows) {
		k *= 2
	}
	sum := sha256.Sum256(slices.Concat([]byte{1}, treeHash(rows[:k]), treeHash(rows[k:])))
	return sum[:]
}

func repeat(s string, n int) string { return strings.Repeat(s, n) }
