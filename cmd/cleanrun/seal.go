package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	"github.com/cleanrun-dev/cleanrun/benchmark"
	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/seal"
)

var (
	sealFlags    sealOptions
	sealLogFlags logFlags
)

var sealCommand = &cli.Command{
	Name:  "seal",
	Args:  "task.yaml or benchmark.yaml",
	Short: "seal the ground truth of a task or a benchmark, so that it can be matched but not read",
	Long: `Reads a task file (spec/task.md) and all that it names, and writes the signed sealed set: keyed digests of the reference
solution, the hidden tests, canaries and the rest, padded. Nothing of it can be read back without the audit key.

Refuses a task that gives its own answer away (in the prompt, the workspace or its git history), and names the file.

What a run may change (footprint) and what it must do with a named path (expect) stand in the sealed set in clear, the text to plant and the
line to report too.

Given a benchmark.yaml (spec/benchmark.md), seals all its tasks into one file with one signature. Every task that leaks its answer, seals
nothing strong or holds another's answer is named, and nothing is written; -skip-weak leaves them out and counts them in the file.

With -log the SEAL, the owner's signature over the digest of what was signed, is put into a transparency log: runs that rely on it can be registered
there from then on, and nobody can say later that it was sealed after them.

-public publishes the benchmark's key in the file, bound to the data's revision and digest. -check rebuilds every set of such a file from
the data and compares it byte for byte, private ones with -key. Without -policy, which pins the owner's key, the signer is unknown.

Exit codes: 0 sealed, or the check holds; 1 the check fails (INVALID); 2 nothing could be sealed; 3 the check holds, signer unknown.`,
	JSON: true,
	Flags: func(f *cli.Flags) {
		v := &sealFlags
		f.String(&v.key, "key", "audit key `file`; for a benchmark its exported key will do")
		f.String(&v.sign, "sign", "owner's signing key `file`")
		f.String(&v.out, "o", "`file` to write, task.sealed or b.sealed")
		f.String(&v.export, "export", "`file` to write the key of this one task or benchmark to, for a runner who must not have the audit key")
		f.String(&v.taskID, "task-id", "with -export, of a benchmark: the key of the one task of this `name` alone")
		f.Bool(&v.public, "public", "publish the benchmark's key in the file, so that anybody who has the data can check it")
		f.Bool(&v.skipWeak, "skip-weak", "leave out tasks that cannot be sealed well, and count them in the file")
		f.String(&v.check, "check", "seal nothing: rebuild every set of this `b.sealed` from the data and compare")
		f.String(&v.policy, "policy", "with -check: policy `file` that pins the owner's key")
		sealLogFlags.flags(f, "the SEAL is put into")
		f.String(&v.store, "store", "also put the sealed file into the store in this `folder`")
	},
	Run: func(e *cli.Env, args []string) error {
		path, err := oneArg(args, "the task file or benchmark.yaml")
		if err != nil {
			return err
		}
		v := sealFlags
		if err := v.valid(); err != nil {
			return err
		}
		if sealLogFlags.log != "" && v.check != "" {
			return cli.Failf(cli.ExitUsage, "leave out -log", "-check writes nothing, and logs nothing")
		}
		if v.log, err = sealLogFlags.open(context.Background()); err != nil {
			return err
		}
		if v.log != nil {
			defer v.log.Close()
		}
		return thenStore(e, v.store, v.out, func() error {
			switch whole, err := benchmark.Is(path); {
			case err != nil:
				return err
			case v.check != "" && !whole:
				return cli.Failf(cli.ExitUsage, "", "-check: got the task file %s, want the benchmark.yaml of the seal", path)
			case v.check != "":
				return checkBenchmark(e, path, v)
			case whole:
				return sealBenchmark(e, path, v)
			case v.public || v.skipWeak:
				return cli.Failf(cli.ExitUsage, "", "-public and -skip-weak are for a benchmark.yaml, and %s is a task file", path)
			}
			sum, err := doSeal(path, v.key, v.sign, v.out, v.export)
			if err != nil {
				return err
			}
			if err := v.logTask(e); err != nil {
				return err
			}
			if e.JSON {
				return e.PrintJSON(sealJSON(v.out, sum))
			}
			for _, w := range sum.Warnings {
				e.Warn("%s", w)
			}
			fmt.Fprint(e.Stdout, sealText(v.out, sum))
			return nil
		})
	},
}

// valid refuses a flag that is missing, and one that would be ignored.
func (o *sealOptions) valid() error {
	if o.taskID != "" && o.export == "" {
		return cli.Failf(cli.ExitUsage, "", "-task-id without -export means nothing")
	}
	if o.check == "" {
		if o.policy != "" {
			return cli.Failf(cli.ExitUsage, "", "-policy without -check means nothing")
		}
		for _, f := range []struct{ name, value string }{{"key", o.key}, {"sign", o.sign}, {"o", o.out}} {
			if f.value == "" {
				return cli.Failf(cli.ExitUsage, "cleanrun help seal", "flag -%s is missing", f.name)
			}
		}
		return nil
	}
	if o.sign != "" || o.out != "" || o.export != "" || o.public || o.skipWeak || o.store != "" {
		return cli.Failf(cli.ExitUsage, "", "-check writes nothing: leave out -sign, -o, -export, -public, -skip-weak and -store")
	}
	return nil
}

// doSeal seals one task; quickstart calls it too.
func doSeal(task, audit, sign, out, export string) (*seal.Summary, error) {
	key, err := readAuditKey(audit)
	if err != nil {
		return nil, err
	}
	signer, err := keys.Load(sign)
	if err != nil {
		return nil, err
	}
	m, err := seal.Load(task)
	if err != nil {
		return nil, err
	}
	control, err := seal.NewControl(rand.Reader)
	if err != nil {
		return nil, err
	}
	set, sum, err := seal.Build(m, key, control)
	if err != nil {
		var leak *seal.LeakError
		if errors.As(err, &leak) {
			return nil, cli.Failf(cli.ExitUsage, "remove it there, or give the task another answer", "%s: %w", task, err)
		}
		return nil, err
	}
	payload, err := set.Marshal()
	if err != nil {
		return nil, err
	}
	file, err := receipt.Sign1(receipt.KindSealedSet, signer, set.Benchmark+"/"+set.Task, payload)
	if err != nil {
		return nil, err
	}
	if err := durable.CreateNew(out, file, 0o644); err != nil {
		return nil, err
	}
	if export != "" {
		k, err := key.TaskFor(set)
		if err != nil {
			return nil, err
		}
		if err := durable.CreateNew(export, k.Format(), 0o600); err != nil {
			return nil, err
		}
	}
	return sum, nil
}

type sealedGroup struct {
	Source    string `json:"source"`
	Kind      string `json:"kind"`
	Class     string `json:"class"`
	Items     int    `json:"items"`
	Padded    int    `json:"padded"`
	Threshold int    `json:"threshold"`
}

type sealedTask struct {
	File      string           `json:"file"`
	Benchmark string           `json:"benchmark"`
	Task      string           `json:"task"`
	Groups    []sealedGroup    `json:"groups"`
	Novel     int              `json:"novel"`
	Kept      int              `json:"kept"`
	Allowed   int              `json:"allowed"`
	Controls  int              `json:"controls"`
	Uncovered map[string]int   `json:"uncovered"`
	TooSmall  bool             `json:"tooSmall"`
	Footprint *sealedFootprint `json:"footprint,omitempty"`
	Expect    *sealedExpect    `json:"expect,omitempty"`
	Warnings  []string         `json:"warnings"`
}

func sealJSON(file string, s *seal.Summary) sealedTask {
	out := sealedTask{File: file, Benchmark: s.Benchmark, Task: s.Task, Groups: []sealedGroup{}, Novel: s.Novel, Kept: s.Kept, Allowed: s.Allowed,
		Controls: s.Controls, Uncovered: map[string]int{}, TooSmall: s.TooSmall, Footprint: footprintJSON(s.Footprint), Expect: expectJSON(s.Expect), Warnings: append([]string{}, s.Warnings...)}
	for _, g := range s.Groups {
		out.Groups = append(out.Groups, sealedGroup{g.Source, kindName(g.Kind), className(g.Class), g.Items, g.Padded, g.Threshold})
	}
	for _, c := range s.Uncovered {
		out.Uncovered[kindName(c.Kind)] = int(c.N)
	}
	return out
}

func sealText(out string, s *seal.Summary) string {
	var b strings.Builder
	items := 0
	for _, g := range s.Groups {
		items += g.Items
	}
	fmt.Fprintf(&b, "sealed %s/%s into %s\n", s.Benchmark, s.Task, out)
	fmt.Fprintf(&b, " items      %d in %d groups, from the novel part of each source; each padded with dummies\n", items, len(s.Groups))
	for _, g := range s.Groups {
		fmt.Fprintf(&b, "   %-10s %-9s %5d of %-5d match from %d  %s\n", kindName(g.Kind), className(g.Class), g.Items, g.Padded, g.Threshold, g.Source)
	}
	if s.Kept < s.Novel {
		fmt.Fprintf(&b, " novel part %d of %d fragments and lines kept: the rest also stands in the prompt or the workspace\n", s.Kept, s.Novel)
	}
	for _, c := range s.Uncovered {
		fmt.Fprintf(&b, " uncovered  %d of kind %s: too short to seal\n", c.N, kindName(c.Kind))
	}
	fmt.Fprintf(&b, " controls   %d\n", s.Controls)
	b.WriteString(surroundingsText(s.Footprint, s.Expect))
	if s.TooSmall {
		fmt.Fprint(&b, " TOO SMALL  every run of this task will be INCONCLUSIVE: no whole object and fewer than 8 items\n")
	}
	return b.String()
}

func kindName(k contraband.Kind) string {
	names := map[contraband.Kind]string{contraband.KindID: "id", contraband.KindTitle: "title", contraband.KindSignal: "signal",
		contraband.KindCommand: "command", contraband.KindReference: "reference", contraband.KindTest: "test", contraband.KindCanary: "canary"}
	return names[k]
}

func className(c contraband.Class) string {
	names := map[contraband.Class]string{contraband.ClassCanary: "canary", contraband.ClassRaw: "file", contraband.ClassCanonical: "text",
		contraband.ClassShingle: "fragment", contraband.ClassShingle24: "short fr.", contraband.ClassLine: "line", contraband.ClassAtom: "token"}
	return names[c]
}

func readAuditKey(path string) (contraband.AuditKey, error) {
	raw, err := readSecret(path)
	if err != nil {
		return contraband.AuditKey{}, err
	}
	key, err := contraband.ParseAuditKey(raw)
	if err != nil {
		return contraband.AuditKey{}, fmt.Errorf("%s: %w", path, err)
	}
	return key, nil
}

// readSealed reads a sealed set whose signature nobody has checked: the runner
// uses it as given, and verify holds it to the owner's pinned key.
func readSealed(path string) (file []byte, set *contraband.Set, err error) {
	file, err = readFile(path, contraband.MaxSetSize+1<<16)
	if err != nil {
		return nil, nil, err
	}
	if benchmark.IsSealed(file) {
		return nil, nil, cli.Failf(cli.ExitUsage, "run: add -data benchmark.yaml and -task-id ID; attest: give RUNDIR/task.sealed", "%s: got the seal of a whole benchmark, want one task's", path)
	}
	set, err = parseSealed(file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", path, err)
	}
	return file, set, nil
}

func sealDigest(file []byte) [32]byte { return sha256.Sum256(file) }

// parseSealed reads a task.sealed of either kind. A part whose set the head does
// not cover is refused: no receipt of such a run could ever be verified.
func parseSealed(file []byte) (*contraband.Set, error) {
	s, err := receipt.ParseSealed(file)
	if err != nil {
		return nil, err
	}
	set, err := contraband.ParseSet(s.Set())
	if err != nil || s.Part == nil {
		return set, err
	}
	head, err := contraband.ParseHead(s.Signed.Unauthenticated().Payload)
	if err != nil {
		return nil, err
	}
	return set, head.Includes(set, s.Part.Set, s.Part.Index, s.Part.Path)
}
