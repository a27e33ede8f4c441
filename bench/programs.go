package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/manifest"
	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// Contestants, in the order of the table.
const (
	bare    = "bare"
	ours    = "cleanrun"
	strace  = "strace -f"
	straceB = "strace -f --seccomp-bpf"
)

var contestants = []string{bare, ours, strace, straceB}

// straceSet are the calls that strace must record to know what cleanrun knows:
// with --seccomp-bpf the rest runs without a stop.
const straceSet = "trace=open,openat,openat2,creat,execve,execveat,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,mkdir,mkdirat,connect,bind"

// A program is run by every contestant.
type program struct {
	name  string
	aim   string
	most  int                   // repetitions at most; 0 is no limit
	needs string                // a program that must be installed
	prep  func(ws string) error // fills the workspace, once
	fresh func(ws string) error // before each repetition
	argv  func(ws string) []string
	env   []string
	skip  []string // contestants that would take too long
}

const opensVar = "CLEANRUN_BENCH_OPENS"

const opensN = 20000

var programs = []program{
	{
		name: "start-up (true)", aim: "30 ms without hashing",
		argv: func(string) []string { return []string{"/bin/true"} },
	},
	{
		name: "20,000 opens", aim: "at most 8x bare, 5 times cheaper than strace --seccomp-bpf", most: 5,
		prep: func(ws string) error {
			for i := range 100 {
				if err := os.WriteFile(filepath.Join(ws, strconv.Itoa(i)), []byte("content of a small file\n"), 0o644); err != nil {
					return err
				}
			}
			return copySelf(filepath.Join(ws, "tool"))
		},
		argv: func(ws string) []string { return []string{filepath.Join(ws, "tool")} },
		env:  []string{opensVar + "=" + strconv.Itoa(opensN)},
	},
	{
		name: "python imports, three times", aim: "1.6x with hashing", needs: "python3",
		argv: func(string) []string {
			return []string{"/bin/sh", "-c", `for i in 1 2 3; do python3 -c 'import argparse, ast, asyncio, base64, bz2, collections, concurrent.futures, configparser, csv, ctypes, dataclasses, datetime, decimal, difflib, email, fractions, gzip, hashlib, heapq, html, http.client, inspect, json, logging, lzma, multiprocessing, pathlib, pickle, random, shutil, sqlite3, ssl, statistics, subprocess, tarfile, tempfile, threading, typing, unittest, urllib.request, uuid, xml.etree.ElementTree, zipfile'; done`}
		},
	},
	{
		name: "go build, cold", aim: "1.1x", needs: "go", most: 2, skip: []string{strace},
		prep: func(ws string) error {
			return errors.Join(
				os.WriteFile(filepath.Join(ws, "go.mod"), []byte("module example.org/small\n\ngo 1.21\n"), 0o644),
				os.WriteFile(filepath.Join(ws, "main.go"), []byte("package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"small\") }\n"), 0o644))
		},
		fresh: func(ws string) error {
			return errors.Join(os.RemoveAll(filepath.Join(ws, ".cache")), os.RemoveAll(filepath.Join(ws, "small")))
		},
		argv: func(ws string) []string {
			return []string{"/bin/sh", "-c", "GOCACHE=$PWD/.cache GOTOOLCHAIN=local GOPROXY=off go build -o small ."}
		},
	},
	{
		name: "cached 1 GiB read", aim: "one SHA-256 pass", most: 3,
		prep: func(ws string) error {
			f, err := os.Create(filepath.Join(ws, "big"))
			if err != nil {
				return err
			}
			block := make([]byte, 1<<20)
			for i := range 1024 {
				for j := range block {
					block[j] = byte(i*j + j>>8)
				}
				if _, err := f.Write(block); err != nil {
					return errors.Join(err, f.Close())
				}
			}
			return f.Close()
		},
		argv: func(ws string) []string { return []string{"/bin/sh", "-c", "cat big >/dev/null"} },
	},
}

// opens is the program of the second line.
func opens(n string) int {
	count, err := strconv.Atoi(n)
	if err != nil {
		return 2
	}
	for i := range count {
		f, err := os.Open(strconv.Itoa(i % 100))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		var b [64]byte
		f.Read(b[:])
		f.Close()
	}
	return 0
}

// compare runs one program with every contestant, interleaved.
func compare(p program, tmp string, repeat int) (Measure, error) {
	m := Measure{Name: p.name, Unit: "s", Aim: p.aim, Values: map[string]float64{}, CPU: map[string]float64{},
		Ratio: map[string]float64{}, Missing: map[string]string{}}
	if p.most > 0 {
		repeat = min(repeat, p.most)
	}
	if p.needs != "" {
		if _, err := exec.LookPath(p.needs); err != nil {
			for _, c := range contestants {
				m.Missing[c] = p.needs + " is not installed"
			}
			return m, nil
		}
	}
	dir, err := os.MkdirTemp(tmp, "program-")
	if err != nil {
		return m, err
	}
	defer os.RemoveAll(dir)
	ws, home := filepath.Join(dir, "ws"), filepath.Join(dir, "home")
	if err := errors.Join(os.Mkdir(ws, 0o755), os.Mkdir(home, 0o755)); err != nil {
		return m, err
	}
	if p.prep != nil {
		if err := p.prep(ws); err != nil {
			return m, err
		}
	}
	env := append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "LANG=C.UTF-8"}, p.env...)
	times, cpu := map[string][]float64{}, map[string][]float64{}
	for i := range repeat + 1 { // the first warms caches and is thrown away
		for _, c := range contestants {
			if m.Missing[c] != "" {
				continue
			}
			if slices.Contains(p.skip, c) {
				m.Missing[c] = "left out, it takes minutes"
				continue
			}
			if p.fresh != nil {
				if err := p.fresh(ws); err != nil {
					return m, err
				}
			}
			used := cpuSeconds()
			d, err := once(c, p.argv(ws), ws, dir, env)
			if err != nil {
				m.Missing[c] = err.Error()
				continue
			}
			if i > 0 {
				times[c] = append(times[c], d.Seconds())
				cpu[c] = append(cpu[c], cpuSeconds()-used)
			}
		}
	}
	for c, l := range times {
		m.Values[c], m.CPU[c] = median(l), median(cpu[c])
	}
	for c, v := range m.Values {
		if c != bare && m.Values[bare] > 0 {
			m.Ratio[c] = v / m.Values[bare]
		}
	}
	return m, nil
}

// once is one run of one contestant.
func once(contestant string, argv []string, ws, dir string, env []string) (time.Duration, error) {
	if contestant == ours {
		rd, err := os.MkdirTemp(dir, "run-")
		if err != nil {
			return 0, err
		}
		defer os.RemoveAll(rd)
		c := sandbox.Config{Command: argv, Workspace: ws, RunDir: rd, Env: env, ToolDirs: toolDirs(), Stdout: io.Discard, Stderr: os.Stderr}
		if c.Start.Baseline, err = baseline(ws, rd); err != nil {
			return 0, err
		}
		began := time.Now()
		res, err := sandbox.Run(context.Background(), c)
		d := time.Since(began)
		if err == nil && res.Code != 0 {
			err = fmt.Errorf("the command ended with %d", res.Code)
		}
		return d, err
	}
	switch contestant {
	case strace:
		argv = append([]string{"strace", "-f", "-qq", "-o", os.DevNull}, argv...)
	case straceB:
		argv = append([]string{"strace", "-f", "-qq", "--seccomp-bpf", "-e", straceSet, "-o", os.DevNull}, argv...)
	}
	if _, err := exec.LookPath(argv[0]); err != nil {
		return 0, err
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stderr = ws, env, os.Stderr
	began := time.Now()
	err := cmd.Run()
	return time.Since(began), err
}

// baseline writes the manifest of the workspace, as cleanrun run does before. It
// is not part of what is measured: it costs one SHA-256 pass over the workspace.
func baseline(ws, rd string) ([32]byte, error) {
	m, err := manifest.Build(ws, nil)
	if err != nil {
		return [32]byte{}, err
	}
	b, err := m.Marshal()
	if err != nil {
		return [32]byte{}, err
	}
	return m.Root(), os.WriteFile(filepath.Join(rd, "baseline"), b, 0o600)
}

// toolDirs are what the programs need besides the system directories.
func toolDirs() (dirs []string) {
	if root, err := exec.Command("go", "env", "GOROOT").Output(); err == nil && len(root) > 1 {
		dirs = append(dirs, string(root[:len(root)-1]))
	}
	return dirs
}

func copySelf(to string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	b, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

func median(l []float64) float64 {
	l = slices.Sorted(slices.Values(l))
	if n := len(l); n%2 == 0 {
		return (l[n/2-1] + l[n/2]) / 2
	}
	return l[len(l)/2]
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
