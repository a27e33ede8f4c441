package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
)

// servedVar makes this program a log's server: its value is the folder.
const servedVar = "CLEANRUN_BENCH_SERVE"

const (
	servedEntries = 4096
	servedClients = 256     // adding at a time
	servedMemory  = 100_000 // entries
)

type seeded struct {
	public  receipt.PublicKey
	private ed25519.PrivateKey
}

func newSeeded(name string) *seeded {
	seed := sha256.Sum256([]byte(name))
	k := ed25519.NewKeyFromSeed(seed[:])
	p, err := receipt.NewPublicKey(name, k.Public())
	if err != nil {
		panic(err) // a constant
	}
	return &seeded{p, k}
}

func (s *seeded) Public() receipt.PublicKey     { return s.public }
func (s *seeded) Sign(b []byte) ([]byte, error) { return ed25519.Sign(s.private, b), nil }

var servedLog, servedOwner, servedRunner = newSeeded("log.bench"), newSeeded("owner.bench"), newSeeded("runner.bench")

// servedStatements are a SEAL and the REGISTERs of n runs from a first one on.
func servedStatements(first, n int) ([][]byte, error) {
	seal, err := entry.SignSeal(servedOwner, entry.Seal{Subject: "bench", Of: receipt.KindBenchmark, Digest: sha256.Sum256(nil)})
	list := make([][]byte, 1, n+1)
	list[0] = seal
	for i := first; i < first+n && err == nil; i++ {
		run := sha256.Sum256(fmt.Appendf(nil, "run %d", i))
		var b []byte
		b, err = entry.SignRegister(servedRunner, entry.Register{Run: [16]byte(run[:16]), Benchmark: "bench", Task: "task", Trial: uint32(i + 1), Attempt: 1,
			Seal: run, Sealed: sha256.Sum256(nil), Recorder: "bench"})
		list = append(list, b)
	}
	return list, err
}

// addAtOnce calls add with each statement, from many goroutines.
func addAtOnce(clients int, statements [][]byte, add func([]byte) error) error {
	next := make(chan []byte)
	errs := make([]error, clients)
	var wg sync.WaitGroup
	for c := range clients {
		wg.Go(func() {
			for b := range next {
				if errs[c] == nil {
					errs[c] = add(b)
				}
			}
		})
	}
	for _, b := range statements {
		next <- b
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// fillLog makes a log with these entries, all published.
func fillLog(dir string, clients int, statements [][]byte) (time.Duration, error) {
	ctx := context.Background()
	if err := tlog.Init(ctx, dir, servedLog); err != nil {
		return 0, err
	}
	l, err := tlog.Open(ctx, dir, servedLog)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	err = addAtOnce(clients, statements, func(b []byte) error {
		i, err := l.Add(ctx, b)
		if err == nil {
			_, err = l.Wait(ctx, i)
		}
		return err
	})
	took := time.Since(began)
	return took, errors.Join(err, l.Close())
}

// servedRate compares entries that Tessera alone has added and published with those
// that a server acknowledged over HTTP, with as many adding at a time.
func servedRate(tmp string, repeat int) (Measure, error) {
	statements, err := servedStatements(0, servedEntries)
	if err != nil {
		return Measure{}, err
	}
	var raw, served []float64
	for range repeat {
		dir, err := os.MkdirTemp(tmp, "log-")
		if err != nil {
			return Measure{}, err
		}
		took, err := fillLog(filepath.Join(dir, "raw"), servedClients, statements)
		if err != nil {
			return Measure{}, err
		}
		raw = append(raw, servedEntries/took.Seconds())
		if _, err := fillLog(filepath.Join(dir, "served"), 1, statements[:1]); err != nil {
			return Measure{}, err
		}
		s, err := startServing(filepath.Join(dir, "served"))
		if err != nil {
			return Measure{}, err
		}
		began := time.Now()
		err = addAtOnce(servedClients, statements[1:], s.add)
		took = time.Since(began)
		if _, e := s.end(); err != nil || e != nil {
			return Measure{}, errors.Join(err, e)
		}
		served = append(served, servedEntries/took.Seconds())
		if err := os.RemoveAll(dir); err != nil {
			return Measure{}, err
		}
	}
	return Measure{Unit: "entries/s", Values: map[string]float64{"Tessera alone": median(raw), "served": median(served)}}, nil
}

// servedPeak is what a server of a log has resident, that it has read and added to.
func servedPeak(tmp string, _ int) (Measure, error) {
	statements, err := servedStatements(0, servedMemory)
	if err != nil {
		return Measure{}, err
	}
	dir := filepath.Join(tmp, "large-log")
	if _, err := fillLog(dir, 4096, statements); err != nil {
		return Measure{}, err
	}
	defer os.RemoveAll(dir)
	if statements, err = servedStatements(servedMemory, servedEntries); err != nil {
		return Measure{}, err
	}
	s, err := startServing(dir)
	if err != nil {
		return Measure{}, err
	}
	err = addAtOnce(servedClients, statements, s.add)
	peak, e := s.end()
	if err != nil || e != nil {
		return Measure{}, errors.Join(err, e)
	}
	return Measure{Unit: "MB", Values: map[string]float64{"most resident": peak}}, nil
}

// A serving is a server in a process of its own.
type serving struct {
	cmd    *exec.Cmd
	stop   io.Closer
	out    *bufio.Reader
	client *registry.Client
}

func startServing(dir string) (*serving, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), servedVar+"="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &serving{cmd: cmd, stop: in, out: bufio.NewReader(out)}
	url, err := s.out.ReadString('\n')
	if err == nil {
		s.client, err = registry.Dial(context.Background(), strings.TrimSpace(url), registry.DialOptions{HTTP: &http.Transport{MaxIdleConnsPerHost: servedClients}})
	}
	if err != nil {
		return nil, errors.Join(err, cmd.Process.Kill(), cmd.Wait())
	}
	return s, nil
}

func (s *serving) add(b []byte) error {
	_, err := s.client.Add(context.Background(), b)
	return err
}

// end stops the server and returns its largest memory in MB.
func (s *serving) end() (peak float64, err error) {
	s.client.Close()
	err = s.stop.Close()
	err = errors.Join(err, json.NewDecoder(s.out).Decode(&peak))
	return peak, errors.Join(err, s.cmd.Wait())
}

// servedStage is the server: cleanrun log serve without its command line.
func servedStage(dir string) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	s, err := registry.OpenDir(ctx, dir, servedLog, registry.DirOptions{Admit: registry.Admit([]receipt.PublicKey{servedOwner.public}, []receipt.PublicKey{servedRunner.public})})
	if err != nil {
		return err
	}
	h, done, err := registry.Handler(s, registry.HandlerOptions{}) // tiles are not asked for
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s\n", l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	if err := errors.Join(registry.Serve(ctx, l, h), s.Close(), done()); err != nil {
		return err
	}
	peak, err := peakMemory()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(peak)
}
