package main

import (
	"bytes"
	"encoding/hex"
	"slices"
)

var (
	logKey   = edKey("log.example/eval")
	logKeyEC = ecKey("log.example/eval-p256")
)

// A proof is one as it stands in a COSE receipt: two numbers and a path.
type proof struct {
	a, b int64
	path [][]byte
}

func (p proof) bytes() []byte {
	out := cat(head(4, 3), num(p.a), num(p.b), head(4, uint64(len(p.path))))
	for _, h := range p.path {
		out = cat(out, bstr(h))
	}
	return out
}

// one is an array of one item.
func one(item []byte) []byte { return cat(head(4, 1), item) }

// proofs is the unprotected header with one proof.
func proofs(sort int64, proof []byte) []byte {
	return pairs(num(396), pairs(num(sort), one(bstr(proof))))
}

// logReceipt is a COSE receipt (RFC 9942): its parts are those of a COSE_Sign1
// whose payload, the root, is detached. claims nil takes the log and the run.
type logReceipt struct {
	sign1
	vds  []byte
	sub  string
	tail [][]byte // labels after 395
}

func (r logReceipt) bytes() []byte {
	or := func(v *[]byte, def []byte) {
		if *v == nil {
			*v = def
		}
	}
	if r.sub == "" {
		r.sub = runID
	}
	or(&r.alg, num(r.key.alg))
	or(&r.kid, bstr(r.key.kid()))
	or(&r.claims, pairs(num(1), tstr(r.key.name), num(2), tstr(r.sub)))
	or(&r.vds, num(1))
	kv := [][]byte{num(1), r.alg, num(4), r.kid, num(15), r.claims, num(395), r.vds}
	or(&r.protected, pairs(append(kv, r.tail...)...))
	or(&r.payload, []byte{0xf6})
	return r.sign1.bytes()
}

func logReceiptVectors() []vector {
	var out []vector
	entry := sign1{key: runner}.bytes()
	sameSub := sign1{key: runner, content: []byte(statement + " ")}.bytes()
	otherSub := sign1{key: runner, claims: pairs(num(1), tstr(runner.name), num(2), tstr("ff"+runID[2:]))}.bytes()
	tree := [][]byte{[]byte("filler 0"), otherSub, entry, sameSub, []byte("filler 4"), []byte("filler 5"), []byte("filler 6")}
	root := treeRoot(tree)
	good := proof{7, 2, inclusionPath(2, tree)}

	lines := [][2]string{{"log", logKey.vkey()}, {"entry", hex.EncodeToString(entry)}}
	add := func(name, stage, redteam, comment string, data []byte) {
		out = append(out, vector{"logreceipt", name, stage, redteam, comment, slices.Clone(lines), data})
	}
	// base is a good receipt of entry, in which a vector changes one thing.
	base := func() logReceipt {
		return logReceipt{sign1: sign1{key: logKey, unprotected: proofs(-1, good.bytes()), content: root}}
	}
	with := func(f func(r *logReceipt)) []byte {
		r := base()
		f(&r)
		return r.bytes()
	}
	unprotected := func(b []byte) []byte { return with(func(r *logReceipt) { r.unprotected = b }) }
	inclusion := func(p proof) []byte { return unprotected(proofs(-1, p.bytes())) }

	add("ok-inclusion-ed25519", "ok", "", "leaf 2 of 7", base().bytes())
	add("ok-inclusion-size-1", "ok", "", "the only leaf: an empty path", logReceipt{sign1: sign1{key: logKey, unprotected: proofs(-1, proof{1, 0, nil}.bytes()), content: leafHash(entry)}}.bytes())
	last := append(slices.Clone(tree[:4]), entry)
	add("ok-inclusion-last-of-5", "ok", "", "leaf 4 of 5: a path of one hash", logReceipt{sign1: sign1{key: logKey, unprotected: proofs(-1, proof{5, 4, inclusionPath(4, last)}.bytes()), content: treeRoot(last)}}.bytes())

	frame := base().bytes()
	add("untagged", "tag", "69", "no tag 18", with(func(r *logReceipt) { r.frame = []byte{0x84} }))
	add("tag-98", "tag", "69", "COSE_Sign's tag", with(func(r *logReceipt) { r.frame = []byte{0xd8, 98, 0x84} }))
	add("empty", "size", "61", "no bytes", nil)
	add("too-long", "size", "63", "a payload of 5,000 bytes", with(func(r *logReceipt) { r.payload = bstr(make([]byte, 5000)) }))
	add("trailing-zero", "cbor", "61", "a zero byte after the object", append(slices.Clone(frame), 0))
	add("cut-last-byte", "cbor", "61", "the last byte is missing", frame[:len(frame)-1])

	add("vds-missing", "vds", "", "no label 395", with(func(r *logReceipt) {
		r.protected = pairs(num(1), num(ed25519Alg), num(4), bstr(logKey.kid()), num(15), pairs(num(1), tstr(logKey.name), num(2), tstr(runID)))
	}))
	add("vds-2", "vds", "", "CCF_LEDGER_SHA256, over a good proof", with(func(r *logReceipt) { r.vds = num(2) }))
	add("vds-0", "vds", "", "the reserved structure", with(func(r *logReceipt) { r.vds = num(0) }))
	add("vds-text", "vds", "60", "the structure's name as text", with(func(r *logReceipt) { r.vds = tstr("RFC9162_SHA256") }))
	add("vds-true", "vds", "60", "true in place of 1", with(func(r *logReceipt) { r.vds = []byte{0xf5} }))
	add("vds-non-shortest", "canonical", "60", "1 in two bytes", with(func(r *logReceipt) { r.vds = []byte{0x18, 1} }))
	add("vds-in-both", "unprotected", "66", "label 395 in both headers", unprotected(pairs(num(395), num(1), num(396), pairs(num(-1), one(bstr(good.bytes()))))))
	add("crit-known", "crit", "62", "crit lists label 395, which is there", with(func(r *logReceipt) {
		r.protected = pairs(num(1), num(ed25519Alg), num(2), one(num(395)), num(4), bstr(logKey.kid()), num(15), pairs(num(1), tstr(logKey.name), num(2), tstr(runID)), num(395), num(1))
	}))
	add("label-extra", "header", "62", "label 500 in the protected header", with(func(r *logReceipt) { r.tail = [][]byte{num(500), num(0)} }))
	add("label-text", "cbor", "62", "a text label", with(func(r *logReceipt) { r.tail = [][]byte{tstr("ccf.v1"), num(0)} }))
	add("key-embedded-x5chain", "header", "71", "a certificate inside", with(func(r *logReceipt) {
		r.protected = pairs(num(1), num(ed25519Alg), num(4), bstr(logKey.kid()), num(15), pairs(num(1), tstr(logKey.name), num(2), tstr(runID)), num(33), bstr([]byte("0\x82")), num(395), num(1))
	}))
	add("protected-label-twice", "cbor", "59", "label 395 twice", with(func(r *logReceipt) { r.tail = [][]byte{num(395), num(1)} }))
	add("protected-unsorted", "canonical", "60", "label 395 first", with(func(r *logReceipt) {
		r.protected = pairs(num(395), num(1), num(1), num(ed25519Alg), num(4), bstr(logKey.kid()), num(15), pairs(num(1), tstr(logKey.name), num(2), tstr(runID)))
	}))
	add("proofs-protected", "header", "66", "label 396 in the protected header too", with(func(r *logReceipt) { r.tail = [][]byte{num(396), pairs(num(-1), one(bstr(good.bytes())))} }))

	add("unprotected-empty", "unprotected", "", "no label 396", unprotected(pairs()))
	add("unprotected-extra", "unprotected", "", "kid beside the proofs", unprotected(pairs(num(4), bstr(logKey.kid()), num(396), pairs(num(-1), one(bstr(good.bytes()))))))
	add("unprotected-label-twice", "cbor", "59", "label 396 twice", unprotected(pairs(num(396), pairs(num(-1), one(bstr(good.bytes()))), num(396), pairs(num(-1), one(bstr(good.bytes()))))))
	add("unprotected-receipts", "unprotected", "", "label 394 in place of 396", unprotected(pairs(num(394), one(bstr(good.bytes())))))
	add("unprotected-non-shortest", "canonical", "60", "label 396 in four bytes", unprotected(pairs([]byte{0x1a, 0, 0, 1, 0x8c}, pairs(num(-1), one(bstr(good.bytes()))))))
	add("proofs-empty", "proof", "", "an empty map of proofs", unprotected(pairs(num(396), pairs())))
	add("proofs-both", "proof", "", "inclusion and consistency in one receipt", unprotected(pairs(num(396), pairs(num(-1), one(bstr(good.bytes())), num(-2), one(bstr(proof{7, 7, nil}.bytes()))))))
	add("proofs-unknown", "proof", "62", "a proof of sort -3", unprotected(proofs(-3, good.bytes())))
	add("proofs-two", "proof", "", "the same inclusion proof twice", unprotected(pairs(num(396), pairs(num(-1), cat(head(4, 2), bstr(good.bytes()), bstr(good.bytes()))))))
	add("proofs-none", "proof", "", "an array of no proof", unprotected(pairs(num(396), pairs(num(-1), head(4, 0)))))
	add("proof-not-wrapped", "proof", "60", "the proof without its byte string, as drafts had it", unprotected(pairs(num(396), pairs(num(-1), one(good.bytes())))))
	add("proof-trailing", "proof", "61", "a byte after the proof", unprotected(proofs(-1, append(good.bytes(), 0))))
	add("proof-of-four", "proof", "", "four elements", unprotected(proofs(-1, cat(head(4, 4), good.bytes()[1:], num(0)))))
	add("proof-size-non-shortest", "canonical", "60", "the size in two bytes", unprotected(proofs(-1, cat([]byte{0x83, 0x18, 7}, good.bytes()[2:]))))
	add("proof-size-negative", "proof", "60", "size -7", inclusion(proof{-7, 2, good.path}))
	add("proof-size-float", "proof", "60", "size 7.0", unprotected(proofs(-1, cat([]byte{0x83, 0xf9, 0x47, 0x00}, good.bytes()[2:]))))
	add("proof-is-consistency", "proof", "", "the inclusion proof under the label of consistency", unprotected(proofs(-2, good.bytes())))
	add("size-zero", "proof", "11", "a tree of no leaf", inclusion(proof{0, 0, nil}))
	add("index-equals-size", "proof", "11", "leaf 7 of 7", inclusion(proof{7, 7, good.path}))
	add("path-empty", "proof", "11", "an empty path in a tree of 7", inclusion(proof{7, 2, nil}))
	add("path-short", "proof", "11", "the last hash is missing", inclusion(proof{7, 2, good.path[:2]}))
	add("path-long", "proof", "11", "one hash too many", inclusion(proof{7, 2, append(slices.Clone(good.path), root)}))
	add("path-of-65", "proof", "11", "more hashes than any tree has levels", inclusion(proof{7, 2, slices.Repeat([][]byte{root}, 65)}))
	add("path-in-size-1", "proof", "11", "a hash beside the only leaf", inclusion(proof{1, 0, [][]byte{root}}))
	add("path-hash-31-bytes", "proof", "21", "a hash of 31 bytes", inclusion(proof{7, 2, [][]byte{good.path[0][:31], good.path[1], good.path[2]}}))
	add("path-length-two-gigabytes", "proof", "63", "a path of 2 GB by its length", unprotected(proofs(-1, []byte{0x83, 7, 2, 0x9a, 0x7f, 0xff, 0xff, 0xff})))

	add("payload-attached", "payload", "", "the root stands in the receipt", with(func(r *logReceipt) { r.payload = bstr(root) }))
	add("payload-empty", "payload", "", "a payload of no bytes", with(func(r *logReceipt) { r.payload = bstr(nil) }))
	add("payload-undefined", "payload", "60", "undefined in place of null", with(func(r *logReceipt) { r.payload = []byte{0xf7} }))

	add("alg-none", "alg", "67", "alg 0", with(func(r *logReceipt) { r.alg = num(0) }))
	add("alg-eddsa-8", "alg", "67", "deprecated EdDSA (-8)", with(func(r *logReceipt) { r.alg = num(-8) }))
	add("alg-of-other-key", "alg", "67", "alg -9 over an Ed25519 key", with(func(r *logReceipt) { r.alg = num(es256Alg) }))
	add("kid-short", "kid", "", "31 bytes", with(func(r *logReceipt) { r.kid = bstr(logKey.kid()[:31]) }))
	add("kid-of-attacker", "kid", "70", "signed and named by a key that is not pinned", with(func(r *logReceipt) {
		r.key, r.claims = attacker, pairs(num(1), tstr(logKey.name), num(2), tstr(runID))
	}))
	add("kid-trusted-key-attacker", "signature", "70", "attacker's signature under the trusted kid", with(func(r *logReceipt) {
		r.key, r.kid, r.claims = attacker, bstr(logKey.kid()), pairs(num(1), tstr(logKey.name), num(2), tstr(runID))
	}))
	add("claims-missing", "header", "", "no label 15", with(func(r *logReceipt) {
		r.protected = pairs(num(1), num(ed25519Alg), num(4), bstr(logKey.kid()), num(395), num(1))
	}))
	add("iss-other", "issuer", "77", "the pinned key signs for another origin", with(func(r *logReceipt) {
		r.claims = pairs(num(1), tstr("log.example/other"), num(2), tstr(runID))
	}))
	add("sub-of-other-run", "subject", "76", "the sub of another entry", with(func(r *logReceipt) { r.sub = "ff" + runID[2:] }))
	add("other-entry", "subject", "76", "a good receipt for leaf 1, another run's", logReceipt{sub: "ff" + runID[2:], sign1: sign1{key: logKey, unprotected: proofs(-1, proof{7, 1, inclusionPath(1, tree)}.bytes()), content: root}}.bytes())
	add("other-entry-same-sub", "signature", "76", "a good receipt for leaf 3, another entry of the run", inclusion(proof{7, 3, inclusionPath(3, tree)}))
	add("index-of-sibling", "signature", "76", "index 3 with the path of leaf 2", inclusion(proof{7, 3, good.path}))
	flipped := slices.Clone(good.path)
	flipped[1] = bytes.Clone(flipped[1])
	flipped[1][31] ^= 1
	add("path-hash-changed", "signature", "", "one bit of the second hash", inclusion(proof{7, 2, flipped}))
	add("root-of-other-tree", "signature", "", "signed over the root of 6 leaves", with(func(r *logReceipt) { r.content = treeRoot(tree[:6]) }))
	add("signed-over-nothing", "signature", "", "signed over an empty payload, not over the root", with(func(r *logReceipt) { r.content = []byte{} }))
	add("external-aad", "signature", "69", "signed with external data", with(func(r *logReceipt) { r.external = []byte{1} }))
	add("context-signature", "signature", "69", "signed in COSE_Sign's context", with(func(r *logReceipt) { r.context = "Signature" }))
	add("signature-63-bytes", "signature", "", "last byte missing", with(func(r *logReceipt) { r.resign = func(t []byte) []byte { return logKey.sign(t)[:63] } }))
	add("ed25519-s-plus-l", "signature", "72", "S + L", with(func(r *logReceipt) { r.resign = func(t []byte) []byte { return sPlusL(logKey.sign(t)) } }))

	lines = [][2]string{{"log", renamed(logKey, "log.example/other").vkey()}, {"entry", hex.EncodeToString(entry)}}
	add("pinned-under-other-name", "issuer", "77", "a good receipt; the policy pins the key under another origin", base().bytes())
	lines = [][2]string{{"log", logKeyEC.vkey()}, {"entry", hex.EncodeToString(entry)}}
	add("ok-inclusion-es256", "ok", "", "leaf 2 of 7, ECDSA P-256", with(func(r *logReceipt) { r.key = logKeyEC }))
	add("es256-high-s", "signature", "72", "(r, n-s)", with(func(r *logReceipt) {
		r.key, r.resign = logKeyEC, func(t []byte) []byte { return raw(logKeyEC.rs(t, true)) }
	}))
	return append(out, consistencyVectors(tree)...)
}

// renamed is the same key under another name.
func renamed(k *key, name string) *key {
	other := *k
	other.name = name
	return &other
}

func consistencyVectors(tree [][]byte) []vector {
	var out []vector
	older, newer := treeRoot(tree[:3]), treeRoot(tree)
	good := proof{3, 7, consistencyPath(3, tree)}
	from, to := older, newer
	add := func(name, stage, redteam, comment string, r logReceipt) {
		r.sub = logKey.name
		lines := [][2]string{{"log", logKey.vkey()}, {"older", hex.EncodeToString(from)}, {"newer", hex.EncodeToString(to)}}
		out = append(out, vector{"logreceipt", name, stage, redteam, comment, lines, r.bytes()})
	}
	with := func(p proof) logReceipt {
		return logReceipt{sign1: sign1{key: logKey, unprotected: proofs(-2, p.bytes()), content: newer}}
	}
	add("ok-consistency", "ok", "", "from 3 to 7", with(good))
	add("consistency-older-zero", "proof", "", "from the empty tree", with(proof{0, 7, nil}))
	add("consistency-backwards", "proof", "", "from 7 to 3", with(proof{7, 3, good.path}))
	add("consistency-path-short", "proof", "11", "the last hash is missing", with(proof{3, 7, good.path[:len(good.path)-1]}))
	add("consistency-path-long", "proof", "11", "one hash too many", with(proof{3, 7, append(slices.Clone(good.path), newer)}))
	add("consistency-path-empty", "proof", "11", "an empty path between two sizes", with(proof{3, 7, nil}))
	add("consistency-is-inclusion", "proof", "", "an inclusion proof in its place", logReceipt{sign1: sign1{key: logKey, unprotected: proofs(-1, proof{7, 3, inclusionPath(3, tree)}.bytes()), content: newer}})
	flipped := slices.Clone(good.path)
	flipped[0] = bytes.Clone(flipped[0])
	flipped[0][0] ^= 1
	add("consistency-hash-changed", "proof", "", "one bit of the first hash", with(proof{3, 7, flipped}))
	r := with(good)
	r.content = older
	add("consistency-signed-older", "signature", "", "signed over the older root", r)
	r = with(good)
	r.key, r.kid = attacker, bstr(logKey.kid())
	r.claims = pairs(num(1), tstr(logKey.name), num(2), tstr(logKey.name))
	add("consistency-by-attacker", "signature", "70", "attacker's signature under the trusted kid", r)

	from = treeRoot(append(slices.Clone(tree[:2]), []byte("another leaf")))
	add("consistency-other-older-root", "proof", "78", "the older checkpoint is of another tree", with(good))
	from = newer
	add("ok-consistency-same-size", "ok", "", "one size, one root, an empty path", with(proof{7, 7, nil}))
	add("consistency-same-size-path", "proof", "11", "one size, and a path", with(proof{7, 7, [][]byte{newer}}))
	from = treeRoot(append(slices.Clone(tree[:6]), []byte("another leaf")))
	add("consistency-same-size-other-root", "proof", "78", "two roots of one size", with(proof{7, 7, nil}))
	return out
}
