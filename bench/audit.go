package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/cleanrun-dev/cleanrun/attest"
	"github.com/cleanrun-dev/cleanrun/audit"
	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/submission"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// auditVar makes this program audit the folder that it names, or only check its
// signatures, and print an auditTimes.
const auditVar = "CLEANRUN_BENCH_AUDIT"

const (
	auditTasks  = 500
	auditTrials = 20
)

type auditTimes struct {
	Seconds float64
	Peak    float64 // megabytes resident, at most
	CPU     float64 `json:"-"` // seconds of processor time
}

// auditRate compares an audit of small receipts with their signature checks.
func auditRate(tmp string, repeat int) (Measure, error) {
	dir, err := auditFolder(tmp)
	if err != nil {
		return Measure{}, err
	}
	rates := map[string][]float64{}
	for range repeat {
		for _, what := range []string{"signatures", "audit"} {
			t, err := auditProcess(what, dir)
			if err != nil {
				return Measure{}, err
			}
			rates[what] = append(rates[what], auditTasks*auditTrials/t.Seconds)
			rates[what+", by processor time"] = append(rates[what+", by processor time"], auditTasks*auditTrials*float64(runtime.GOMAXPROCS(0))/t.CPU)
		}
	}
	m := Measure{Unit: "receipts/s", Values: map[string]float64{}}
	for k, l := range rates {
		m.Values[k] = median(l)
	}
	return m, nil
}

// auditMemory is what the same audit has resident.
func auditMemory(tmp string, repeat int) (Measure, error) {
	dir, err := auditFolder(tmp)
	if err != nil {
		return Measure{}, err
	}
	var peaks []float64
	for range repeat {
		t, err := auditProcess("audit", dir)
		if err != nil {
			return Measure{}, err
		}
		peaks = append(peaks, t.Peak)
	}
	return Measure{Unit: "MB", Values: map[string]float64{"most resident": median(peaks)}}, nil
}

func auditProcess(what, dir string) (t auditTimes, err error) {
	self, err := os.Executable()
	if err != nil {
		return t, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), auditVar+"="+what+":"+dir)
	cmd.Stderr = os.Stderr
	before := cpuSeconds()
	out, err := cmd.Output()
	if err != nil {
		return t, err
	}
	err = json.Unmarshal(out, &t)
	t.CPU = cpuSeconds() - before
	return t, err
}

// auditStage does the work of auditProcess in its own process.
func auditStage(job string) error {
	what, dir, _ := strings.Cut(job, ":")
	debug.SetGCPercent(400) // as cmd/cleanrun does
	policy, err := verify.ParsePolicy([]byte("owner " + auditOwner.Public().String() + "\nrunner " + auditRunner.Public().String()))
	if err != nil {
		return err
	}
	began := time.Now()
	switch what {
	case "audit":
		r := audit.Run([]string{dir}, audit.Options{Policy: policy})
		if r.Exit != 0 || r.Bundles != auditTasks*auditTrials {
			return fmt.Errorf("audit: %s", r.Text())
		}
	case "signatures":
		if err := signatures(dir, policy); err != nil {
			return err
		}
	}
	t := auditTimes{Seconds: time.Since(began).Seconds()}
	if t.Peak, err = peakMemory(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(t)
}

// signatures reads every bundle of a folder and checks its three signatures on all
// cores, and nothing else.
func signatures(dir string, policy *verify.Policy) error {
	names, err := filepath.Glob(filepath.Join(dir, "*"+audit.BundleExt))
	if err != nil {
		return err
	}
	next := make(chan string)
	errs := make(chan error, len(names))
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for name := range next {
				errs <- checkSignatures(name, policy)
			}
		})
	}
	for _, n := range names {
		next <- n
	}
	close(next)
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkSignatures(name string, policy *verify.Policy) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	b, err := receipt.ParseBundle(data)
	if err != nil {
		return err
	}
	u, err := receipt.ParseSign1(receipt.KindReceipt, b.Receipt)
	if err != nil {
		return err
	}
	e, err := receipt.ParseDSSE(b.Statement)
	if err != nil {
		return err
	}
	s, err := receipt.ParseSealed(b.Sealed)
	if err != nil {
		return err
	}
	_, err1 := u.Verify(policy.Runners[0])
	_, err2 := e.Verify(policy.Runners[0])
	_, err3 := s.Signed.Verify(policy.Owners[0])
	return errors.Join(err1, err2, err3)
}

var auditOwner, auditRunner = fixture.NewKey("bench.example/owner"), fixture.NewKey("evals.example/runner")

// auditFolder makes a submission of small receipts, once in tmp.
func auditFolder(tmp string) (string, error) {
	dir := filepath.Join(tmp, "audit")
	if err := os.Mkdir(dir, 0o700); errors.Is(err, fs.ErrExist) {
		return dir, nil
	} else if err != nil {
		return "", err
	}
	in := submission.Input{Trials: auditTrials, Rule: submission.Mean(), Headline: submission.Plain}
	for i := range auditTasks {
		in.Tasks = append(in.Tasks, fmt.Sprintf("task-%03d", i))
	}
	s, err := fixture.NewSeal(auditOwner, "bench", in.Tasks)
	if err != nil {
		return "", err
	}
	head := sha256.Sum256(s.Head)
	in.Benchmark = submission.Benchmark{Head: hex.EncodeToString(head[:]), Name: "bench", Root: hex.EncodeToString(s.Claims.Root[:]), Tasks: auditTasks}
	for _, task := range in.Tasks {
		for trial := range uint32(auditTrials) {
			data, err := s.Bundle(auditRunner, fixture.Attempt{Task: task, Trial: trial + 1, Attempt: 1, Score: "1"})
			if err != nil {
				return "", err
			}
			b, err := receipt.ParseBundle(data)
			if err != nil {
				return "", err
			}
			u, err := receipt.ParseSign1(receipt.KindReceipt, b.Receipt)
			if err != nil {
				return "", err
			}
			statement, err := attest.ParseStatement(u.Unauthenticated().Payload)
			if err != nil {
				return "", err
			}
			sum := sha256.Sum256(data)
			a := submission.FromReceipt(statement, sum, b.Receipt)
			in.Attempts = append(in.Attempts, a)
			if err := os.WriteFile(filepath.Join(dir, a.Bundle+audit.BundleExt), data, 0o600); err != nil {
				return "", err
			}
		}
	}
	return dir, auditSign(dir, in)
}

func auditSign(dir string, in submission.Input) error {
	s, err := submission.Build(in)
	if err != nil {
		return err
	}
	data, err := s.Marshal()
	if err != nil {
		return err
	}
	cose, err := receipt.Sign1(receipt.KindSubmission, auditRunner, s.ID(), data)
	if err != nil {
		return err
	}
	dsse, err := receipt.SignEnvelope(receipt.KindSubmission, auditRunner, data)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(filepath.Join(dir, audit.MemberCOSE), cose, 0o600), os.WriteFile(filepath.Join(dir, audit.MemberDSSE), dsse, 0o600))
}

// peakMemory is the most that this process had resident, in megabytes.
func peakMemory() (float64, error) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var kb float64
		if n, _ := fmt.Sscanf(lines.Text(), "VmHWM: %f kB", &kb); n == 1 {
			return kb / 1024, nil
		}
	}
	return 0, errors.Join(lines.Err(), errors.New("no VmHWM in /proc/self/status"))
}
