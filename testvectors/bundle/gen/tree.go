package main

import "crypto/sha256"

// Trees as RFC 9162, section 2.1, defines them, by recursion.

func leafHash(entry []byte) []byte {
	h := sha256.Sum256(cat([]byte{0}, entry))
	return h[:]
}

// split is the largest power of two below n.
func split(n int) int {
	k := 1
	for 2*k < n {
		k *= 2
	}
	return k
}

func treeRoot(entries [][]byte) []byte {
	if len(entries) == 1 {
		return leafHash(entries[0])
	}
	k := split(len(entries))
	h := sha256.Sum256(cat([]byte{1}, treeRoot(entries[:k]), treeRoot(entries[k:])))
	return h[:]
}

// inclusionPath is PATH(m, D) of section 2.1.3.1.
func inclusionPath(m int, entries [][]byte) [][]byte {
	if len(entries) == 1 {
		return nil
	}
	k := split(len(entries))
	if m < k {
		return append(inclusionPath(m, entries[:k]), treeRoot(entries[k:]))
	}
	return append(inclusionPath(m-k, entries[k:]), treeRoot(entries[:k]))
}

// consistencyPath is PROOF(m, D) of section 2.1.4.1.
func consistencyPath(m int, entries [][]byte) [][]byte { return subproof(m, entries, true) }

func subproof(m int, entries [][]byte, whole bool) [][]byte {
	if m == len(entries) {
		if whole {
			return nil
		}
		return [][]byte{treeRoot(entries)}
	}
	k := split(len(entries))
	if m <= k {
		return append(subproof(m, entries[:k], whole), treeRoot(entries[k:]))
	}
	return append(subproof(m-k, entries[k:], false), treeRoot(entries[:k]))
}
