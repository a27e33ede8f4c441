package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/cleanrun-dev/cleanrun/benchmark"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/internal/regular"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/tlog"
	"github.com/cleanrun-dev/cleanrun/tlog/entry"
	"github.com/cleanrun-dev/cleanrun/tlog/proof"
	"github.com/cleanrun-dev/cleanrun/tlog/registry"
	"github.com/cleanrun-dev/cleanrun/tlog/trillian"
)

var logCommand = &cli.Command{
	Name:  "log",
	Short: "keep, serve, watch and use a transparency log of seals and runs",
	Long: `A transparency log shows what was sealed and which runs were registered, in an order that nobody can change later (spec/log.md). With
it a receipt can say that the seal was there before the run and the run before its result.

  cleanrun keygen -role log -name example.com/log -o log.key
  cleanrun log init -dir LOG -key log.key
  cleanrun log serve -dir LOG -key log.key -policy policy -listen 127.0.0.1:8421`,
	Commands: []*cli.Command{logInitCommand, logServeCommand, logAddCommand, logProveCommand, logCheckCommand, logWitnessCommand, logMonitorCommand, logPolicyCommand},
}

// cosigners loads keys of witnesses, or further keys of a log.
func cosigners(paths []string) (list []*proof.Cosigner, err error) {
	for _, p := range paths {
		c, err := loadCosigner(p)
		if err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

var logInitFlags struct {
	dir, key, trillian, tree string
	also                     []string
}

var logInitCommand = &cli.Command{
	Name:  "log init",
	Short: "make a log in a folder, or on Trillian, and publish its checkpoint of size 0",
	Long: `Makes an empty log whose name and key are those of the key file, signs the checkpoint of size 0, and prints the line that pins the log
in a policy file. The folder must be new or empty. A web server can publish it as it is (c2sp.org/tlog-tiles).

With -trillian, the entries are kept by a Trillian log server, and the folder keeps what was signed last. Without it the log would be signed
a second time from another state: keep the folder.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &logInitFlags
		f.Required(&v.dir, "dir", "`folder` of the log, new or empty")
		f.Required(&v.key, "key", "the log's signing key `file`, made with keygen -role log")
		f.Strings(&v.also, "also", "a further key `file` (ML-DSA-44, of the log's name) that signs each checkpoint too")
		f.String(&v.trillian, "trillian", "`HOST:PORT` of a Trillian log server (tls:HOST:PORT with TLS) that keeps the entries")
		f.String(&v.tree, "tree", "with -trillian: `id` of an empty tree; without it one is made")
	},
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		v := logInitFlags
		key, err := keys.Load(v.key)
		if err != nil {
			return err
		}
		also, err := cosigners(v.also)
		if err != nil {
			return err
		}
		if v.trillian == "" {
			if v.tree != "" {
				return cli.Failf(cli.ExitUsage, "", "-tree without -trillian means nothing")
			}
			err = tlog.Init(context.Background(), v.dir, key, also...)
		} else {
			tree := int64(0)
			if v.tree != "" {
				if _, err := fmt.Sscanf(v.tree, "%d", &tree); err != nil || fmt.Sprint(tree) != v.tree || tree <= 0 {
					return cli.Failf(cli.ExitUsage, "", "-tree: got %q, want the decimal id of a tree", v.tree)
				}
			}
			err = trillian.Init(context.Background(), v.dir, v.trillian, tree, key, also...)
		}
		if errors.Is(err, tlog.ErrExists) {
			return cli.Failf(cli.ExitUsage, "a log is made once; name a new folder", "%w", err)
		}
		if err != nil {
			return err
		}
		line := keys.PolicyLine(keys.Log, key.Public())
		if e.JSON {
			return e.PrintJSON(struct {
				Dir    string `json:"dir"`
				Policy string `json:"policy"`
			}{v.dir, line})
		}
		fmt.Fprintln(e.Stdout, line)
		return nil
	},
}

var logAddFlags struct {
	logFlags
	sign, out string
}

var logAddCommand = &cli.Command{
	Name:  "log add",
	Args:  "FILE...",
	Short: "add entries to a log, or the SEAL of a sealed set",
	Long: `Adds signed statements (spec/log.md, "Entries") to a log, and prints the index of each once a published checkpoint holds it. A file that
is in the log already gets the index that it has.

A file that was sealed (task.sealed, b.sealed) is no entry: with -key, the owner's, a SEAL over its digest is signed and added.

Exit codes: 0 all are in the log; 1 the log refuses one, and says why, or a file is no entry; 3 the log does not answer.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &logAddFlags
		v.flags(f, "the files are added to")
		f.String(&v.sign, "key", "owner's signing key `file`, for a SEAL")
		f.String(&v.out, "o", "`file` for the transparent statement: the entry and the log's receipt (for one file)")
	},
	Run: func(e *cli.Env, args []string) error {
		v := logAddFlags
		switch {
		case len(args) == 0:
			return cli.Failf(cli.ExitUsage, "", "the files to add are missing")
		case v.log == "":
			return cli.Failf(cli.ExitUsage, "cleanrun help log add", "flag -log is missing")
		case v.out != "" && len(args) != 1:
			return cli.Failf(cli.ExitUsage, "", "-o: got %d files to add, want one", len(args))
		}
		var statements [][]byte
		for _, path := range args { // all are read before the first is added
			b, err := statementOf(path, v.sign)
			if err != nil {
				return err
			}
			statements = append(statements, b)
		}
		l, err := v.open(context.Background())
		if err != nil {
			return unanswered(err)
		}
		defer l.Close()
		type added struct {
			File  string `json:"file"`
			Index uint64 `json:"index"`
		}
		list := []added{}
		for i, b := range statements {
			logged, err := l.Add(context.Background(), b)
			if err != nil {
				return addError(l.where, args[i], err)
			}
			if v.out != "" {
				t, err := receipt.Attach(b, logged.Receipt)
				if err == nil {
					err = durable.CreateNew(v.out, t, 0o644)
				}
				if err != nil {
					return err
				}
			}
			if !e.JSON {
				fmt.Fprintf(e.Stdout, "%d %s\n", logged.Index, args[i])
			}
			list = append(list, added{args[i], logged.Index})
		}
		if e.JSON {
			return e.PrintJSON(struct {
				Entries []added `json:"entries"`
			}{list})
		}
		return nil
	},
}

// addError tells a refusal, which is final, from a log that does not answer.
func addError(where, file string, err error) error {
	code := cli.ExitUsage
	if _, refused := errors.AsType[*entry.Refusal](err); refused {
		code = cli.ExitInvalid
	} else if errors.Is(err, registry.ErrUnavailable) {
		code = cli.ExitInconclusive
	}
	return logError(code, where, fmt.Errorf("%s: %w", file, err))
}

// unanswered gives the error of a log that does not answer its exit code.
func unanswered(err error) error {
	var own *cli.Error
	if errors.Is(err, registry.ErrUnavailable) && errors.As(err, &own) {
		return &cli.Error{Code: cli.ExitInconclusive, Err: own.Err, Hint: own.Hint}
	}
	return err
}

// statementOf reads an entry, or makes the SEAL of a sealed file.
func statementOf(path, sign string) ([]byte, error) {
	start, err := beginning(path, tlog.MaxEntry+1)
	if err != nil {
		return nil, err
	}
	if benchmark.IsSealed(start) {
		b, err := benchmark.OpenSealed(path)
		if err != nil {
			return nil, err
		}
		defer b.Close()
		return signSeal(path, sign, receipt.KindBenchmark, b.Head().Benchmark, b.Signed())
	}
	kind, err := receipt.KindOf(start)
	part := err != nil
	if !part && kind != receipt.KindSealedSet {
		b, err := readFile(path, tlog.MaxEntry)
		if err == nil {
			_, err = entry.Parse(b)
		}
		if r, ok := errors.AsType[*entry.Refusal](err); ok {
			return nil, cli.Failf(cli.ExitInvalid, r.Hint, "%s: %w", path, err)
		}
		return b, err
	}
	file, set, err := readSealed(path)
	if err != nil && part {
		return nil, cli.Failf(cli.ExitInvalid, "an entry is a COSE_Sign1 of spec/log.md; task.sealed and b.sealed are logged with -key", "got neither an entry nor a sealed set: %w", err)
	} else if err != nil {
		return nil, err
	}
	s, err := receipt.ParseSealed(file)
	if err != nil {
		return nil, err
	}
	if s.Part != nil { // a run relies on the head that covers its task
		return signSeal(path, sign, receipt.KindBenchmark, set.Benchmark, s.Part.Head)
	}
	return signSeal(path, sign, receipt.KindSealedSet, set.Benchmark+"/"+set.Task, file)
}

// beginning reads at most limit bytes from the beginning of a file.
func beginning(path string, limit int) ([]byte, error) {
	f, err := regular.Given(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, limit)
	n, err := io.ReadFull(f, b)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b[:n], nil
}

func signSeal(path, sign string, of receipt.Kind, subject string, signed []byte) ([]byte, error) {
	if sign == "" {
		return nil, cli.Failf(cli.ExitUsage, "a SEAL is signed by the owner: add -key owner.key", "%s: got a sealed set, and no -key", path)
	}
	owner, err := keys.Load(sign)
	if err != nil {
		return nil, err
	}
	return entry.SignSeal(owner, entry.Seal{Subject: subject, Of: of, Digest: sha256.Sum256(signed)})
}

var logPolicyFile string

var logPolicyCommand = &cli.Command{
	Name:  "log policy",
	Short: "print the lines of a policy that other programs read",
	Long: `Prints the log, witness, group and quorum lines of a policy file alone, which are those of c2sp.org/tlog-policy, for programs that know
nothing of owners and runners.`,
	Flags: func(f *cli.Flags) { f.Required(&logPolicyFile, "policy", "policy `file`") },
	Run: func(e *cli.Env, args []string) error {
		if err := noArgs(args); err != nil {
			return err
		}
		p, err := readPolicy(logPolicyFile)
		if err != nil {
			return err
		}
		if p.Log == nil {
			return cli.Failf(cli.ExitUsage, "cleanrun log init prints the line of a log", "%s: got no log line, want at least one", logPolicyFile)
		}
		fmt.Fprint(e.Stdout, p.Log)
		return nil
	},
}
