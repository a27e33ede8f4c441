package main

import (
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/cleanrun-dev/cleanrun/benchmark"
	"github.com/cleanrun-dev/cleanrun/internal/cli"
)

// badTasks names every task that cannot be sealed well.
func badTasks(e *cli.Env, err error) error {
	var bad *benchmark.BadTasksError
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
	}{fmt.Sprintf("%s in %s of %s", several(len(bad.Problems), "problem", "problems"), several(bad.Tasks, "task", "tasks"), bad.Benchmark), hint, problemsJSON(bad.Problems)}); err != nil {
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

func problemsJSON(list []benchmark.Problem) []problemJSON {
	out := []problemJSON{}
	for _, p := range list {
		out = append(out, problemJSON(p))
	}
	return out
}

type builtTask struct {
	Task      string           `json:"task"`
	Groups    int              `json:"groups"`
	Items     int              `json:"items"`
	Novel     int              `json:"novel"`
	Kept      int              `json:"kept"`
	Allowed   int              `json:"allowed"`
	Uncovered map[string]int   `json:"uncovered"`
	Bytes     int              `json:"bytes"`
	Footprint *sealedFootprint `json:"footprint,omitempty"`
	Expect    *sealedExpect    `json:"expect,omitempty"`
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

func builtJSON(file string, b *benchmark.Built) builtBenchmark {
	out := builtBenchmark{File: file, Benchmark: b.Head.Benchmark, Period: b.Head.Period, Revision: b.Head.Revision, Root: fmt.Sprintf("%x", b.Head.Root),
		Public: len(b.Head.Key) > 0, Left: problemsJSON(b.Left), Warnings: append([]string{}, b.Warnings...)}
	for _, t := range b.Tasks {
		row := builtTask{Task: t.Task, Groups: len(t.Groups), Items: itemsOf(t), Novel: t.Novel, Kept: t.Kept, Allowed: t.Allowed, Uncovered: map[string]int{}, Bytes: t.Size,
			Footprint: footprintJSON(t.Footprint), Expect: expectJSON(t.Expect)}
		for _, c := range t.Uncovered {
			row.Uncovered[kindName(c.Kind)] = int(c.N)
		}
		out.Tasks = append(out.Tasks, row)
	}
	return out
}

func itemsOf(t benchmark.TaskSeal) (n int) {
	for _, g := range t.Groups {
		n += g.Items
	}
	return n
}

// tableRows is how many tasks the table shows; -json has all.
const tableRows = 40

func builtText(w io.Writer, file string, b *benchmark.Built) error {
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
	fmt.Fprint(w, surroundingsOf(b.Tasks))
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
