package benchmark

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/merkle"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

// A Sealed is an open benchmark seal, b.sealed (spec/benchmark.md). Its frame,
// its order and its root have been checked, the owner's signature has not:
// verify holds each part to the owner's pinned key.
type Sealed struct {
	f      *os.File
	signed []byte // COSE_Sign1 of the head
	by     *receipt.Unverified
	head   *contraband.Head
	sets   []sealedSet // ascending by task
}

type sealedSet struct {
	task   string
	offset int64
	size   int
	leaf   [32]byte
}

// OpenSealed opens a benchmark seal and goes through all its sets once. It keeps
// some 100 bytes a task in memory.
func OpenSealed(path string) (*Sealed, error) {
	f, err := regular.Given(path)
	if err != nil {
		return nil, err
	}
	s := &Sealed{f: f}
	if err := s.read(bufio.NewReaderSize(f, 1<<20)); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return s, nil
}

// IsSealed tells whether a file begins as a benchmark seal does: with a byte
// string. A single task's file begins with a tag or an array.
func IsSealed(start []byte) bool { return len(start) > 0 && start[0]>>5 == 2 }

func (s *Sealed) read(r *bufio.Reader) error {
	var at int64
	signed, n, err := readBytes(r, receipt.MaxBenchmark)
	if err != nil {
		return fmt.Errorf("head: %w", err)
	}
	at += n
	if s.by, err = receipt.ParseSign1(receipt.KindBenchmark, signed); err != nil {
		return err
	}
	said := s.by.Unauthenticated()
	if s.head, err = contraband.ParseHead(said.Payload); err != nil {
		return err
	}
	if said.Subject != s.head.Benchmark {
		return fmt.Errorf("sub of the benchmark seal: got %.200q, want %.200q", said.Subject, s.head.Benchmark)
	}
	s.signed = signed
	var tree merkle.Tree
	for i := range s.head.Tasks {
		payload, n, err := readBytes(r, receipt.MaxSealedSet)
		if err != nil {
			return fmt.Errorf("set %d of %d: %w", i, s.head.Tasks, err)
		}
		set, err := contraband.ParseSet(payload)
		if err != nil {
			return fmt.Errorf("set %d of %d: %w", i, s.head.Tasks, err)
		}
		if set.Benchmark != s.head.Benchmark || set.Period != s.head.Period {
			return fmt.Errorf("set %d: got benchmark %.200q, period %.200q, want %.200q, period %.200q", i, set.Benchmark, set.Period, s.head.Benchmark, s.head.Period)
		}
		if i > 0 && s.sets[i-1].task >= set.Task {
			return fmt.Errorf("set %d: got task %.200q after %.200q, want them ascending, each once", i, set.Task, s.sets[i-1].task)
		}
		leaf := [32]byte(rfc6962.DefaultHasher.HashLeaf(payload))
		tree.Push(leaf)
		s.sets = append(s.sets, sealedSet{task: set.Task, offset: at + n - int64(len(payload)), size: len(payload), leaf: leaf})
		at += n
	}
	if _, err := r.ReadByte(); err != io.EOF {
		return fmt.Errorf("got bytes after the last of %d sets, want none", s.head.Tasks)
	}
	if got := tree.Root(); got != s.head.Root {
		return fmt.Errorf("root: got %x over the sets, want %x, as in the head: a set was changed, or is another benchmark's", got[:8], s.head.Root[:8])
	}
	return nil
}

// readBytes reads one CBOR byte string in its shortest encoding, and returns how
// many bytes of the file it took.
func readBytes(r *bufio.Reader, most int) (data []byte, n int64, err error) {
	first, err := r.ReadByte()
	if err != nil {
		return nil, 0, cut(err)
	}
	size, least := uint64(first&31), uint64(0)
	if first>>5 != 2 || first&31 > 27 {
		return nil, 0, fmt.Errorf("got byte %02x, want a byte string", first)
	}
	n = 1
	if first&31 >= 24 {
		width := 1 << (first&31 - 24)
		least = []uint64{24, 1 << 8, 1 << 16, 1 << 32}[first&31-24]
		size = 0
		for range width {
			b, err := r.ReadByte()
			if err != nil {
				return nil, 0, cut(err)
			}
			size = size<<8 | uint64(b)
			n++
		}
	}
	if size < least {
		return nil, 0, errors.New("got a length that is not in its shortest encoding")
	}
	if size > uint64(most) {
		return nil, 0, fmt.Errorf("got %d bytes, want at most %d", size, most)
	}
	// A length is a claim: memory is taken as the bytes come.
	data, err = io.ReadAll(io.LimitReader(r, int64(size)))
	if err == nil && uint64(len(data)) < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, 0, cut(err)
	}
	return data, n + int64(size), nil
}

func cut(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the file is cut short")
	}
	return err
}

// bytesHead is the frame of a CBOR byte string of n bytes.
func bytesHead(n int) []byte {
	switch {
	case n < 24:
		return []byte{0x40 | byte(n)}
	case n < 1<<8:
		return []byte{0x58, byte(n)}
	case n < 1<<16:
		return []byte{0x59, byte(n >> 8), byte(n)}
	}
	return []byte{0x5a, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}
}

// Close closes the file.
func (s *Sealed) Close() error { return s.f.Close() }

// Head is what the owner signed. The signature is not checked.
func (s *Sealed) Head() *contraband.Head { return s.head }

// Signed is the COSE_Sign1 of the head.
func (s *Sealed) Signed() []byte { return s.signed }

// Unverified is Signed, parsed: Verify checks it against a pinned key.
func (s *Sealed) Unverified() *receipt.Unverified { return s.by }

// Tasks are the names of the sealed tasks, ascending.
func (s *Sealed) Tasks() []string {
	names := make([]string, len(s.sets))
	for i := range s.sets {
		names[i] = s.sets[i].task
	}
	return names
}

func (s *Sealed) find(task string) (int, error) {
	i := sort.Search(len(s.sets), func(i int) bool { return s.sets[i].task >= task })
	if i == len(s.sets) || s.sets[i].task != task {
		return 0, fmt.Errorf("got the task %.200q, want one of the %d that %q seals", task, len(s.sets), s.head.Benchmark)
	}
	return i, nil
}

// Set reads the sealed set of one task, and its payload.
func (s *Sealed) Set(task string) (*contraband.Set, []byte, error) {
	i, err := s.find(task)
	if err != nil {
		return nil, nil, err
	}
	payload := make([]byte, s.sets[i].size)
	if _, err := s.f.ReadAt(payload, s.sets[i].offset); err != nil {
		return nil, nil, err
	}
	if [32]byte(rfc6962.DefaultHasher.HashLeaf(payload)) != s.sets[i].leaf {
		return nil, nil, fmt.Errorf("%s changed while it was read; start again", s.f.Name())
	}
	set, err := contraband.ParseSet(payload)
	return set, payload, err
}

// Part cuts the file task.sealed of one task: the head, and its set with the
// proof that the head's root covers it (receipt.Part). It may be called from
// several goroutines.
func (s *Sealed) Part(task string) (file []byte, set *contraband.Set, err error) {
	set, payload, err := s.Set(task)
	if err != nil {
		return nil, nil, err
	}
	i, _ := s.find(task)
	path, err := s.path(i)
	if err != nil {
		return nil, nil, err
	}
	if err := s.head.Includes(set, payload, uint64(i), path); err != nil {
		return nil, nil, err
	}
	file, err = receipt.FormatPart(&receipt.Part{Head: s.signed, Index: uint64(i), Path: path, Set: payload})
	return file, set, err
}

// path is the inclusion proof of the i-th set (RFC 9162, section 2.1.3.1).
func (s *Sealed) path(i int) ([][32]byte, error) {
	nodes, err := proof.Inclusion(uint64(i), uint64(len(s.sets)))
	if err != nil {
		return nil, err
	}
	hashes := make([][]byte, len(nodes.IDs))
	for j, id := range nodes.IDs {
		from := id.Index << id.Level
		var tree merkle.Tree
		for k := from; k < min(from+1<<id.Level, uint64(len(s.sets))); k++ {
			tree.Push(s.sets[k].leaf)
		}
		root := tree.Root()
		hashes[j] = root[:]
	}
	hashes, err = nodes.Rehash(hashes, rfc6962.DefaultHasher.HashChildren)
	if err != nil {
		return nil, err
	}
	path := make([][32]byte, len(hashes))
	for j, h := range hashes {
		path[j] = [32]byte(h)
	}
	return path, nil
}
