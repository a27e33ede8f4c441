package main

// entry is a statement that a log takes, of a kind that carries its payload.
func entry(k *key, name string, content []byte) sign1 {
	typ := "application/cleanrun-" + name
	return sign1{key: k, typ: tstr(typ + "+cose"), contentType: tstr(typ + "+cbor"), content: content}
}

// hashEnvelope is one (RFC 9995): labels 258 and 259 in place of 3. A nil
// field takes the value that the specification asks for.
type hashEnvelope struct {
	key           *key
	typ, sub      string
	alg, preimage []byte
	digest        []byte
	middle        [][]byte // labels between 1 and 4
	tail          [][]byte // labels after 259
}

func (e hashEnvelope) bytes() []byte {
	kv := append([][]byte{num(1), num(e.key.alg)}, e.middle...)
	kv = append(kv, num(4), bstr(e.key.kid()), num(15), pairs(num(1), tstr(e.key.name), num(2), tstr(e.sub)), num(16), tstr(e.typ))
	if e.alg != nil {
		kv = append(kv, num(258), e.alg)
	}
	if e.preimage != nil {
		kv = append(kv, num(259), e.preimage)
	}
	return sign1{key: e.key, protected: pairs(append(kv, e.tail...)...), content: e.digest}.bytes()
}

func entryVectors() []vector {
	var out []vector
	kind, pinned := "SEAL entry", owner
	add := func(name, stage, redteam, comment string, data []byte) {
		out = append(out, vector{"cose", name, stage, redteam, comment, [][2]string{{"kind", kind}, {"key", pinned.vkey()}}, data})
	}
	const typSeal = "application/cleanrun-seal+cose"
	seal := hashEnvelope{key: owner, typ: typSeal, sub: taskID, alg: num(-16), preimage: tstr(typSealed), digest: leafHash([]byte("any digest"))}
	with := func(f func(e *hashEnvelope)) []byte {
		e := seal
		f(&e)
		return e.bytes()
	}
	add("ok-seal", "ok", "", "the digest of a sealed set", seal.bytes())
	add("ok-seal-benchmark", "ok", "", "the digest of a benchmark's head", with(func(e *hashEnvelope) { e.preimage, e.sub = tstr("application/cleanrun-benchmark+cose"), "tiny-bench" }))
	add("seal-hash-sha1", "alg", "68", "payload hash algorithm SHA-1 (-14)", with(func(e *hashEnvelope) { e.alg = num(-14) }))
	add("seal-hash-sha512", "alg", "68", "payload hash algorithm SHA-512 (-44)", with(func(e *hashEnvelope) { e.alg = num(-44) }))
	add("seal-hash-text", "alg", "60", `"-16"`, with(func(e *hashEnvelope) { e.alg = tstr("-16") }))
	add("seal-hash-missing", "header", "68", "no label 258: the payload is no digest", with(func(e *hashEnvelope) { e.alg = nil }))
	add("seal-preimage-missing", "header", "", "no label 259", with(func(e *hashEnvelope) { e.preimage = nil }))
	add("seal-preimage-of-receipt", "type", "", "the digest of a receipt", with(func(e *hashEnvelope) { e.preimage = tstr(typReceipt) }))
	add("seal-preimage-number", "type", "60", "a CoAP content format", with(func(e *hashEnvelope) { e.preimage = num(50) }))
	add("seal-content-type", "header", "", "label 3 in a hash envelope", with(func(e *hashEnvelope) { e.middle = [][]byte{num(3), tstr(ctSealed)} }))
	add("seal-location", "header", "62", "label 260, a place to fetch from", with(func(e *hashEnvelope) { e.tail = [][]byte{num(260), tstr("https://evil.example/x")} }))
	add("seal-digest-31-bytes", "payload", "21", "a digest of 31 bytes", with(func(e *hashEnvelope) { e.digest = e.digest[:31] }))
	add("seal-digest-33-bytes", "payload", "21", "a digest of 33 bytes", with(func(e *hashEnvelope) { e.digest = append(e.digest[:32:32], 0) }))
	add("seal-typ-of-sealed-set", "type", "69", "a hash envelope that says it is the set", with(func(e *hashEnvelope) { e.typ = typSealed }))
	add("seal-by-runner", "kid", "70", "signed by the runner", with(func(e *hashEnvelope) { e.key = runner }))
	add("seal-unprotected-location", "unprotected", "66", "label 260 in the unprotected header", sign1{key: owner, protected: pairs(num(1), num(owner.alg), num(4), bstr(owner.kid()), num(15), pairs(num(1), tstr(owner.name), num(2), tstr(taskID)), num(16), tstr(typSeal), num(258), num(-16), num(259), tstr(typSealed)), unprotected: pairs(num(260), tstr("x")), content: seal.digest}.bytes())

	pinned, kind = runner, "SUBMIT entry"
	submit := hashEnvelope{key: runner, typ: "application/cleanrun-submit+cose", sub: runID, alg: num(-16), preimage: tstr("application/cleanrun-submission+cose"), digest: seal.digest}
	add("ok-submit", "ok", "", "the digest of a submission", submit.bytes())
	submit.preimage = tstr(typSealed)
	add("submit-preimage-of-sealed-set", "type", "", "the digest of a sealed set", submit.bytes())

	payload := pairs(num(1), tstr("opaque to this layer"))
	for _, name := range []string{"register", "checkpoint", "final"} {
		kind = map[string]string{"register": "REGISTER entry", "checkpoint": "CHECKPOINT entry", "final": "FINAL entry"}[name]
		add("ok-"+name, "ok", "", "an entry "+name, entry(runner, name, payload).bytes())
		other := entry(runner, name, payload)
		other.typ = tstr(typReceipt)
		add(name+"-typ-of-receipt", "type", "69", "an entry that says it is a receipt", other.bytes())
		other = entry(runner, name, payload)
		other.contentType = tstr(ctStatement)
		add(name+"-content-type", "type", "", "the content type of a statement", other.bytes())
	}
	return out
}
