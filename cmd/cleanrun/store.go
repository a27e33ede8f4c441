package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/cleanrun-dev/cleanrun/benchmark"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/store"
	"github.com/cleanrun-dev/cleanrun/receipt"
)

var storeFlags struct{ dir, out string }

var storeCommand = &cli.Command{
	Name:  "store",
	Args:  "add FILE...|ls|get sha256:HEX",
	Words: []string{"add", "ls", "get"},
	Short: "keep receipts and sealed sets by digest, each written once",
	Long: `A store is a folder that holds bundles and sealed sets, each under its SHA-256. "add" puts files in and prints their digests; a file
that is there already stays. "ls" lists digests, and checks each file. "get" writes a file to -o. "cleanrun verify -store DIR sha256:HEX"
verifies a bundle by digest; attest and seal put what they write into -store.

No symbolic link is followed on the way to the store or in it. Every read is checked against the digest: a file that was planted or
changed is refused.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		f.Required(&storeFlags.dir, "store", "`folder` of the store; add makes it")
		f.String(&storeFlags.out, "o", "with get: `file` to write")
	},
	Run: func(e *cli.Env, args []string) error {
		if len(args) == 0 {
			return cli.Failf(cli.ExitUsage, "cleanrun store -store DIR add FILE", "add, ls or get is missing")
		}
		v, rest := storeFlags, args[1:]
		if v.out != "" && args[0] != "get" {
			return cli.Failf(cli.ExitUsage, "leave out -o", "store %s: -o means nothing", args[0])
		}
		switch args[0] {
		case "add":
			return storeAdd(e, v.dir, rest)
		case "ls":
			if err := noArgs(rest); err != nil {
				return err
			}
			return storeList(e, v.dir)
		case "get":
			name, err := oneArg(rest, "the digest (sha256:HEX)")
			if err != nil {
				return err
			}
			if v.out == "" {
				return cli.Failf(cli.ExitUsage, "name a new file with -o", "store get: -o is missing")
			}
			return storeGet(e, v.dir, name, v.out)
		}
		return cli.Failf(cli.ExitUsage, "cleanrun help store", "got %q, want add, ls or get", args[0])
	},
}

type stored struct {
	Digest string `json:"digest"`
	Kind   string `json:"kind"`
	Bytes  int    `json:"bytes"`
	Name   string `json:"name,omitempty"` // of the file that was added
	New    bool   `json:"new"`
	Error  string `json:"error,omitempty"`
}

// kindOfFile tells what a store may hold. Nothing of it is verified.
func kindOfFile(path string, b []byte) (string, error) {
	if _, err := receipt.ParseBundle(b); err == nil {
		return "bundle", nil
	}
	if _, err := receipt.ParseSealed(b); err == nil {
		return "sealed set", nil
	}
	if benchmark.IsSealed(b) {
		if s, err := benchmark.OpenSealed(path); err == nil {
			return "benchmark seal", s.Close()
		}
	}
	return "", fmt.Errorf("it is no bundle and no sealed set")
}

func storeAdd(e *cli.Env, dir string, files []string) error {
	if len(files) == 0 {
		return cli.Failf(cli.ExitUsage, "", "the files to add are missing")
	}
	var out []stored
	var contents [][]byte
	for _, path := range files { // all are read before one is added
		b, err := readFile(path, store.MaxFile)
		if err != nil {
			return err
		}
		kind, err := kindOfFile(path, b)
		if err != nil {
			return cli.Failf(cli.ExitUsage, "a store takes what attest and seal write", "%s: %w", path, err)
		}
		contents = append(contents, b)
		out = append(out, stored{Kind: kind, Bytes: len(b), Name: path})
	}
	for i, b := range contents {
		d, fresh, err := putInStore(dir, b)
		if err != nil {
			return err
		}
		out[i].Digest, out[i].New = d, fresh
	}
	if e.JSON {
		return e.PrintJSON(struct {
			Files []stored `json:"files"`
		}{out})
	}
	for _, s := range out {
		note := ""
		if !s.New {
			note = "  (was there)"
		}
		fmt.Fprintf(e.Stdout, "%s  %s  %s%s\n", s.Digest, s.Kind, s.Name, note)
	}
	return nil
}

// putInStore adds one file, and makes the store if there is none.
func putInStore(dir string, b []byte) (digest string, fresh bool, err error) {
	s, err := store.Create(dir)
	if err != nil {
		return "", false, err
	}
	defer s.Close()
	d, fresh, err := s.Add(b)
	return d.String(), fresh, err
}

// thenStore puts the file that do wrote into a store, if dir names one. A store
// that cannot be used is found before anything is written.
func thenStore(e *cli.Env, dir, file string, do func() error) error {
	if dir == "" {
		return do()
	}
	s, err := store.Create(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := do(); err != nil {
		return err
	}
	b, err := readFile(file, store.MaxFile)
	if err != nil {
		return err
	}
	d, fresh, err := s.Add(b)
	if err != nil {
		return fmt.Errorf("%s is written, but not stored: %w", file, err)
	}
	if !e.JSON { // else stdout has its one object, and the digest is that of the file
		fmt.Fprintf(e.Stdout, " stored     %s%s\n", d, map[bool]string{false: "  (was there)"}[fresh])
	}
	return nil
}

// getFromStore reads and checks one file.
func getFromStore(dir, name string) ([]byte, error) {
	d, err := store.ParseDigest(name)
	if err != nil {
		return nil, cli.Failf(cli.ExitUsage, "cleanrun store -store "+dir+" ls lists the digests", "%w", err)
	}
	s, err := store.Open(dir)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return s.Get(d)
}

func storeList(e *cli.Env, dir string) error {
	s, err := store.Open(dir)
	if err != nil {
		return err
	}
	defer s.Close()
	out := []stored{}
	bad := false
	for d, err := range s.All() {
		var b []byte
		if err == nil {
			b, err = s.Get(d)
		}
		one := stored{Digest: d.String(), Bytes: len(b)}
		if err == nil {
			one.Kind, err = kindOfFile(s.Path(d), b)
		}
		if err != nil {
			one.Error, bad = err.Error(), true
		}
		out = append(out, one)
	}
	slices.SortStableFunc(out, func(a, b stored) int { return strings.Compare(a.Digest, b.Digest) })
	if e.JSON {
		if err := e.PrintJSON(struct {
			Files []stored `json:"files"`
		}{out}); err != nil {
			return err
		}
	}
	for _, o := range out {
		if o.Error != "" {
			fmt.Fprintf(e.Stderr, "cleanrun: error: %s\n", o.Error)
		} else if !e.JSON {
			fmt.Fprintf(e.Stdout, "%s  %s  %s\n", o.Digest, o.Kind, several(o.Bytes, "byte", "bytes"))
		}
	}
	if bad {
		return cli.Exit(cli.ExitInvalid)
	}
	return nil
}

func storeGet(e *cli.Env, dir, name, out string) error {
	b, err := getFromStore(dir, name)
	if err != nil {
		return err
	}
	if err := durable.CreateNew(out, b, 0o600); err != nil {
		return err
	}
	if e.JSON {
		return e.PrintJSON(struct {
			File  string `json:"file"`
			Bytes int    `json:"bytes"`
		}{out, len(b)})
	}
	return nil
}
