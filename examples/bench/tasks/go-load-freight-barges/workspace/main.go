// Command barges loads crates onto barges: both on stdin, the plan on stdout.
package main

import (
	"bufio"
	"os"
	"sort"
	"strconv"
	"strings"
)

// A Barge has room for so many tonnes.
type Barge struct {
	Name string
	Room int
}

// A Crate has a name that no other has. With is the name of the crate that it
// must travel with, or empty.
type Crate struct {
	Name, Kind string
	Weight     int
	With       string
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	var barges []Barge
	var crates []Crate
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		w := strings.Fields(in.Text())
		switch {
		case len(w) == 3 && w[0] == "barge":
			room, _ := strconv.Atoi(w[2])
			barges = append(barges, Barge{w[1], room})
		case len(w) >= 4 && w[0] == "crate":
			weight, _ := strconv.Atoi(w[3])
			c := Crate{Name: w[1], Kind: w[2], Weight: weight}
			if len(w) == 6 && w[4] == "with" {
				c.With = w[5]
			}
			crates = append(crates, c)
		case len(w) == 1 && w[0] == "load":
			onto, left := Load(barges, crates)
			for _, b := range barges {
				var names []string
				for c, at := range onto {
					if at == b.Name {
						names = append(names, c)
					}
				}
				sort.Strings(names)
				out.WriteString(b.Name + ": " + strings.Join(names, " ") + "\n")
			}
			out.WriteString("left: " + strings.Join(left, " ") + "\n")
			barges, crates = nil, nil
		}
	}
}
