// Command ring keeps the last readings of a sensor: commands on stdin, answers on stdout.
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
	ring := NewRing(4)
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		words := strings.Fields(in.Text())
		if len(words) == 0 {
			continue
		}
		n := 0
		if len(words) > 1 {
			n, _ = strconv.Atoi(words[1])
		}
		switch words[0] {
		case "push":
			ring.Push(n)
		case "pop":
			v, ok := ring.Pop()
			answer(out, v, ok)
		case "at":
			v, ok := ring.At(n)
			answer(out, v, ok)
		case "last":
			list(out, ring.Last(n))
		case "resize":
			ring.Resize(n)
		case "peak":
			v, ok := ring.Peak()
			answer(out, v, ok)
		case "lost":
			answer(out, ring.Lost(), true)
		case "len":
			answer(out, ring.Len(), true)
		}
	}
}

func answer(out *bufio.Writer, v int, ok bool) {
	if !ok {
		out.WriteString("none\n")
		return
	}
	out.WriteString(strconv.Itoa(v) + "\n")
}

func list(out *bufio.Writer, vs []int) {
	texts := make([]string, len(vs))
	for i, v := range vs {
		texts[i] = strconv.Itoa(v)
	}
	out.WriteString("[" + strings.Join(texts, " ") + "]\n")
}
