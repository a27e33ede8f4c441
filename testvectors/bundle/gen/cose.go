package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha512"
	"slices"
)

// CBOR, RFC 8949, section 3.

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func head(major byte, n uint64) []byte {
	m := major << 5
	switch {
	case n < 24:
		return []byte{m | byte(n)}
	case n < 1<<8:
		return []byte{m | 24, byte(n)}
	case n < 1<<16:
		return []byte{m | 25, byte(n >> 8), byte(n)}
	}
	return []byte{m | 26, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

func num(n int64) []byte {
	if n < 0 {
		return head(1, uint64(-1-n))
	}
	return head(0, uint64(n))
}

func bstr(b []byte) []byte { return cat(head(2, uint64(len(b))), b) }
func tstr(s string) []byte { return cat(head(3, uint64(len(s))), []byte(s)) }

// pairs is a map with its pairs as given.
func pairs(kv ...[]byte) []byte { return cat(head(5, uint64(len(kv)/2)), cat(kv...)) }

const (
	statement   = `{"_type":"https://in-toto.io/Statement/v1","predicate":{"note":"a ~~~ test ???"},"predicateType":"https://cleanrun.dev/attestation/clean-run/v1","subject":[{"digest":{"sha256":"aa"},"name":"journal"}]}`
	typReceipt  = "application/cleanrun-receipt+cose"
	typSealed   = "application/cleanrun-sealed-set+cose"
	ctStatement = "application/vnd.in-toto+json"
	ctSealed    = "application/cleanrun-sealed-set+cbor"
	runID       = "000102030405060708090a0b0c0d0e0f"
	taskID      = "tiny-bench/first-task"
)

var sealedPayload = pairs(num(1), tstr("opaque to this layer"))

// sign1 is the parts of a COSE_Sign1. A nil field takes the value that the
// specification asks for.
type sign1 struct {
	key         *key
	sealed      bool
	alg         []byte
	contentType []byte
	kid         []byte
	claims      []byte
	typ         []byte
	protected   []byte // the map, encoded
	bprotected  []byte // the byte string around it, encoded
	unprotected []byte
	content     []byte // what is signed
	payload     []byte // the payload, encoded
	context     string
	external    []byte
	signature   []byte
	resign      func(tbs []byte) []byte
	frame       []byte // tag and array head
}

func (s sign1) defaults() sign1 {
	or := func(v *[]byte, def []byte) {
		if *v == nil {
			*v = def
		}
	}
	sub, typ, ct, content := runID, typReceipt, ctStatement, []byte(statement)
	if s.sealed {
		sub, typ, ct, content = taskID, typSealed, ctSealed, sealedPayload
	}
	or(&s.alg, num(s.key.alg))
	or(&s.contentType, tstr(ct))
	or(&s.kid, bstr(s.key.kid()))
	or(&s.claims, pairs(num(1), tstr(s.key.name), num(2), tstr(sub)))
	or(&s.typ, tstr(typ))
	or(&s.protected, pairs(num(1), s.alg, num(3), s.contentType, num(4), s.kid, num(15), s.claims, num(16), s.typ))
	or(&s.bprotected, bstr(s.protected))
	or(&s.unprotected, pairs())
	or(&s.content, content)
	or(&s.payload, bstr(s.content))
	or(&s.frame, []byte{0xd2, 0x84})
	if s.context == "" {
		s.context = "Signature1"
	}
	return s
}

// bytes encodes and signs (RFC 9052, sections 4.2 and 4.4).
func (s sign1) bytes() []byte {
	s = s.defaults()
	tbs := cat(head(4, 4), tstr(s.context), bstr(s.protected), bstr(s.external), bstr(s.content))
	if s.context == "Signature" {
		tbs = cat(head(4, 5), tstr(s.context), bstr(s.protected), bstr(nil), bstr(s.external), bstr(s.content))
	}
	sig := s.signature
	if s.resign != nil {
		sig = bstr(s.resign(tbs))
	}
	if sig == nil {
		sig = bstr(s.key.sign(tbs))
	}
	return cat(s.frame, s.bprotected, s.unprotected, s.payload, sig)
}

// header encodes the protected map with one pair more, at the end, and the same
// others. The added label must sort last.
func (s sign1) header(extra ...[]byte) sign1 {
	d := s.defaults()
	s.protected = pairs(append([][]byte{num(1), d.alg, num(3), d.contentType, num(4), d.kid, num(15), d.claims, num(16), d.typ}, extra...)...)
	return s
}

// without encodes the protected map without one label.
func (s sign1) without(label int64) sign1 {
	d := s.defaults()
	var kv [][]byte
	for _, p := range []struct {
		label int64
		value []byte
	}{{1, d.alg}, {3, d.contentType}, {4, d.kid}, {15, d.claims}, {16, d.typ}} {
		if p.label != label {
			kv = append(kv, num(p.label), p.value)
		}
	}
	s.protected = pairs(kv...)
	return s
}

func coseVectors() []vector {
	var out []vector
	kind, pinned := "receipt", runner
	add := func(name, stage, redteam, comment string, data []byte) {
		out = append(out, vector{"cose", name, stage, redteam, comment, [][2]string{{"kind", kind}, {"key", pinned.vkey()}}, data})
	}
	r := sign1{key: runner}
	d := r.defaults()

	add("ok-receipt-ed25519", "ok", "", "a receipt, Ed25519", r.bytes())
	add("untagged", "tag", "69", "no tag 18", sign1{key: runner, frame: []byte{0x84}}.bytes())
	add("tag-98", "tag", "69", "COSE_Sign's tag", sign1{key: runner, frame: []byte{0xd8, 98, 0x84}}.bytes())
	add("tag-non-shortest", "tag", "60", "tag 18 in two bytes", sign1{key: runner, frame: []byte{0xd8, 18, 0x84}}.bytes())
	add("array-indefinite", "tag", "61", "array of indefinite length", append(sign1{key: runner, frame: []byte{0xd2, 0x9f}}.bytes(), 0xff))
	add("array-of-five", "tag", "", "one element too many", append(sign1{key: runner, frame: []byte{0xd2, 0x85}}.bytes(), 0x00))
	add("bom-before", "tag", "61", "a byte order mark before the object", append([]byte{0xef, 0xbb, 0xbf}, r.bytes()...))
	add("empty", "size", "61", "no bytes", nil)
	add("trailing-zero", "cbor", "61", "a zero byte after the object", append(r.bytes(), 0))
	add("cut-last-byte", "cbor", "61", "the last byte is missing", r.bytes()[:len(r.bytes())-1])
	add("length-two-gigabytes", "cbor", "63", "payload length of 2 GB, no payload", cat(d.frame, d.bprotected, d.unprotected, []byte{0x5a, 0x7f, 0xff, 0xff, 0xff}))
	add("nesting-deep", "cbor", "63", "a thousand nested arrays in a header", r.header(num(99), append(bytes.Repeat([]byte{0x81}, 1000), 0x00)).bytes())
	add("payload-text", "cbor", "60", "payload as text string", sign1{key: runner, payload: tstr(statement)}.bytes())
	add("payload-indefinite", "cbor", "61", "payload in chunks", sign1{key: runner, payload: cat([]byte{0x5f}, bstr([]byte(statement)), []byte{0xff})}.bytes())
	add("payload-length-non-shortest", "canonical", "60", "payload length in four bytes", sign1{key: runner, payload: cat([]byte{0x5a, 0, 0, 0, byte(len(statement))}, []byte(statement))}.bytes())
	add("payload-detached", "payload", "", "payload null, signed all the same", sign1{key: runner, payload: []byte{0xf6}}.bytes())
	add("payload-undefined", "canonical", "60", "payload undefined", sign1{key: runner, payload: []byte{0xf7}}.bytes())
	add("payload-empty", "payload", "", "payload of no bytes", sign1{key: runner, content: []byte{}}.bytes())
	add("payload-changed", "signature", "", "one payload byte changed after signing", sign1{key: runner, payload: bstr(bytes.Replace([]byte(statement), []byte("test"), []byte("tesu"), 1))}.bytes())

	add("protected-unsorted", "canonical", "60", "labels 3 and 1 swapped", sign1{key: runner, protected: pairs(num(3), d.contentType, num(1), d.alg, num(4), d.kid, num(15), d.claims, num(16), d.typ)}.bytes())
	add("protected-label-non-shortest", "canonical", "60", "label 1 in two bytes", sign1{key: runner, protected: pairs([]byte{0x18, 1}, d.alg, num(3), d.contentType, num(4), d.kid, num(15), d.claims, num(16), d.typ)}.bytes())
	add("protected-label-twice", "cbor", "59", "label 16 twice", r.header(num(16), d.typ).bytes())
	add("protected-indefinite", "cbor", "61", "protected map of indefinite length", sign1{key: runner, protected: cat([]byte{0xbf}, d.protected[1:], []byte{0xff})}.bytes())
	add("protected-trailing", "cbor", "61", "a byte after the protected map", sign1{key: runner, protected: append(slices.Clone(d.protected), 0)}.bytes())
	add("protected-length-non-shortest", "canonical", "60", "length of the protected bytes in two bytes more", sign1{key: runner, bprotected: cat([]byte{0x5a, 0, 0, 0, byte(len(d.protected))}, d.protected)}.bytes())
	add("protected-as-map", "cbor", "", "protected map without its byte string", sign1{key: runner, bprotected: d.protected}.bytes())
	add("protected-empty", "cbor", "", "no protected header at all", sign1{key: runner, protected: []byte{}}.bytes())
	add("crit-unknown", "crit", "62", "crit lists a label that nobody knows", crit(d, cat(head(4, 1), num(99)), true).bytes())
	add("crit-known", "crit", "62", "crit lists label 16, which is there", crit(d, cat(head(4, 1), num(16)), false).bytes())
	add("label-unknown", "header", "62", "label 99", r.header(num(99), num(0)).bytes())
	add("label-text", "cbor", "62", "a text label", r.header(tstr("x"), num(0)).bytes())
	add("key-embedded-x5chain", "header", "71", "attacker's certificate inside", sign1{key: attacker}.header(num(33), bstr([]byte("0\x82"))).bytes())
	add("hash-envelope-sha1", "header", "68", "payload_hash_alg SHA-1 (RFC 9995)", r.header(num(258), num(-14)).bytes())
	for _, l := range []struct {
		label int64
		name  string
	}{{3, "content-type"}, {4, "kid"}, {15, "claims"}, {16, "typ"}} {
		add(l.name+"-missing", "header", "", "no label for "+l.name, r.without(l.label).bytes())
	}

	add("alg-missing", "alg", "66", "no alg at all", r.without(1).bytes())
	w := r.without(1)
	w.unprotected = pairs(num(1), num(ed25519Alg))
	add("alg-unprotected-only", "unprotected", "66", "alg in the unprotected header only", w.bytes())
	add("alg-in-both", "unprotected", "66", "alg in both headers", sign1{key: runner, unprotected: pairs(num(1), num(ed25519Alg))}.bytes())
	add("alg-zero", "alg", "67", "alg 0: none", sign1{key: runner, alg: num(0)}.bytes())
	add("alg-eddsa-8", "alg", "67", "deprecated EdDSA (-8): the curve is not said", sign1{key: runner, alg: num(-8)}.bytes())
	add("alg-es256-of-ed25519-key", "alg", "67", "alg -9 over an Ed25519 key", sign1{key: runner, alg: num(es256Alg)}.bytes())
	add("alg-hmac-public-key", "alg", "67", "HMAC-SHA512 with the public key as secret", sign1{key: runner, alg: num(7), resign: func(tbs []byte) []byte {
		m := hmac.New(sha512.New, runner.pub())
		m.Write(tbs)
		return m.Sum(nil)
	}}.bytes())
	add("alg-rs1", "alg", "68", "RSA with SHA-1 (-65535)", sign1{key: runner, alg: num(-65535)}.bytes())
	add("alg-float", "alg", "60", "-19.0", sign1{key: runner, alg: []byte{0xf9, 0xcc, 0xc0}}.bytes())
	add("alg-text", "alg", "60", `"-19"`, sign1{key: runner, alg: tstr("-19")}.bytes())
	add("alg-true", "alg", "60", "true", sign1{key: runner, alg: []byte{0xf5}}.bytes())
	add("alg-bignum", "cbor", "60", "-19 as bignum", sign1{key: runner, alg: []byte{0xc3, 0x41, 0x12}}.bytes())
	add("alg-non-shortest", "canonical", "60", "-19 in two bytes", sign1{key: runner, alg: []byte{0x38, 0x12}}.bytes())

	add("kid-short", "kid", "", "31 bytes", sign1{key: runner, kid: bstr(runner.kid()[:31])}.bytes())
	add("kid-text", "kid", "60", "kid as text", sign1{key: runner, kid: tstr(string(bytes.Repeat([]byte{'a'}, 32)))}.bytes())
	add("kid-of-attacker", "kid", "70", "signed and named by a key that is not pinned", sign1{key: attacker, claims: d.claims}.bytes())
	add("kid-trusted-key-attacker", "signature", "70", "attacker's signature under the trusted kid", sign1{key: attacker, kid: d.kid, claims: d.claims}.bytes())
	add("iss-other", "issuer", "", "another issuer, signed by the right key", sign1{key: runner, claims: pairs(num(1), tstr("evals.example/other"), num(2), tstr(runID))}.bytes())
	add("iss-with-space", "issuer", "", "an issuer that is no key name", sign1{key: runner, claims: pairs(num(1), tstr("evals example"), num(2), tstr(runID))}.bytes())
	add("iss-invalid-utf8", "header", "61", "iss with byte ff", sign1{key: runner, claims: pairs(num(1), tstr("evals\xff"), num(2), tstr(runID))}.bytes())
	add("sub-missing", "header", "", "no sub", sign1{key: runner, claims: pairs(num(1), tstr(runner.name))}.bytes())
	add("sub-empty", "header", "", "empty sub", sign1{key: runner, claims: pairs(num(1), tstr(runner.name), num(2), tstr(""))}.bytes())
	add("sub-control", "header", "61", "NUL in sub", sign1{key: runner, claims: pairs(num(1), tstr(runner.name), num(2), tstr("a\x00b"))}.bytes())
	add("sub-number", "header", "60", "sub as number", sign1{key: runner, claims: pairs(num(1), tstr(runner.name), num(2), num(7))}.bytes())
	add("claims-unknown", "header", "62", "claim 4 (exp)", sign1{key: runner, claims: pairs(num(1), tstr(runner.name), num(2), tstr(runID), num(4), num(1))}.bytes())
	add("claims-audience", "header", "62", "claim 3 (aud), text like the others", sign1{key: runner, claims: pairs(num(1), tstr(runner.name), num(2), tstr(runID), num(3), tstr("x"))}.bytes())
	add("claims-twice", "header", "59", "claim 2 twice", sign1{key: runner, claims: pairs(num(1), tstr(runner.name), num(2), tstr(runID), num(2), tstr(runID))}.bytes())
	add("claims-unsorted", "canonical", "60", "claims 2 and 1 swapped", sign1{key: runner, claims: pairs(num(2), tstr(runID), num(1), tstr(runner.name))}.bytes())
	add("typ-of-sealed-set", "type", "", "a receipt that says it is a sealed set", sign1{key: runner, typ: tstr(typSealed)}.bytes())
	add("content-type-json", "type", "", "another content type", sign1{key: runner, contentType: tstr("application/json")}.bytes())
	add("content-type-number", "type", "60", "content type as CoAP number", sign1{key: runner, contentType: num(50)}.bytes())
	add("unprotected-receipts", "unprotected", "", "label 394, not read by this version", sign1{key: runner, unprotected: pairs(num(394), cat(head(4, 1), bstr([]byte{0xd2})))}.bytes())
	add("unprotected-null", "unprotected", "", "null instead of the empty map", sign1{key: runner, unprotected: []byte{0xf6}}.bytes())

	add("context-signature", "signature", "69", `signed in COSE_Sign's context`, sign1{key: runner, context: "Signature"}.bytes())
	add("context-countersignature", "signature", "69", "signed in the context of a countersignature", sign1{key: runner, context: "CounterSignature0"}.bytes())
	add("external-aad", "signature", "69", "signed with external data", sign1{key: runner, external: []byte{1}}.bytes())
	add("signature-empty", "signature", "", "no signature bytes", sign1{key: runner, signature: bstr(nil)}.bytes())
	add("signature-63-bytes", "signature", "", "last byte missing", sign1{key: runner, resign: func(t []byte) []byte { return runner.sign(t)[:63] }}.bytes())
	add("signature-65-bytes", "signature", "", "a zero after it", sign1{key: runner, resign: func(t []byte) []byte { return append(runner.sign(t), 0) }}.bytes())
	add("ed25519-s-plus-l", "signature", "72", "S + L", sign1{key: runner, resign: func(t []byte) []byte { return sPlusL(runner.sign(t)) }}.bytes())
	neutral := append([]byte{1}, make([]byte, 31)...)
	add("ed25519-low-order-r", "signature", "72", "R is the neutral element; the equation holds", sign1{key: runner, resign: func(t []byte) []byte { return runner.nonceZero(t, neutral) }}.bytes())
	notOne := append(append([]byte{0xee}, bytes.Repeat([]byte{0xff}, 30)...), 0x7f)
	add("ed25519-non-canonical-r", "signature", "72", "R is the neutral element, with y = p+1", sign1{key: runner, resign: func(t []byte) []byte { return runner.nonceZero(t, notOne) }}.bytes())

	pinned = runnerEC
	e := sign1{key: runnerEC}
	add("ok-receipt-es256", "ok", "", "a receipt, ECDSA P-256", e.bytes())
	add("alg-ed25519-of-es256-key", "alg", "67", "alg -19 over a P-256 key", sign1{key: runnerEC, alg: num(ed25519Alg)}.bytes())
	add("alg-es256-7", "alg", "67", "deprecated ES256 (-7): the curve is not said", sign1{key: runnerEC, alg: num(-7)}.bytes())
	add("es256-high-s", "signature", "72", "(r, n-s)", sign1{key: runnerEC, resign: func(t []byte) []byte { return raw(runnerEC.rs(t, true)) }}.bytes())
	add("es256-der", "signature", "", "DER instead of r || s", sign1{key: runnerEC, resign: runnerEC.signDER}.bytes())
	add("es256-zero", "signature", "72", "r = s = 0", sign1{key: runnerEC, signature: bstr(make([]byte, 64))}.bytes())

	kind, pinned = "sealed set", owner
	add("ok-sealed-set-ed25519", "ok", "", "a sealed set, Ed25519", sign1{key: owner, sealed: true}.bytes())
	add("sealed-set-typ-of-receipt", "type", "", "a sealed set that says it is a receipt", sign1{key: owner, sealed: true, typ: tstr(typReceipt)}.bytes())
	add("sealed-set-signed-by-runner", "kid", "", "sealed by the runner", sign1{key: runner, sealed: true}.bytes())
	pinned = ownerEC
	add("ok-sealed-set-es256", "ok", "", "a sealed set, ECDSA P-256", sign1{key: ownerEC, sealed: true}.bytes())
	return out
}

// crit puts label 2 in its place. extra adds label 99, so that the listed label
// is there.
func crit(d sign1, list []byte, extra bool) sign1 {
	kv := [][]byte{num(1), d.alg, num(2), list, num(3), d.contentType, num(4), d.kid, num(15), d.claims, num(16), d.typ}
	if extra {
		kv = append(kv, num(99), num(0))
	}
	return sign1{key: d.key, protected: pairs(kv...)}
}
