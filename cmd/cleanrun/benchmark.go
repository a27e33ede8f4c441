package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"text/tabwriter"

	"github.com/cleanrun-dev/cleanrun/contraband"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
	"github.com/cleanrun-dev/cleanrun/internal/durable"
	"github.com/cleanrun-dev/cleanrun/keys"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/seal"
	"github.com/cleanrun-dev/cleanrun/verify"
)

type sealOptions struct {
	key, sign, out, export, check, policy, taskID, store string
	public, skipWeak                                     bool
}

// readBenchmarkKey reads an audit key or a benchmark key.
func readBenchmarkKey(path, benchmark, period string) (contraband.BenchmarkKey, error) {
	raw, err := readSecret(path)
	if err != nil {
		return contraband.BenchmarkKey{}, err
	}
	if key, err := contraband.ParseBenchmarkKey(raw); err == nil {
		return key, nil
	}
	audit, err := contraband.ParseAuditKey(raw)
	if err != nil {
		return contraband.BenchmarkKey{}, fmt.Errorf("%s: %w", path, err)
	}
	return audit.Benchmark(benchmark, period), nil
}

// sealBenchmark seals all tasks of a benchmark.yaml.
func sealBenchmark(e *cli.Env, path string, o sealOptions) error {
	signer, err := keys.Load(o.sign)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(o.out); err == nil {
		return cli.Failf(cli.ExitUsage, "name a new file", "-o %s exists", o.out) // before hours of work, not after
	}
	b, err := seal.LoadBenchmark(path)
	if err != nil {
		return err
	}
	defer b.Close()
	if o.taskID != "" {
		if _, err := b.Task(o.taskID); err != nil {
			return fmt.Errorf("-task-id: %w", err)
		}
	}
	key, err := readBenchmarkKey(o.key, b.Name, b.Period)
	if err != nil {
		return err
	}
	// Each task leaves much behind; what stays is small.
	defer debug.SetGCPercent(debug.SetGCPercent(150))
	p := cli.NewProgress(e.Stderr, "sealing")
	built, err := b.Seal(seal.SealOptions{Key: key, Public: o.public, SkipWeak: o.skipWeak, Random: rand.Reader, Dir: filepath.Dir(o.out),
		Progress: func(done, total uint64) { p.Update(done, total, "steps") }})
	p.Done()
	if err != nil {
		return badTasks(e, err)
	}
	defer built.Close()
	payload, err := built.Head.Marshal()
	if err != nil {
		return err
	}
	signed, err := receipt.Sign1(receipt.KindBenchmark, signer, b.Name, payload)
	if err != nil {
		return err
	}
	if err := durable.CreateFrom(o.out, 0o644, func(w io.Writer) error { return built.Write(w, signed) }); err != nil {
		return err
	}
	if o.export != "" {
		if err := exportKey(o, key); err != nil {
			return err
		}
	}
	if e.JSON {
		return e.PrintJSON(builtJSON(o.out, built))
	}
	for _, w := range built.Warnings {
		e.Warn("%s", w)
	}
	return builtText(e.Stdout, o.out, built)
}

// exportKey writes the benchmark's key, or that of one task that was sealed.
func exportKey(o sealOptions, key contraband.BenchmarkKey) error {
	data := key.Format()
	if o.taskID != "" {
		s, err := seal.OpenSealed(o.out)
		if err != nil {
			return err
		}
		defer s.Close()
		set, _, err := s.Set(o.taskID)
		if err != nil {
			return fmt.Errorf("-task-id: %w", err)
		}
		task, err := key.TaskFor(set)
		if err != nil {
			return err
		}
		data = task.Format()
	}
	return durable.CreateNew(o.export, data, 0o600)
}

// badTasks names every task that cannot be sealed well.
func badTasks(e *cli.Env, err error) error {
	var bad *seal.BadTasksError
	if !errors.As(err, &bad) {
		return err
	}
	hint := "repair the data: a file or row that cannot be read is never left out"
	if bad.Weak() {
		hint = "repair the tasks, or leave them out with -skip-weak, which the seal then counts"
	}
	if !e.JSON {
		return cli.Failf(cli.ExitUsage, hint, "%w", err)
	}
	if err := e.PrintJSON(struct {
		Error    string        `json:"error"`
		Hint     string        `json:"hint"`
		Problems []problemJSON `json:"problems"`
	}{fmt.Sprintf("%d problems in %d tasks of %s", len(bad.Problems), bad.Tasks, bad.Benchmark), hint, problemsJSON(bad.Problems)}); err != nil {
		return err
	}
	return cli.Exit(cli.ExitUsage)
}

type problemJSON struct {
	Task   string `json:"task"`
	Place  string `json:"place"`
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
}

func problemsJSON(list []seal.Problem) []problemJSON {
	out := []problemJSON{}
	for _, p := range list {
		out = append(out, problemJSON(p))
	}
	return out
}

type builtTask struct {
	Task      string         `json:"task"`
	Groups    int            `json:"groups"`
	Items     int            `json:"items"`
	Novel     int            `json:"novel"`
	Kept      int            `json:"kept"`
	Allowed   int            `json:"allowed"`
	Uncovered map[string]int `json:"uncovered"`
	Bytes     int            `json:"bytes"`
}

type builtBenchmark struct {
	File      string        `json:"file"`
	Benchmark string        `json:"benchmark"`
	Period    string        `json:"period"`
	Revision  string        `json:"revision"`
	Root      string        `json:"root"`
	Public    bool          `json:"public"`
	Tasks     []builtTask   `json:"tasks"`
	Left      []problemJSON `json:"left"`
	Warnings  []string      `json:"warnings"`
}

func builtJSON(file string, b *seal.Built) builtBenchmark {
	out := builtBenchmark{File: file, Benchmark: b.Head.Benchmark, Period: b.Head.Period, Revision: b.Head.Revision, Root: fmt.Sprintf("%x", b.Head.Root),
		Public: len(b.Head.Key) > 0, Left: problemsJSON(b.Left), Warnings: append([]string{}, b.Warnings...)}
	for _, t := range b.Tasks {
		row := builtTask{Task: t.Task, Groups: len(t.Groups), Items: itemsOf(t), Novel: t.Novel, Kept: t.Kept, Allowed: t.Allowed, Uncovered: map[string]int{}, Bytes: t.Size}
		for _, c := range t.Uncovered {
			row.Uncovered[kindName(c.Kind)] = int(c.N)
		}
		out.Tasks = append(out.Tasks, row)
	}
	return out
}

func itemsOf(t seal.TaskSeal) (n int) {
	for _, g := range t.Groups {
		n += g.Items
	}
	return n
}

// tableRows is how many tasks the table shows; -json has all.
const tableRows = 40

func builtText(w io.Writer, file string, b *seal.Built) error {
	h := b.Head
	fmt.Fprintf(w, "sealed %s, %s, into %s\n", h.Benchmark, counted(int(h.Tasks), "task"), file)
	fmt.Fprintf(w, " root       %x\n", h.Root)
	if h.Revision != "" {
		fmt.Fprintf(w, " revision   %s\n", h.Revision)
	}
	if len(h.Key) > 0 {
		fmt.Fprintf(w, " public     the key is in the file: anybody with the data of digest %x can check it (cleanrun seal -check)\n", h.Data[:8])
	}
	if h.Weak > 0 {
		fmt.Fprintf(w, " left out   %s, which the file counts\n", counted(int(h.Weak), "task"))
		for _, p := range b.Left {
			fmt.Fprintf(w, "   %s: task %s: %s: %s\n", p.Place, p.Task, p.Kind, p.Reason)
		}
	}
	items, novel, kept, weak, size := 0, 0, 0, 0, 0
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(t, " items\tgroups\tkept\tallowed\tweak\tbytes\t  task\n")
	for i, s := range b.Tasks {
		n := itemsOf(s)
		items, novel, kept, weak, size = items+n, novel+s.Novel, kept+s.Kept, weak+s.Weak(), size+s.Size
		if i < tableRows {
			fmt.Fprintf(t, " %d\t%d\t%d of %d\t%d\t%d\t%d\t  %s\n", n, len(s.Groups), s.Kept, s.Novel, s.Allowed, s.Weak(), s.Size, s.Task)
		}
	}
	if more := len(b.Tasks) - tableRows; more > 0 {
		fmt.Fprintf(t, " \t\t\t\t\t\t  and %d more (-json has all)\n", more)
	}
	fmt.Fprintf(t, " %d\t\t%d of %d\t\t%d\t%d\t  in all\n", items, kept, novel, weak, size)
	return t.Flush()
}

type checkedBenchmark struct {
	Verdict     string             `json:"verdict"` // CONSISTENT, UNDECIDED or INVALID
	Benchmark   string             `json:"benchmark"`
	Owner       *verify.Party      `json:"owner"`
	Sealed      uint64             `json:"sealed"`
	Equal       int                `json:"equal"` // sets that were rebuilt and are equal byte for byte
	Left        []string           `json:"left"`
	Differences []differenceOfSeal `json:"differences"`
}

type differenceOfSeal struct {
	Task  string `json:"task"`
	Field string `json:"field"`
	Got   string `json:"got"`
	Want  string `json:"want"`
}

// checkBenchmark rebuilds a seal from its data.
func checkBenchmark(e *cli.Env, path string, o sealOptions) error {
	s, err := seal.OpenSealed(o.check)
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			return err
		}
		return &cli.Error{Code: cli.ExitInvalid, Err: err}
	}
	defer s.Close()
	owner, err := sealOwner(s, o.policy)
	if err != nil {
		return err
	}
	head := s.Head()
	key, public := head.Public()
	if o.key != "" {
		if key, err = readBenchmarkKey(o.key, head.Benchmark, head.Period); err != nil {
			return err
		}
	} else if !public {
		return cli.Failf(cli.ExitUsage, "name the audit or benchmark key with -key", "%s: the key is not public", o.check)
	}
	b, err := seal.LoadBenchmark(path)
	if err != nil {
		return err
	}
	defer b.Close()
	p := cli.NewProgress(e.Stderr, "checking")
	c, err := b.Check(s, key, seal.SealOptions{Progress: func(done, total uint64) { p.Update(done, total, "tasks") }})
	p.Done()
	if err != nil {
		return err
	}
	out := checkedBenchmark{Verdict: "CONSISTENT", Benchmark: head.Benchmark, Owner: owner, Sealed: head.Tasks, Equal: c.Tasks, Left: append([]string{}, c.Left...), Differences: []differenceOfSeal{}}
	code := cli.ExitClean
	if !owner.Pinned {
		out.Verdict, code = verify.Undecided, cli.ExitInconclusive
	}
	for _, d := range c.Differences {
		out.Differences = append(out.Differences, differenceOfSeal(d))
		out.Verdict, code = verify.Invalid, cli.ExitInvalid
	}
	if e.JSON {
		err = e.PrintJSON(out)
	} else {
		err = checkedText(e.Stdout, o.check, &out, c.Differences)
	}
	if err == nil && code != 0 {
		err = cli.Exit(code)
	}
	return err
}

// sealOwner is who signed the head, pinned if the policy has the key and it
// signed.
func sealOwner(s *seal.Sealed, policyPath string) (*verify.Party, error) {
	said := s.Unverified().Unauthenticated()
	party := &verify.Party{Name: said.Issuer, Fingerprint: receipt.Fingerprint(said.Kid)}
	if policyPath == "" {
		return party, nil
	}
	policy, err := readPolicy(policyPath)
	if err != nil {
		return nil, err
	}
	for _, key := range policy.Owners {
		if key.Thumbprint() != said.Kid {
			continue
		}
		if _, err := s.Unverified().Verify(key); err != nil {
			return nil, &cli.Error{Code: cli.ExitInvalid, Err: err}
		}
		party.Pinned = true
		return party, nil
	}
	return nil, cli.Failf(cli.ExitInvalid, "if this owner is to be trusted, ask for its policy line over another channel",
		"the seal was signed by %s, which calls itself %q: want one of the %d owner keys of the policy", party.Fingerprint, party.Name, len(policy.Owners))
}

func checkedText(w io.Writer, file string, c *checkedBenchmark, differences []seal.Difference) error {
	var b strings.Builder
	switch c.Verdict {
	case verify.Invalid:
		fmt.Fprintf(&b, "%s  %s is not what the data gives\n", c.Verdict, file)
	case verify.Undecided:
		fmt.Fprintf(&b, "%s  consistent; signer unknown\n", c.Verdict)
	default:
		fmt.Fprintf(&b, "%s  %s is what the data gives, byte for byte\n", c.Verdict, file)
	}
	if c.Owner.Pinned {
		fmt.Fprintf(&b, " sealed by  %s   (pinned owner)\n", c.Owner.Name)
	} else {
		fmt.Fprintf(&b, " sealed by  unknown, calls itself %q   (not pinned, key %s)\n", c.Owner.Name, c.Owner.Fingerprint)
	}
	fmt.Fprintf(&b, " rebuilt    %d of %s equal\n", c.Equal, counted(int(c.Sealed), "set"))
	for _, d := range differences {
		fmt.Fprintf(&b, "   %s\n", d)
	}
	if n := len(c.Left); n > 0 {
		fmt.Fprintf(&b, " left out   %s of the data: %s\n", counted(n, "task"), strings.Join(c.Left[:min(n, 10)], ", "))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// A benchmarkTask is what a run of one task of a sealed benchmark needs.
type benchmarkTask struct {
	Sealed []byte // the task's part of the seal: task.sealed
	Set    *contraband.Set
	Task   *seal.Task // StageTests lays the hidden tests out
	Prompt []byte
	Hidden []string // host paths that a run must not find
}

// openBenchmarkTask cuts one task's part out of a benchmark's seal and finds its
// prompt and workspace in the data. It reads no ground truth, but for a row of a
// data file, which holds both. The signature is not checked: verify does.
func openBenchmarkTask(sealed, data, id string) (*benchmarkTask, error) {
	s, err := seal.OpenSealed(sealed)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	b, err := seal.LoadBenchmark(data)
	if err != nil {
		return nil, err
	}
	defer b.Close()
	t := new(benchmarkTask)
	if t.Sealed, t.Set, err = s.Part(id); err != nil {
		return nil, fmt.Errorf("%s: %w", sealed, err)
	}
	if t.Task, err = b.Task(id); err != nil {
		return nil, err
	}
	if b.Name != s.Head().Benchmark || b.Period != s.Head().Period {
		return nil, cli.Failf(cli.ExitUsage, "", "%s seals %s, and %s is %s", sealed, s.Head().Benchmark, data, b.Name)
	}
	if t.Prompt, err = t.Task.PromptText(); err != nil {
		return nil, err
	}
	t.Hidden, err = t.Task.Hidden()
	return t, err
}
