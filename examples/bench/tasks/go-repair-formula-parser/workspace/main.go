// Command formula computes formulas: one a line on stdin, one answer a line.
package main

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	vars := map[string]int64{}
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if strings.TrimSpace(in.Text()) == "" {
			continue
		}
		v, err := Line(in.Text(), vars)
		if err != nil {
			out.WriteString("error at " + strconv.Itoa(err.Column) + ": " + err.Why + "\n")
			continue
		}
		out.WriteString(strconv.FormatInt(v, 10) + "\n")
	}
}
