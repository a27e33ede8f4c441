// Command units answers questions about units: rules and questions on stdin.
package main

import (
	"bufio"
	"os"
	"strings"
)

// A Rule says that Left of the unit From is Right of the unit To. Both numbers
// are decimal and above 0.
type Rule struct {
	Left, From, Right, To string
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	var rules []Rule
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		w := strings.Fields(in.Text())
		switch {
		case len(w) == 5 && w[2] == "=":
			rules = append(rules, Rule{w[0], w[1], w[3], w[4]})
		case len(w) == 4 && w[2] == "in":
			answer, err := Convert(rules, w[0], w[1], w[3])
			if err != nil {
				answer = "error: " + err.Error()
			}
			out.WriteString(answer + "\n")
		case len(w) == 1 && w[0] == "forget":
			rules = nil
		}
	}
}
