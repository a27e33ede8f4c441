package proof_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cleanrun-dev/cleanrun/tlog/proof"
)

func TestLogProof(t *testing.T) {
	log := newSigner(t, logName, "log")
	for n := 1; n <= 20; n++ {
		d := leaves(n)
		note := signNote(t, log, uint64(n), mth(d))
		for i := range d {
			p := &proof.LogProof{Index: uint64(i), Path: inclusionPath(i, d), Checkpoint: note}
			data := proof.FormatLogProof(p)
			got, err := proof.ParseLogProof(data)
			if err != nil || !reflect.DeepEqual(got, p) {
				t.Fatalf("entry %d of %d: got %+v, %v, want %+v", i, n, got, err, p)
			}
			c := verify(t, got.Checkpoint, log.Public()).Checkpoint()
			if err := proof.Inclusion(got.Index, c.Size, d[i], got.Path, c.Root); err != nil {
				t.Errorf("entry %d of %d: %v", i, n, err)
			}
		}
	}
}

// Each case is a good file with one fault.
func TestParseLogProofRefuses(t *testing.T) {
	log := newSigner(t, logName, "log")
	d := leaves(11)
	note := signNote(t, log, 11, mth(d))
	path := inclusionPath(5, d)
	good := string(proof.FormatLogProof(&proof.LogProof{Index: 5, Path: path, Checkpoint: note}))
	hash := base64.StdEncoding.EncodeToString(path[1][:])
	swap := func(old, new string) string {
		if strings.Count(good, old) != 1 {
			t.Fatalf("%q is %d times in the file", old, strings.Count(good, old))
		}
		return strings.Replace(good, old, new, 1)
	}
	if !strings.HasPrefix(good, "c2sp.org/tlog-proof@v1\nindex 5\n") {
		t.Errorf("got\n%s", good)
	}
	for _, c := range []struct {
		name, data string
		stage      proof.Stage
		says       string
	}{
		{"nothing", "", proof.StageLogProof, "tlog-proof@v1"},
		{"another version", swap("@v1", "@v2"), proof.StageLogProof, "tlog-proof@v1"},
		{"a byte order mark", "\ufeff" + good, proof.StageLogProof, "tlog-proof@v1"},
		{"a checkpoint alone", string(note), proof.StageLogProof, "tlog-proof@v1"},
		{"extra data", swap("index", "extra AAAA\nindex"), proof.StageLogProof, "extra"},
		{"no index", swap("index 5\n", ""), proof.StageLogProof, "index"},
		{"the index twice", swap("index 5\n", "index 5\nindex 5\n"), proof.StageLogProof, "hash"},
		{"a leading zero", swap("index 5", "index 05"), proof.StageLogProof, "leading zeros"},
		{"a sign", swap("index 5", "index +5"), proof.StageLogProof, "leading zeros"},
		{"two spaces", swap("index 5", "index  5"), proof.StageLogProof, "leading zeros"},
		{"2^64", swap("index 5", "index 18446744073709551616"), proof.StageLogProof, "2^64"},
		{"a hash in hex", swap(hash, fmt.Sprintf("%x", path[1])), proof.StageLogProof, "hash"},
		{"a hash of 31 bytes", swap(hash, base64.StdEncoding.EncodeToString(path[1][:31])), proof.StageLogProof, "hash"},
		{"a hash with other bits in the padding", swap(hash, spoil(hash)), proof.StageLogProof, "hash"},
		{"a hash of an unpadded spelling", swap(hash, strings.TrimRight(hash, "=")), proof.StageLogProof, "hash"},
		{"a space after a hash", swap(hash, hash+" "), proof.StageLogProof, "hash"},
		{"carriage returns", strings.ReplaceAll(good, "\n", "\r\n"), proof.StageLogProof, "tlog-proof@v1"},
		{"no empty line", strings.Replace(good, "\n\n", "\n", 1), proof.StageLogProof, ""},
		{"two empty lines", strings.Replace(good, "\n\n", "\n\n\n", 1), proof.StageCheckpoint, "empty line 1"},
		{"no checkpoint", good[:strings.Index(good, "\n\n")+2], proof.StageNote, "no empty line"},
		{"a checkpoint without a signature", good[:strings.LastIndex(good, "\n\n")+2], proof.StageNote, "no signature"},
		{"an empty line at the end", good + "\n", proof.StageNote, ""},
		{"65 hashes", swap(hash+"\n", strings.Repeat(hash+"\n", 65)), proof.StageSize, "at most 64"},
		{"a huge file", good + strings.Repeat("x", proof.MaxLogProof), proof.StageSize, "bytes"},
	} {
		p, err := proof.ParseLogProof([]byte(c.data))
		wantError(t, c.name, err, c.stage, c.says)
		if p != nil {
			t.Errorf("%s: got a value with the error", c.name)
		}
	}
}

// A proof is good for one entry at one place of one tree.
func TestRT76_ProofOfAnotherEntry(t *testing.T) {
	d := leaves(11)
	root, path := mth(d), inclusionPath(5, d)
	if err := proof.Inclusion(5, 11, d[5], path, root); err != nil {
		t.Fatalf("the control: %v", err)
	}
	inner := mth(d[4:6]) // stands where a tree of another size has a leaf
	changed := slices.Clone(path)
	changed[2][31] ^= 1
	for _, c := range []struct {
		name        string
		index, size uint64
		leaf        [32]byte
		path        [][32]byte
		root        [32]byte
		stage       proof.Stage
	}{
		{"another entry", 5, 11, d[4], path, root, proof.StageRoot},
		{"another index", 4, 11, d[5], path, root, proof.StageRoot},
		{"a changed hash", 5, 11, d[5], changed, root, proof.StageRoot},
		{"another root", 5, 11, d[5], path, mth(d[:10]), proof.StageRoot},
		{"an index beyond the size", 11, 11, d[5], path, root, proof.StagePath},
		{"a larger size", 5, 17, d[5], path, root, proof.StagePath},
		{"no tree", 0, 0, d[5], nil, root, proof.StagePath},
		{"a hash too many", 5, 11, d[5], append(slices.Clone(path), root), root, proof.StagePath},
		{"a hash too few", 5, 11, d[5], path[:len(path)-1], root, proof.StagePath},
		{"no path", 5, 11, d[5], nil, root, proof.StagePath},
		{"an inner node for an entry", 5, 11, inner, path[1:], root, proof.StagePath},
		{"a path in a tree of one entry", 0, 1, d[5], path[:1], root, proof.StagePath},
		{"the root as the entry of a tree of one", 0, 1, d[5], nil, root, proof.StageRoot},
	} {
		wantError(t, c.name, proof.Inclusion(c.index, c.size, c.leaf, c.path, c.root), c.stage, "")
	}
}

// Two checkpoints of one size and two roots cannot be of one tree, nor can two
// sizes that no proof connects.
func TestRT78_SplitViewIsNotConsistent(t *testing.T) {
	d := leaves(11)
	other := leaves(11)
	other[2][0] ^= 1
	path := consistencyPath(6, d, true)
	for n := 1; n <= 11; n++ { // the control
		if err := proof.Consistency(uint64(n), 11, consistencyPath(n, d, true), mth(d[:n]), mth(d)); err != nil {
			t.Errorf("%d to 11: %v", n, err)
		}
	}
	for _, c := range []struct {
		name         string
		older, newer uint64
		path         [][32]byte
		a, b         [32]byte
		stage        proof.Stage
	}{
		{"one size, two roots", 11, 11, nil, mth(d), mth(other), proof.StageRoot},
		{"an older tree of the other view", 6, 11, path, mth(other[:6]), mth(d), proof.StageRoot},
		{"a newer tree of the other view", 6, 11, path, mth(d[:6]), mth(other), proof.StageRoot},
		{"a newer tree of the other view, with its proof", 6, 11, consistencyPath(6, other, true), mth(d[:6]), mth(other), proof.StageRoot},
		{"a complete older tree of the other view", 4, 11, consistencyPath(4, d, true), mth(other[:4]), mth(d), proof.StageRoot},
		{"sizes exchanged", 11, 6, path, mth(d), mth(d[:6]), proof.StagePath},
		{"from nothing", 0, 11, nil, mth(nil), mth(d), proof.StagePath},
		{"nothing to nothing", 0, 0, nil, mth(nil), mth(nil), proof.StagePath},
		{"a hash too many", 6, 11, append(slices.Clone(path), mth(d)), mth(d[:6]), mth(d), proof.StagePath},
		{"a hash too few", 6, 11, path[:len(path)-1], mth(d[:6]), mth(d), proof.StagePath},
		{"no path", 6, 11, nil, mth(d[:6]), mth(d), proof.StagePath},
		{"a path for one size", 11, 11, path, mth(d), mth(d), proof.StagePath},
	} {
		wantError(t, c.name, proof.Consistency(c.older, c.newer, c.path, c.a, c.b), c.stage, "")
	}
}

// Parsing keeps nothing of the caller's bytes that it could change later.
func TestParsedProofIsItsOwn(t *testing.T) {
	log := newSigner(t, logName, "log")
	note := signNote(t, log, 1, mth(leaves(1)))
	data := proof.FormatLogProof(&proof.LogProof{Checkpoint: note})
	p, err := proof.ParseLogProof(data)
	if err != nil {
		t.Fatal(err)
	}
	u, err := proof.ParseCheckpoint(p.Checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	for i := range data {
		data[i] = 'x'
	}
	if !bytes.Equal(p.Checkpoint, note) || !bytes.Equal(u.Note(), note) {
		t.Error("the value changed with the caller's bytes")
	}
	u.Note()[0] = 'x'
	if !bytes.Equal(u.Note(), note) {
		t.Error("the value changed with what it gave away")
	}
}
