package main

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
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
	case n < 1<<32:
		return []byte{m | 26, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
	}
	return []byte{m | 27, byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

func num(n int64) []byte {
	if n < 0 {
		return head(1, uint64(-1-n))
	}
	return head(0, uint64(n))
}

func bstr(b []byte) []byte         { return cat(head(2, uint64(len(b))), b) }
func tstr(s string) []byte         { return cat(head(3, uint64(len(s))), []byte(s)) }
func array(items ...[]byte) []byte { return cat(head(4, uint64(len(items))), cat(items...)) }

// pairs is a map with its pairs as given.
func pairs(kv ...[]byte) []byte { return cat(head(5, uint64(len(kv)/2)), cat(kv...)) }

func sum(text string) []byte {
	h := sha256.Sum256([]byte(text))
	return h[:]
}

const media = "application/cleanrun-"

// sign1 signs a payload (RFC 9052, sections 4.2 and 4.4) under a protected
// header that is given as pairs.
func sign1(k *key, payload []byte, header ...[]byte) []byte {
	protected := pairs(header...)
	tbs := array(tstr("Signature1"), bstr(protected), bstr(nil), bstr(payload))
	return cat([]byte{0xd2}, array(bstr(protected), pairs(), bstr(payload), bstr(ed25519.Sign(k.secret, tbs))))
}

func claims(k *key, sub string) []byte { return pairs(num(1), tstr(k.name), num(2), tstr(sub)) }

// entry is a statement that carries its payload.
func entry(k *key, name, contentType, sub string, payload []byte) []byte {
	return sign1(k, payload, num(1), num(-19), num(3), tstr(contentType), num(4), bstr(k.kid()), num(15), claims(k, sub), num(16), tstr(media+name+"+cose"))
}

// envelope is a hash envelope (RFC 9995).
func envelope(k *key, name, sub, preimage string, digest []byte) []byte {
	return sign1(k, digest, num(1), num(-19), num(4), bstr(k.kid()), num(15), claims(k, sub), num(16), tstr(media+name+"+cose"),
		num(258), num(-16), num(259), tstr(media+preimage+"+cose"))
}

func seal(k *key, head string) []byte {
	return envelope(k, "seal", "tiny-bench", "benchmark", sum(head))
}

// runID gives each number a run id.
func runID(n byte) []byte { return append(bytes.Repeat([]byte{0xa0}, 15), n) }

// A registration is the payload of a REGISTER; values has the encoded ones that
// differ from those of run 1.
type registration struct {
	run    byte
	sub    string
	values map[int64][]byte
	absent int64  // key that is left out
	extra  []byte // a pair at the end
	swap   bool   // keys 5 and 6
}

func (r registration) payload() []byte {
	values := map[int64][]byte{
		1: tstr("cleanrun/register/v1"), 2: bstr(runID(r.run)), 3: tstr("tiny-bench"), 4: tstr("first-task"), 5: num(1), 6: num(int64(r.run)),
		7: bstr(sum("task.sealed")), 8: bstr(sum("head")), 9: bstr(sum("baseline")), 10: bstr(sum("scope")), 11: bstr(sum("agent 1.0")), 12: bstr(sum("model 2")),
		13: tstr("0.4.0"), 14: bstr(sum("start")),
	}
	for k, v := range r.values {
		values[k] = v
	}
	keys := []int64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	if r.swap {
		keys[4], keys[5] = 6, 5
	}
	var body []byte
	n := 0
	for _, k := range keys {
		if k != r.absent {
			body, n = cat(body, num(k), values[k]), n+1
		}
	}
	if r.extra != nil {
		body, n = cat(body, r.extra), n+1
	}
	return cat(head(5, uint64(n)), body)
}

func (r registration) by(k *key) []byte {
	sub := r.sub
	if sub == "" {
		sub = hex.EncodeToString(runID(r.run))
	}
	return entry(k, "register", media+"register+cbor", sub, r.payload())
}

func register(k *key, run byte) []byte { return registration{run: run}.by(k) }

// with is a REGISTER of run 1 with one other value.
func with(key int64, value []byte) []byte {
	return registration{run: 1, values: map[int64][]byte{key: value}}.by(runner)
}

func checkpointOf(k *key, run byte, payload []byte) []byte {
	return entry(k, "checkpoint", media+"checkpoint+cbor", hex.EncodeToString(runID(run)), payload)
}

func checkpoint(k *key, run byte, size int64, root string) []byte {
	return checkpointOf(k, run, pairs(num(1), tstr("cleanrun/checkpoint/v1"), num(2), num(size), num(3), bstr(sum(root))))
}

// count is a number of rows of a phase and operation.
func count(phase, op int64, n uint64) []byte { return array(num(phase), num(op), head(0, n)) }

func finalOf(k *key, run byte, size int64, root string, outcome, code int64, counts []byte) []byte {
	return entry(k, "final", media+"final+cbor", hex.EncodeToString(runID(run)), pairs(num(1), tstr("cleanrun/final/v1"), num(2), num(size), num(3), bstr(sum(root)),
		num(4), num(outcome), num(5), num(code), num(6), counts, num(7), num(1)))
}

func final(k *key, run byte, size int64, root string) []byte {
	return finalOf(k, run, size, root, 1, 0, array(count(0, 1, 1), count(1, 4, uint64(size-2))))
}

// statement is the in-toto statement of a receipt, in JCS.
func statement(run, root string, size int) string {
	return fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","predicate":{"asserted":{"agent":"agent 1.0","model":"model 2"},`+
		`"counts":{"activity":4,"authored":0,"canaries":0,"controls":16,"controlsSeen":16,"denied":0,"events":%d,"generated":0,"gradeOut":0,"gradeShared":0,"inbound":40,"named":0,"outOfScope":0,"processes":1},`+
		`"coverage":{"baseline":0,"canonical":7000,"declared":0,"opaque":0,"scanned":7000,"seen":7000},`+
		`"evidence":{"depth":6,"digests":109,"entries":"%[2]x","level":"full","sha256":"%[2]x","tree":"%[2]x"},"grader":"none","journal":{"root":"%[3]s","size":%[1]d},`+
		`"matches":{"classes":[],"first":[],"sha256":"%[2]x","total":0},"notCovered":[],"phases":[],"reasons":[],"recorder":{"backend":"none","blind":[],"version":"0.4.0"},`+
		`"run":{"attempt":1,"benchmark":"tiny-bench","exitCode":0,"id":"%[4]s","outcome":"completed","task":"first-task","trial":1},"scope":{"observe":false,"roots":[],"workspace":"/w"},`+
		`"seal":{"baseline":"%[2]x","commitment":"%[2]x","period":"","profile":"p","sha256":"%[2]x"},"verdict":"CLEAN"},`+
		`"predicateType":"https://cleanrun.dev/attestation/clean-run/v1","subject":[{"digest":{"sha256":"%[3]s"},"name":"cleanrun.dev/journal/%[4]s"}]}`,
		size, sum("any"), root, run)
}

func attestOf(k *key, run byte, text string) []byte {
	return entry(k, "receipt", "application/vnd.in-toto+json", hex.EncodeToString(runID(run)), []byte(text))
}

func attest(k *key, run byte, size int, root string) []byte {
	return attestOf(k, run, statement(hex.EncodeToString(runID(run)), hex.EncodeToString(sum(root)), size))
}

// submission is the in-toto statement of a submission without a receipt: a trial
// that was never made.
func submission() (id, text string) {
	root := hex.EncodeToString(sum("receipts"))
	total := `{"interval":{"high":"","low":"","method":"none"},"missing":1,"scored":0,"tasks":0,"unscored":0,"value":""}`
	return root[:32], fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","predicate":{"agent":{"files":[],"name":"agent 1.0"},`+
		`"benchmark":{"head":"%[1]x","name":"tiny-bench","root":"%[1]x","tasks":1,"weak":0},`+
		`"grid":[{"attempt":0,"bundle":"","reasons":[],"receipt":"","root":"","run":"","score":null,"state":"missing","task":"first-task","trial":1}],`+
		`"model":{"files":[],"name":"model 2"},"score":{"headline":"plain","k":0,"plain":%[2]s,"rule":"mean","ruled":%[2]s},"trials":1},`+
		`"predicateType":"https://cleanrun.dev/attestation/submission/v1","subject":[{"digest":{"sha256":"%[3]s"},"name":"cleanrun.dev/submission/%[4]s"}]}`,
		sum("any"), total, root, root[:32])
}
