// Command tables makes the tables of a Markdown text even.
package main

import (
	"io"
	"os"
	"strings"
)

func main() {
	b, err := io.ReadAll(os.Stdin)
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(2)
	}
	lines := strings.Split(string(b), "\n")
	os.Stdout.WriteString(strings.Join(Align(lines), "\n"))
}
