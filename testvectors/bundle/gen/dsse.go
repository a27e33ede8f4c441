package main

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
)

// pae is the DSSE pre-authentication encoding (DSSE protocol 1.0.2).
func pae(typ, body string) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(typ), typ, len(body), body)
}

// envelope is the parts of a DSSE envelope, as they stand in the JSON.
type envelope struct {
	payload, typ, keyid, sig string
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

func dsse(k *key, body string) envelope {
	return envelope{b64([]byte(body)), ctStatement, hex.EncodeToString(k.kid()), b64(k.signDER(pae(ctStatement, body)))}
}

func (e envelope) String() string {
	return fmt.Sprintf(`{"payload":"%s","payloadType":"%s","signatures":[%s]}`, e.payload, e.typ, e.signature())
}

func (e envelope) signature() string { return fmt.Sprintf(`{"keyid":"%s","sig":"%s"}`, e.keyid, e.sig) }

func dsseVectors() []vector {
	var out []vector
	pinned := runner
	add := func(name, stage, redteam, comment, text string) {
		out = append(out, vector{"dsse", name, stage, redteam, comment, [][2]string{{"key", pinned.vkey()}}, []byte(text)})
	}
	ok := dsse(runner, statement)
	edit := func(f func(*envelope)) string {
		e := ok
		f(&e)
		return e.String()
	}
	text := ok.String()
	sub := func(old, new string) string {
		if strings.Count(text, old) != 1 {
			panic("not exactly once: " + old)
		}
		return strings.Replace(text, old, new, 1)
	}

	add("ok-ed25519", "ok", "", "an envelope, Ed25519", text)
	add("empty", "size", "61", "no bytes", "")
	add("bom-before", "json", "61", "a byte order mark first", "\ufeff"+text)
	add("newline-after", "canonical", "61", "a newline at the end", text+"\n")
	add("nul-after", "canonical", "61", "a zero byte at the end", text+"\x00")
	add("object-after", "canonical", "61", "a second envelope after the first", text+text)
	add("space-before", "canonical", "65", "a space first", " "+text)
	add("space-inside", "canonical", "65", "a space after a colon", sub(`"payloadType":`, `"payloadType": `))
	add("order", "canonical", "60", "payloadType first", fmt.Sprintf(`{"payloadType":"%s","payload":"%s","signatures":[%s]}`, ok.typ, ok.payload, ok.signature()))
	add("payload-twice", "canonical", "59", "payload twice, the last one is signed", sub(`{"payload":`, `{"payload":"e30=","payload":`))
	add("keyid-twice", "canonical", "59", "keyid twice", sub(`{"keyid":`, `{"keyid":"00","keyid":`))
	add("field-case", "canonical", "59", `"Payload"`, sub(`{"payload":`, `{"Payload":`))
	add("field-unknown", "json", "62", "a fourth field", sub(`{"payload":`, `{"extra":0,"payload":`))
	add("field-unknown-in-signature", "json", "62", "a certificate beside the signature", sub(`{"keyid":`, `{"cert":"","keyid":`))
	add("field-missing", "json", "", "no payloadType", sub(`"payloadType":"`+ctStatement+`",`, ``))
	add("signature-null", "json", "60", "null as signature", sub(ok.signature(), "null"))
	add("payload-number", "json", "60", "payload as number", sub(`"`+ok.payload+`"`, "1.0"))
	add("invalid-utf8", "payload-type", "61", "byte ff in the payload type", sub("vnd.in-toto", "vnd.in\xfftoto"))
	add("nesting-deep", "json", "63", "a thousand nested arrays", sub(`[{"keyid"`, strings.Repeat("[", 1000)+`{"keyid"`))
	add("escaped-slash", "canonical", "65", `\/ in the payload type`, sub("application/", `application\/`))
	add("escaped-letter", "canonical", "65", `\u0061 in the payload type`, sub(`"application/`, `"\u0061pplication/`))

	add("payload-type-changed", "payload-type", "64", "another type under the old signature", edit(func(e *envelope) { e.typ = "application/json" }))
	add("payload-type-signed", "payload-type", "64", "another type, signed with it", edit(func(e *envelope) {
		e.typ = "application/vnd.in-toto.link+json"
		e.sig = b64(runner.sign(pae(e.typ, statement)))
	}))
	add("payload-empty", "payload", "", "an empty payload, signed", dsse(runner, "").String())
	add("payload-changed", "signature", "", "one payload byte changed", edit(func(e *envelope) {
		e.payload = b64(bytes.Replace([]byte(statement), []byte("test"), []byte("tesu"), 1))
	}))
	add("signature-over-payload", "signature", "69", "signed without the DSSE prefix", edit(func(e *envelope) { e.sig = b64(runner.sign([]byte(statement))) }))

	url := strings.NewReplacer("+", "-", "/", "_").Replace(ok.payload)
	if url == ok.payload {
		panic("the payload has no character that differs in base64url")
	}
	add("base64-url", "base64", "65", "payload in the URL alphabet", edit(func(e *envelope) { e.payload = url }))
	add("base64-space", "base64", "65", "a space in the payload", edit(func(e *envelope) { e.payload = e.payload[:8] + " " + e.payload[8:] }))
	add("base64-line-break", "canonical", "65", "CR LF in the payload", edit(func(e *envelope) { e.payload = e.payload[:8] + `\r\n` + e.payload[8:] }))
	padded := dsse(runner, statement+" ")
	if !strings.HasSuffix(padded.payload, "=") || strings.HasSuffix(padded.payload, "==") {
		padded = dsse(runner, statement+"  ")
	}
	loose := padded
	loose.payload = strings.TrimRight(loose.payload, "=")
	add("base64-padding-missing", "base64", "65", "no padding", loose.String())
	bits := padded
	i := strings.Index(bits.payload, "=") - 1
	bits.payload = bits.payload[:i] + string(rune(bits.payload[i]+1)) + bits.payload[i+1:]
	add("base64-stray-bits", "base64", "65", "bits behind the last byte", bits.String())
	add("base64-stray-bits-in-signature", "base64", "65", "bits behind the last byte of the signature", edit(func(e *envelope) {
		i := len(e.sig) - 3
		e.sig = e.sig[:i] + string(rune(e.sig[i]+1)) + e.sig[i+1:]
	}))

	add("signatures-none", "signatures", "73", "an empty list", sub(ok.signature(), ""))
	add("signatures-two", "signatures", "", "the same signature twice", sub(ok.signature(), ok.signature()+","+ok.signature()))
	add("keyid-upper-case", "canonical", "65", "keyid in upper case", edit(func(e *envelope) { e.keyid = strings.ToUpper(e.keyid) }))
	add("keyid-empty", "kid", "", "no keyid", edit(func(e *envelope) { e.keyid = "" }))
	add("keyid-of-attacker", "kid", "70", "signed and named by a key that is not pinned", dsse(attacker, statement).String())
	add("keyid-trusted-key-attacker", "signature", "70", "attacker's signature under the trusted keyid", edit(func(e *envelope) { e.sig = dsse(attacker, statement).sig }))
	add("ed25519-s-plus-l", "signature", "72", "S + L", edit(func(e *envelope) { e.sig = b64(sPlusL(runner.sign(pae(ctStatement, statement)))) }))
	one := append([]byte{1}, make([]byte, 31)...)
	add("ed25519-low-order-r", "signature", "72", "R is the neutral element", edit(func(e *envelope) { e.sig = b64(runner.nonceZero(pae(ctStatement, statement), one)) }))
	add("signature-short", "signature", "", "63 bytes", edit(func(e *envelope) { e.sig = b64(runner.sign(pae(ctStatement, statement))[:63]) }))

	pinned = runnerEC
	ok = dsse(runnerEC, statement)
	r, s := runnerEC.rs(pae(ctStatement, statement), false)
	add("ok-es256", "ok", "", "an envelope, ECDSA P-256 as DER", ok.String())
	add("es256-high-s", "signature", "72", "(r, n-s)", edit(func(e *envelope) { e.sig = b64(der(runnerEC.rs(pae(ctStatement, statement), true))) }))
	add("es256-raw", "signature", "", "r || s instead of DER", edit(func(e *envelope) { e.sig = b64(raw(r, s)) }))
	add("es256-r-plus-n", "signature", "72", "r + n", edit(func(e *envelope) { e.sig = b64(der(new(big.Int).Add(r, curveN), s)) }))
	add("es256-der-trailing", "signature", "61", "a byte after the DER", edit(func(e *envelope) { e.sig = b64(append(der(r, s), 0)) }))
	long := der(r, s)
	long = append([]byte{0x30, 0x81, long[1]}, long[2:]...)
	add("es256-der-long-length", "signature", "60", "DER length in two bytes", edit(func(e *envelope) { e.sig = b64(long) }))
	return out
}
