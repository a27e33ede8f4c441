// Command lines shows how a text changed.
package main

import (
	"bufio"
	"os"
	"strings"
)

func read(name string) []string {
	b, err := os.ReadFile(name)
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(2)
	}
	if len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

func main() {
	if len(os.Args) != 3 {
		os.Stderr.WriteString("usage: lines OLD NEW\n")
		os.Exit(2)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for _, c := range Diff(read(os.Args[1]), read(os.Args[2])) {
		out.WriteString(string(c.Kind) + " " + c.Text + "\n")
	}
}
