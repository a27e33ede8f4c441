// Command bench measures what recording costs, as ratios within one run.
//
// Limits: one machine, other load on it, no confidence intervals: repetitions are
// interleaved and the median is shown. Nothing here passes or fails.
//
//	go run ./bench [-n 5] [-only REGEXP] [-json] [-dir DIR]
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"text/tabwriter"

	"github.com/cleanrun-dev/cleanrun/sandbox"
)

// A Measure is one line of the report.
type Measure struct {
	Name    string             `json:"name"`
	Unit    string             `json:"unit"`            // of the values: "s", or a rate
	Values  map[string]float64 `json:"values"`          // median by contestant
	CPU     map[string]float64 `json:"cpu,omitempty"`   // seconds of all processes, ours included; steadier than time under load
	Ratio   map[string]float64 `json:"ratio,omitempty"` // of the values to bare
	Missing map[string]string  `json:"missing,omitempty"`
	Aim     string             `json:"aim,omitempty"`
}

// A Report is the whole output of -json.
type Report struct {
	System   string    `json:"system"`
	CPUs     int       `json:"cpus"`
	Repeat   int       `json:"repeat"`
	Measures []Measure `json:"measures"`
}

// stages are what a process of its own does, by the variable that asks for it.
var stages = map[string]func(string) error{auditVar: auditStage, servedVar: servedStage}

func main() {
	sandbox.Stage()
	if n := os.Getenv(opensVar); n != "" {
		os.Exit(opens(n))
	}
	for name, stage := range stages {
		if job := os.Getenv(name); job != "" {
			if err := stage(job); err != nil {
				fmt.Fprintln(os.Stderr, "bench: error:", err)
				os.Exit(2)
			}
			return
		}
	}
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "bench: error:", err)
		os.Exit(2)
	}
}

func run() error {
	repeat := flag.Int("n", 5, "repetitions; the median is shown")
	only := flag.String("only", "", "measure only what matches this regular expression")
	asJSON := flag.Bool("json", false, "print one JSON object instead of a table")
	dir := flag.String("dir", "", "folder for temporary files (default: the system's; it should be on a real disk)")
	flag.Parse()
	if flag.NArg() > 0 || *repeat < 1 {
		return errors.New("usage: bench [-n N] [-only REGEXP] [-json] [-dir DIR]")
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	tmp, err := os.MkdirTemp(*dir, "cleanrun-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	rep := Report{System: runtime.GOOS + "/" + runtime.GOARCH, CPUs: runtime.NumCPU(), Repeat: *repeat}
	for _, p := range programs {
		if match.MatchString(p.name) {
			fmt.Fprintln(os.Stderr, "measuring:", p.name)
			m, err := compare(p, tmp, *repeat)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			rep.Measures = append(rep.Measures, m)
		}
	}
	for _, r := range rates {
		if match.MatchString(r.name) {
			fmt.Fprintln(os.Stderr, "measuring:", r.name)
			m, err := r.measure(tmp, *repeat)
			if err != nil {
				return fmt.Errorf("%s: %w", r.name, err)
			}
			m.Name, m.Aim = r.name, r.aim
			rep.Measures = append(rep.Measures, m)
		}
	}
	if len(rep.Measures) == 0 {
		return fmt.Errorf("-only %q matches nothing", *only)
	}
	if *asJSON {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(rep)
	}
	return table(rep)
}

func table(rep Report) error {
	fmt.Printf("%s, %d CPUs, medians of %d\n\n", rep.System, rep.CPUs, rep.Repeat)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	programTable(w, "seconds", rep, func(m Measure) map[string]float64 { return m.Values })
	programTable(w, "CPU seconds", rep, func(m Measure) map[string]float64 { return m.CPU })
	for _, m := range rep.Measures {
		if m.Unit == "s" {
			continue
		}
		name := m.Name
		if m.Aim != "" {
			name += " (aim: " + m.Aim + ")"
		}
		fmt.Fprintln(w, name)
		for _, c := range sortedKeys(m.Values) {
			fmt.Fprintf(w, "  %s\t%.0f %s\n", c, m.Values[c], m.Unit)
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, m := range rep.Measures {
		for _, c := range sortedKeys(m.Missing) {
			fmt.Printf("not measured: %s, %s: %s\n", m.Name, c, m.Missing[c])
		}
	}
	return nil
}

// programTable prints one line for each program that was compared.
func programTable(w *tabwriter.Writer, title string, rep Report, of func(Measure) map[string]float64) {
	header := title + "\t" + strings.Join(contestants, "\t") + "\taim\n"
	for _, m := range rep.Measures {
		if m.Unit != "s" {
			continue
		}
		fmt.Fprint(w, header)
		header = ""
		cells := []string{m.Name}
		for _, c := range contestants {
			switch v, ok := of(m)[c]; {
			case !ok:
				cells = append(cells, "-")
			case c == bare:
				cells = append(cells, fmt.Sprintf("%.3f", v))
			default:
				cells = append(cells, fmt.Sprintf("%.3f (%.1fx)", v, v/of(m)[bare]))
			}
		}
		fmt.Fprintln(w, strings.Join(append(cells, m.Aim), "\t"))
	}
	if header == "" {
		fmt.Fprintln(w)
	}
}
