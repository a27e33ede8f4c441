package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/overlay"
	"github.com/cleanrun-dev/cleanrun/scope/footprint"
)

func init() {
	rates = append(rates,
		rate{"footprint of 100,000 files", "1.5 times find and sha256sum, 0.2 times where an overlay has the difference", footprintRate},
		rate{"memory of a footprint of 1,000,000 paths", "under 200 MB", footprintMemory})
	stages[footprintVar] = func(string) error { return footprintStage() }
}

const (
	footprintFiles   = 100_000
	footprintChanged = 100
)

// footprintTree writes 2,000 folders of 50 files, of 4 KB in the mean.
func footprintTree(dir string) error {
	r := rand.New(rand.NewSource(1))
	content := make([]byte, 8000)
	for i := range footprintFiles {
		folder := filepath.Join(dir, fmt.Sprintf("dir%02d/sub%04d", i/50%40, i/50))
		if i%50 == 0 {
			if err := os.MkdirAll(folder, 0o755); err != nil {
				return err
			}
		}
		r.Read(content)
		if err := os.WriteFile(filepath.Join(folder, fmt.Sprintf("file%02d.txt", i%50)), content[:200+r.Intn(7800)], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// footprintRate compares the whole footprint, before, after, difference and judgement, with
// one pass of find and sha256sum. All of it is in the system's cache.
func footprintRate(tmp string, repeat int) (Measure, error) {
	m := Measure{Unit: "ms", Values: map[string]float64{}}
	dir, err := os.MkdirTemp(tmp, "footprint-")
	if err != nil {
		return m, err
	}
	defer os.RemoveAll(dir)
	lower, upper := filepath.Join(dir, "ws"), filepath.Join(dir, "upper")
	if err := footprintTree(lower); err != nil {
		return m, err
	}
	for i := range footprintChanged { // as an overlay keeps what was written anew
		name := filepath.Join(upper, fmt.Sprintf("dir%02d/sub%04d/file%02d.txt", i%40, i%40, i/40))
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte("new"), 0o644)); err != nil {
			return m, err
		}
	}
	const reference = "find and sha256sum"
	steps := []struct {
		name string
		run  func() error
	}{
		{reference, func() error { return command(nil, "find", lower, "-type", "f", "-exec", "sha256sum", "{}", "+") }},
		{"walked, before and after", func() error { return footprintOf(lower, "") }},
		{"with an overlay", func() error { return footprintOf(lower, upper) }},
	}
	took := map[string][]float64{}
	for n := range repeat + 1 {
		for _, s := range steps {
			began := time.Now()
			if err := s.run(); err != nil {
				return m, err
			}
			if n > 0 { // the first fills the cache
				took[s.name] = append(took[s.name], 1000*time.Since(began).Seconds())
			}
		}
	}
	m.Ratio = map[string]float64{}
	of := median(took[reference])
	for name, l := range took {
		if m.Values[name] = median(l); name == reference {
			continue
		}
		m.Ratio[name] = median(l) / of
		m.Values[fmt.Sprintf("%s (%.2fx)", name, m.Ratio[name])] = median(l)
		delete(m.Values, name)
	}
	return m, nil
}

// footprintOf is what scope does for a folder that the run cannot change, or, if there is an
// upper layer, for the workspace.
func footprintOf(lower, upper string) error {
	ctx := context.Background()
	root, err := os.OpenRoot(lower)
	if err != nil {
		return err
	}
	defer root.Close()
	policy, err := footprint.NewPolicy([]string{"dir00/**"})
	if err != nil {
		return err
	}
	read := upper == ""
	before, err := footprint.Take(ctx, root, read, footprint.DefaultLimits)
	if err != nil {
		return err
	}
	ev := footprint.Evidence{Root: lower, Existed: before.Has, Compiled: func(footprint.Compiled) string { return "none" }}
	want := 0
	if upper != "" {
		if ev.Changes, ev.Writes, err = layerChanges(upper, lower); err != nil {
			return err
		}
		want = footprintChanged
	}
	if ev.Drift, ev.Gaps, err = footprint.Compare(ctx, before, root, read, footprint.DefaultLimits); err != nil {
		return err
	}
	if r := footprint.Judge(policy, ev); r.Changed != want || !r.Conclusive() {
		return fmt.Errorf("got %d changes, %d by others and %d gaps, want %d changes", r.Changed, len(r.Drift), len(r.Gaps), want)
	}
	return nil
}

func layerChanges(upper, lower string) (out []footprint.Change, writes []footprint.Write, err error) {
	u, err := os.Open(upper)
	if err != nil {
		return nil, nil, err
	}
	defer u.Close()
	l, err := os.Open(lower)
	if err != nil {
		return nil, nil, err
	}
	defer l.Close()
	list, err := overlay.Changes(int(u.Fd()), int(l.Fd()))
	for i, c := range list {
		out = append(out, footprint.Change{Path: c.Path, Kind: footprint.Modified, What: "content"})
		writes = append(writes, footprint.Write{Event: uint64(i), Op: "open", Path: c.Path})
	}
	return out, writes, err
}

const footprintVar = "CLEANRUN_BENCH_FOOTPRINT"

// footprintMemory compares a manifest of a million paths with as many others, made up, in a process of its own.
func footprintMemory(string, int) (Measure, error) {
	m := Measure{Unit: "MB", Values: map[string]float64{}}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), footprintVar+"=1")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return m, err
	}
	var peak float64
	if err := json.Unmarshal(out.Bytes(), &peak); err != nil {
		return m, err
	}
	m.Values["before, after, a difference of 10,000, judged"] = peak
	return m, nil
}

// madeUp gives a million paths: 20,000 folders with 49 files each. One file in 100 differs by age.
func madeUp(age byte) iter.Seq[footprint.Entry] {
	return func(yield func(footprint.Entry) bool) {
		if !yield(footprint.Entry{Path: ".", Mode: fs.ModeDir | 0o755, Read: true}) {
			return
		}
		n := 0
		for d := range 20_000 {
			folder := fmt.Sprintf("package-%05d", d)
			if !yield(footprint.Entry{Path: folder, Mode: fs.ModeDir | 0o755, UID: 1000, GID: 1000, Read: true}) {
				return
			}
			for f := range 49 {
				e := footprint.Entry{Path: fmt.Sprintf("%s/source_file_%02d.py", folder, f), Mode: 0o644, UID: 1000, GID: 1000, Links: 1, Size: int64(n), Read: true}
				e.Digest[0], e.Digest[1], e.Digest[2] = byte(n), byte(n>>8), byte(n>>16)
				if n++; n%100 == 0 && n <= 1_000_000 {
					e.Digest[31] = age
				}
				if !yield(e) {
					return
				}
			}
		}
	}
}

// footprintStage prints the peak of its memory.
func footprintStage() error {
	before, err := footprint.Build(madeUp(0), nil)
	if err != nil {
		return err
	}
	policy, err := footprint.NewPolicy([]string{"package-00*/**"})
	if err != nil {
		return err
	}
	ev := footprint.Evidence{Root: "/ws", Existed: before.Has, Compiled: func(footprint.Compiled) string { return "none" }}
	if ev.Changes, ev.Gaps, err = footprint.DiffAll(before, madeUp(1), nil); err != nil {
		return err
	}
	for i, c := range ev.Changes {
		ev.Writes = append(ev.Writes, footprint.Write{Event: uint64(i), Op: "open", Path: c.Path})
	}
	r := footprint.Judge(policy, ev)
	if r.Changed != 9800 || len(r.Outside) != r.Changed*19/20 {
		return fmt.Errorf("got %d changes, %d of them outside, want 9800 and 9310", r.Changed, len(r.Outside))
	}
	peak, err := peakMemory()
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(peak)
}
