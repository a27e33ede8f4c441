package main

import (
	"bytes"
	"fmt"
	"slices"
)

// A file is one member as a USTAR header (POSIX.1-1988) says it. Zero fields
// take the value that the specification asks for.
type file struct {
	name   string
	data   []byte
	size   string // 12 bytes
	mode   string // 8 bytes
	mtime  string // 12 bytes
	owner  string
	prefix string
	magic  string // 8 bytes
	kind   byte
	sum    string // 8 bytes
	pad    byte
}

func (f file) bytes() []byte {
	or := func(v, def string) string {
		if v == "" {
			return def
		}
		return v
	}
	h := make([]byte, 512)
	copy(h, f.name)
	copy(h[100:], or(f.mode, "0000644\x00"))
	copy(h[108:], "0000000\x00")
	copy(h[116:], "0000000\x00")
	copy(h[124:], or(f.size, fmt.Sprintf("%011o\x00", len(f.data))))
	copy(h[136:], or(f.mtime, "00000000000\x00"))
	h[156] = f.kind
	if f.kind == 0 {
		h[156] = '0'
	}
	copy(h[257:], or(f.magic, "ustar\x0000"))
	copy(h[265:], f.owner)
	copy(h[329:], "0000000\x00")
	copy(h[337:], "0000000\x00")
	copy(h[345:], f.prefix)
	copy(h[148:], "        ")
	n := 0
	for _, c := range h {
		n += int(c)
	}
	copy(h[148:], or(f.sum, fmt.Sprintf("%06o\x00 ", n)))
	pad := bytes.Repeat([]byte{f.pad}, (512-len(f.data)%512)%512)
	return cat(h, f.data, pad)
}

func tarball(files ...file) []byte {
	var out []byte
	for _, f := range files {
		out = append(out, f.bytes()...)
	}
	return append(out, make([]byte, 1024)...)
}

func bundleVectors() []vector {
	var out []vector
	var second *key
	add := func(name, stage, redteam, comment string, data []byte) {
		lines := [][2]string{{"runner", runner.vkey()}, {"owner", owner.vkey()}}
		if second != nil {
			lines = append(lines, [2]string{"second", second.vkey()})
		}
		out = append(out, vector{"bundle", name, stage, redteam, comment, lines, data})
	}
	rc := file{name: "receipt.cose", data: sign1{key: runner}.bytes()}
	st := file{name: "statement.dsse.json", data: []byte(dsse(runner, statement).String())}
	se := file{name: "task.sealed", data: sign1{key: owner, sealed: true}.bytes()}
	ev := file{name: "evidence.cbor", data: []byte("opaque to this layer")}
	r2 := file{name: "receipt2.cose", data: sign1{key: runnerEC}.bytes()}
	small := tarball(rc, st, se)
	with := func(f func(m []file)) []byte {
		m := []file{rc, st, se}
		f(m)
		return tarball(m...)
	}

	add("ok-small", "ok", "", "the three required members", small)
	add("ok-full", "ok", "", "every member", tarball(rc, st, se, ev, file{name: "proof.cbor", data: []byte{0x80}}, file{name: "log.tlog-proof", data: []byte("c2sp.org/tlog-proof@v1\n")}, file{name: "log.cbor", data: []byte{0xa0}}, file{name: "timestamp.tsr", data: bytes.Repeat([]byte{0x30}, 512)}, r2))
	add("empty", "not-a-bundle", "61", "no bytes", nil)
	add("text", "not-a-bundle", "", "a text file", []byte("this is no bundle\n"))
	add("gzip", "not-a-bundle", "", "begins as gzip does", append([]byte{0x1f, 0x8b, 8, 0}, small...))
	add("first-name-changed", "not-a-bundle", "", "Receipt.cose", with(func(m []file) { m[0].name = "Receipt.cose" }))
	add("gnu-magic", "not-a-bundle", "", "GNU tar's own format", with(func(m []file) { m[0].magic = "ustar  \x00" }))
	add("order", "member", "", "task.sealed before statement.dsse.json", tarball(rc, se, st))
	add("evidence-after-proof", "member", "", "evidence.cbor after proof.cbor", tarball(rc, st, se, file{name: "proof.cbor", data: []byte{0x80}}, ev))
	add("log-before-log-proof", "member", "", "log.cbor before log.tlog-proof", tarball(rc, st, se, file{name: "log.cbor", data: []byte{0xa0}}, file{name: "log.tlog-proof", data: []byte("c2sp.org/tlog-proof@v1\n")}))
	add("repeated", "member", "59", "statement.dsse.json twice", tarball(rc, st, st, se))
	add("unknown", "member", "62", "a member readme.txt", tarball(rc, st, se, file{name: "readme.txt", data: []byte("hi")}))
	add("path-up", "member", "", "a member ../evil", tarball(rc, st, se, file{name: "../evil", data: []byte("hi")}))
	add("statement-missing", "member", "73", "no DSSE", tarball(rc, se))
	add("sealed-missing", "member", "", "no sealed set", tarball(rc, st))
	add("evidence-empty", "member", "", "a member of no bytes", tarball(rc, st, se, file{name: "evidence.cbor"}))
	add("evidence-eight-gigabytes", "member", "63", "size of 8 GB in the header", tarball(rc, st, se, file{name: "evidence.cbor", size: "77777777777\x00"}))
	add("evidence-two-gigabytes", "tar", "63", "size of 2 GB in the header, no content", tarball(rc, st, se, file{name: "evidence.cbor", size: "20000000000\x00"}))
	add("mode", "tar", "", "mode 0600", with(func(m []file) { m[1].mode = "0000600\x00" }))
	add("time", "tar", "", "a modification time", with(func(m []file) { m[1].mtime = "00000000001\x00" }))
	add("owner", "tar", "", "an owner's name", with(func(m []file) { m[1].owner = "root" }))
	add("prefix", "tar", "", "a path prefix", with(func(m []file) { m[1].prefix = "a" }))
	add("symlink", "tar", "", "a symbolic link", with(func(m []file) { m[1].kind = '2' }))
	add("pax-header", "tar", "", "a pax header before the second member", tarball(rc, file{name: "statement.dsse.json", kind: 'x', data: []byte("20 path=evil.txt....\n")}, st, se))
	add("checksum", "tar", "", "a wrong checksum", with(func(m []file) { m[1].sum = "000000\x00 " }))
	add("size-with-space", "tar", "60", "size ended by a space", with(func(m []file) { m[1].size = fmt.Sprintf("%011o ", len(m[1].data)) }))
	add("size-base-256", "tar", "60", "size in base 256", with(func(m []file) { m[1].size = "\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01" }))
	add("padding", "tar", "", "padding of ones", with(func(m []file) { m[2].pad = 1 }))
	add("end-one-block", "tar", "61", "one end block", small[:len(small)-512])
	add("end-three-blocks", "tar", "61", "three end blocks", append(slices.Clone(small), make([]byte, 512)...))
	add("end-none", "tar", "61", "no end block", small[:len(small)-1024])
	add("end-not-zero", "tar", "61", "a byte in the last end block", append(slices.Clone(small[:len(small)-1]), 1))
	add("after-end", "tar", "61", "a byte after the end", append(slices.Clone(small), 0))
	add("cut", "tar", "61", "cut within the first member", small[:600])

	add("dsse-payload-differs", "payload", "74", "another statement in DSSE, signed by the runner", with(func(m []file) { m[1].data = []byte(dsse(runner, statement+" ").String()) }))
	add("dsse-by-owner", "kid", "70", "DSSE signed by the owner", with(func(m []file) { m[1].data = []byte(dsse(owner, statement).String()) }))
	add("receipt-by-attacker", "kid", "70", "receipt signed by a key that is not pinned", with(func(m []file) { m[0].data = sign1{key: attacker}.bytes() }))
	add("sealed-by-runner", "kid", "70", "sealed by the runner", with(func(m []file) { m[2].data = sign1{key: runner, sealed: true}.bytes() }))
	add("sealed-is-receipt", "type", "69", "the receipt in place of the sealed set", with(func(m []file) { m[2].data = rc.data }))

	second = runnerEC
	add("ok-second", "ok", "", "two required signatures", tarball(rc, st, se, r2))
	add("second-stripped", "size", "73", "the second required signature is gone", small)
	add("second-other-statement", "second", "74", "the second key signs another statement", tarball(rc, st, se, file{name: "receipt2.cose", data: sign1{key: runnerEC, content: []byte(statement + " ")}.bytes()}))
	add("second-other-run", "second", "", "the second key signs for another run", tarball(rc, st, se, file{name: "receipt2.cose", data: sign1{key: runnerEC, claims: pairs(num(1), tstr(runnerEC.name), num(2), tstr("ff"+runID[2:]))}.bytes()}))
	add("second-high-s", "signature", "72", "the second signature with s above n/2", tarball(rc, st, se, file{name: "receipt2.cose", data: sign1{key: runnerEC, resign: func(t []byte) []byte { return raw(runnerEC.rs(t, true)) }}.bytes()}))

	second = runner
	add("second-same-key", "second", "73", "the first receipt again", tarball(rc, st, se, file{name: "receipt2.cose", data: rc.data}))
	return out
}
