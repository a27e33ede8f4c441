package main

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/canon"
	"github.com/cleanrun-dev/cleanrun/journal"
	"github.com/cleanrun-dev/cleanrun/scope"
)

// A rate is a throughput of one of our own parts.
type rate struct {
	name, aim string
	measure   func(tmp string, repeat int) (Measure, error)
}

var rates = []rate{
	{"journal append", "200,000 rows/s", appendRate},
	{"journal check", "", checkRate},
	{"audit of 10,000 small receipts", "80% of the rate of their signature checks alone", auditRate},
	{"memory of an audit of 10,000 small receipts", "under 300 MB", auditMemory},
	{"seal of 500 tasks, 20 MB of ground truth", "40 MB/s a core", sealRate},
	{"compact proof, 1,000,000 digests, 2,048 sealed items", "under 50 ms, 600 KB", compactRate},
	{"logged receipt with three witnesses", "a third of its 23 signature checks alone", loggedRate},
	{"log served to 256 clients", "half of Tessera alone", servedRate},
	{"memory of a log's server at 100,000 entries", "under 200 MB", servedPeak},
	{"scan of novel text", "120 MB/s on one core, 1.8 times that on two", scanRate},
}

// journalRows is enough that a checkpoint at each end does not show.
const journalRows = 200_000

func startRow() journal.Start {
	roots := append(scope.SystemRoots(), scope.KernelRoots()...)
	roots = append(roots, scope.Root{Path: "/work", Mode: scope.WriteTree, Class: scope.Workspace})
	return journal.Start{Run: [16]byte{1}, Roots: roots, Workspace: "/work", Recorder: "bench", Backend: "bench"}
}

// fill writes a journal of reads of many files in some hundred directories. Each
// row is flushed to the kernel, as the broker does before it answers.
func fill(dir string) (time.Duration, error) {
	rows, err := os.Create(filepath.Join(dir, journal.RowsFile))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	details, err := os.Create(filepath.Join(dir, journal.DetailsFile))
	if err != nil {
		return 0, err
	}
	defer details.Close()
	start := time.Now()
	w, err := journal.NewWriter(journal.Config{
		Rows: rows, Details: details, Secret: journal.Secret{1}, Start: startRow(),
		SaveHead: func(text []byte) error { return os.WriteFile(filepath.Join(dir, journal.HeadFile), text, 0o600) },
		Clock:    func() uint64 { return uint64(time.Since(start)) },
	})
	if err != nil {
		return 0, err
	}
	sum := sha256.Sum256(nil)
	if err := w.Append(&journal.Row{Phase: journal.PhaseAgent, Op: journal.OpFork, Child: 1}, &journal.Detail{}); err != nil {
		return 0, err
	}
	began := time.Now()
	for i := range journalRows {
		row := journal.Row{Phase: journal.PhaseAgent, Proc: 1, Op: journal.OpOpen, Dir: journal.DirIn, Origin: journal.OriginInput,
			Flags: journal.FlagRead, Object: uint32(i%5000) + 1, Size: 1000}
		d := journal.Detail{Path: "/work/dir" + strconv.Itoa(i%300) + "/file" + strconv.Itoa(i%5000), SHA256: sum[:]}
		if err := w.Append(&row, &d); err != nil {
			return 0, err
		}
		if err := w.Flush(); err != nil {
			return 0, err
		}
	}
	d := time.Since(began)
	if err := w.Append(&journal.Row{Phase: journal.PhaseAgent, Proc: 1, Op: journal.OpExit}, &journal.Detail{}); err != nil {
		return 0, err
	}
	_, err = w.Final(journal.Final{Outcome: journal.Completed, Born: 1, Ended: 1}, nil)
	return d, errors.Join(err, w.Close())
}

func appendRate(tmp string, repeat int) (Measure, error) {
	var l []float64
	for range repeat {
		dir, err := os.MkdirTemp(tmp, "journal-")
		if err != nil {
			return Measure{}, err
		}
		d, err := fill(dir)
		if err := errors.Join(err, os.RemoveAll(dir)); err != nil {
			return Measure{}, err
		}
		l = append(l, journalRows/d.Seconds())
	}
	return Measure{Unit: "rows/s", Values: map[string]float64{"flushed row by row": median(l)}}, nil
}

func checkRate(tmp string, repeat int) (Measure, error) {
	dir, err := os.MkdirTemp(tmp, "journal-")
	if err != nil {
		return Measure{}, err
	}
	defer os.RemoveAll(dir)
	if _, err := fill(dir); err != nil {
		return Measure{}, err
	}
	var l []float64
	for range repeat {
		f, err := os.Open(filepath.Join(dir, journal.RowsFile))
		if err != nil {
			return Measure{}, err
		}
		c := journal.NewChecker()
		began := time.Now()
		rows := 0
		for line, err := range journal.Rows(bufio.NewReaderSize(f, 1<<20)) {
			if err == nil {
				_, err = c.Add(line.Raw)
			}
			if err != nil {
				return Measure{}, err
			}
			rows++
		}
		l = append(l, float64(rows)/time.Since(began).Seconds())
		if err := f.Close(); err != nil {
			return Measure{}, err
		}
		if s := c.Summary(); !s.Closed() {
			return Measure{}, errors.New("the journal is not closed")
		}
	}
	return Measure{Unit: "rows/s", Values: map[string]float64{"rules and tree": median(l)}}, nil
}

// novelText is text without repetition: each line is new to every memo.
func novelText(size int) []byte {
	r := rand.New(rand.NewSource(1))
	b := make([]byte, 0, size+100)
	for len(b) < size {
		b = fmt.Appendf(b, "func compute%d(input []byte, offset int) (result uint64, err error) { return %d ^ uint64(len(input)), nil }\n", r.Uint32(), r.Uint64())
	}
	return b[:size]
}

func scanRate(_ string, repeat int) (Measure, error) {
	const size = 32 << 20
	text := novelText(size)
	secret := sha256.Sum256([]byte("bench"))
	key, err := contraband.NewTaskKey(secret[:])
	if err != nil {
		return Measure{}, err
	}
	// 4,000 items, as a set of some 130 KB of ground truth has.
	filter := make([]uint32, 4096)
	for i := range filter {
		filter[i] = uint32(i) * 4093
	}
	fp := canon.New(key, filter)
	sink := func(contraband.Class, [32]byte) {}
	mb := func(n int, f func()) float64 {
		began := time.Now()
		f()
		return float64(n) / 1e6 / time.Since(began).Seconds()
	}
	times := map[string][]float64{}
	for range repeat {
		times["SHA-256 of the same bytes"] = append(times["SHA-256 of the same bytes"], mb(size, func() { sha256.Sum256(text) }))
		times["one core"] = append(times["one core"], mb(size, func() { fp.Object(text, false, sink) }))
		times["two cores"] = append(times["two cores"], mb(2*size, func() {
			var wg sync.WaitGroup
			for range 2 {
				f := fp.Clone()
				wg.Go(func() { f.Object(text, false, sink) })
			}
			wg.Wait()
		}))
	}
	m := Measure{Unit: "MB/s", Values: map[string]float64{}}
	for k, l := range times {
		m.Values[k] = median(l)
	}
	return m, nil
}
