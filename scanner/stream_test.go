//go:build unix

package scanner

import (
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/journal"
)

// TestRT39_SmallChunks: 40 bytes at a time on stdin, as they are and in base64.
func TestRT39_SmallChunks(t *testing.T) {
	key := testKey("rt39")
	s := seal(t, key)
	for name, text := range map[string]string{"raw": secret, "base64": wrapped(string(b64([]byte(secret))), 76)} {
		_, ids := reasons(t, s, key, recorded(t, s.set, nil, false, chunks(text, 40)...))
		if !slices.Contains(ids, attest.ReasonFragments) {
			t.Errorf("%s: got reasons %v, want %s", name, ids, attest.ReasonFragments)
		}
	}
	_, ids := reasons(t, s, key, recorded(t, s.set, nil, false, chunks(prose(8, 900), 40)...))
	if slices.ContainsFunc(ids, attest.ReasonDirty) {
		t.Errorf("control: got reasons %v for honest chunks", ids)
	}
}

// TestShingleBelongsToItsChunk: the secret comes in with the second of three
// chunks, and with no other.
func TestShingleBelongsToItsChunk(t *testing.T) {
	key := testKey("chunk")
	s := seal(t, key)
	dir := recorded(t, s.set, nil, false, stdin(prose(3, 300)), stdin(secret), stdin(prose(4, 300)))
	_, ev, _ := scanDir(t, dir, key, s.set, 1)
	salt := saltOf(t, dir)
	for i, want := range []bool{false, true, false} {
		n := 0
		e := entry(ev, i)
		for k := 0; k < len(e.Digests); k += 16 {
			for it := range s.items[contraband.ClassShingle] {
				if contraband.RunDigest(salt, it) == [16]byte(e.Digests[k:]) {
					n++
				}
			}
		}
		// The last window of a chunk reaches into the next one.
		if (n > 3) != want {
			t.Errorf("chunk %d: got %d shingles of the secret, want many: %v", i, n, want)
		}
	}
}

// TestContainerInChunks: a tar.gz on stdin is one container, however it is cut.
func TestContainerInChunks(t *testing.T) {
	key := testKey("stream")
	s := seal(t, key)
	z := gzipped(t, tarred(t, slices.Concat([]byte(secret), []byte(prose(70, 20000)))))
	dir := recorded(t, s.set, nil, false, chunks(string(z), 4096)...)
	ev, ids := reasons(t, s, key, dir)
	for r, e := range ev.Rows() {
		if e != nil && (e.Bounds != 0 || e.Opaque != 0) {
			t.Errorf("event %d: got bounds %x, %d opaque bytes, want none", r.Seq, e.Bounds, e.Opaque)
		}
	}
	if !slices.Contains(ids, attest.ReasonFragments) {
		t.Errorf("got reasons %v, want %s", ids, attest.ReasonFragments)
	}
	// With a byte before it, it is none any more.
	ev, _ = reasons(t, s, key, recorded(t, s.set, nil, false, chunks("x"+string(z), 4096)...))
	var opaque uint64
	for _, e := range ev.Rows() {
		if e != nil {
			opaque += e.Opaque
		}
	}
	if opaque == 0 {
		t.Error("got no opaque bytes of a stream that no view reads, want some")
	}
}

// TestPhasesOfAStreamAreApart: encoded text on stdin in the agent phase belongs
// to that phase, though the stream goes on in the grade phase, where nothing
// counts.
func TestPhasesOfAStreamAreApart(t *testing.T) {
	key := testKey("phases")
	s := seal(t, key)
	steps := chunks(wrapped(string(b64(gzipped(t, []byte(secret)))), 76), 100)
	late := stdin("now grade it\n")
	late.row.Phase = journal.PhaseGrade
	_, ids := reasons(t, s, key, recorded(t, s.set, nil, false, append(steps, late)...))
	if !slices.Contains(ids, attest.ReasonFragments) {
		t.Errorf("got reasons %v, want %s", ids, attest.ReasonFragments)
	}
	for i := range steps {
		steps[i].row.Phase = journal.PhaseGrade
	}
	_, ids = reasons(t, s, key, recorded(t, s.set, nil, false, append([]step{stdin("hello\n")}, steps...)...))
	if slices.ContainsFunc(ids, attest.ReasonDirty) {
		t.Errorf("control: got reasons %v for sealed text in the grade phase", ids)
	}
}

// TestRepetitiveChunkKeepsADigest: 200 equal letters make no shingle, and an
// entry with 200 canonical bytes and no digest would be malformed.
func TestRepetitiveChunkKeepsADigest(t *testing.T) {
	key := testKey("zeros")
	s := seal(t, key)
	zeros := strings.Repeat("0", 200)
	_, ev, _ := scanDir(t, recorded(t, s.set, nil, false, stdout(zeros), argv(zeros[:50]), open("/work/z", []byte(zeros))), key, s.set, 2)
	for i := range 3 {
		if e := entry(ev, i); len(e.Digests) == 0 || e.Canonical == 0 {
			t.Errorf("step %d: got %d digests of %d canonical bytes", i, len(e.Digests)/16, e.Canonical)
		}
	}
}

// TestRT47_DeclaredChannel: on a channel declared as the model's only canaries
// are looked for, and they are found, in views too.
func TestRT47_DeclaredChannel(t *testing.T) {
	key := testKey("rt47")
	s := seal(t, key)
	model := func(text string) step {
		x := stdin(text)
		x.row.Origin = journal.OriginModel
		return x
	}
	ev, ids := reasons(t, s, key, recorded(t, s.set, nil, true, model(secret), open("/work/ok", []byte(prose(3, 100)))))
	e := entry(ev, 0)
	if e.Declared != uint64(len(secret)) || e.Scanned != 0 || e.Canonical != 0 || len(e.Digests) != 0 {
		t.Errorf("got %+v, want a declared entry without digests", e)
	}
	if slices.ContainsFunc(ids, attest.ReasonDirty) {
		t.Errorf("control: got reasons %v for sealed text on a model channel", ids)
	}
	for name, text := range map[string]string{"clear": "x " + canary + " y", "base64": string(b64([]byte("some text around " + canary + " and after")))} {
		_, ids := reasons(t, s, key, recorded(t, s.set, nil, true, model(text)))
		if !slices.Contains(ids, attest.ReasonCanary) {
			t.Errorf("%s: got reasons %v, want %s", name, ids, attest.ReasonCanary)
		}
	}
}
