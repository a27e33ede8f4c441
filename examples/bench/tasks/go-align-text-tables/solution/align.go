package main

import (
	"strings"
	"unicode/utf8"
)

// Align makes the tables in a Markdown text even.
func Align(lines []string) []string {
	var out []string
	code := false
	for i := 0; i < len(lines); {
		if strings.HasPrefix(lines[i], "```") {
			code = !code
		}
		n := 0
		if !code {
			n = tableAt(lines[i:])
		}
		if n == 0 {
			out = append(out, lines[i])
			i++
			continue
		}
		out = append(out, even(lines[i:i+n])...)
		i += n
	}
	return out
}

// tableAt returns how many lines the table has that begins here, or 0.
func tableAt(lines []string) int {
	first, ok := cells(lines[0])
	if !ok || len(lines) < 2 {
		return 0
	}
	rule, ok := cells(lines[1])
	if !ok || len(rule) != len(first) {
		return 0
	}
	for _, c := range rule {
		if _, _, ok := ruler(c); !ok {
			return 0
		}
	}
	n := 2
	for n < len(lines) {
		row, ok := cells(lines[n])
		if !ok || len(row) != len(first) {
			break
		}
		n++
	}
	return n
}

// cells cuts a line of a table.
func cells(line string) ([]string, bool) {
	line = strings.Trim(line, " \t")
	if len(line) < 2 || line[0] != '|' || line[len(line)-1] != '|' || escaped(line, len(line)-1) {
		return nil, false
	}
	var out []string
	start := 1
	for i := 1; i < len(line); i++ {
		if line[i] == '|' && !escaped(line, i) {
			out = append(out, strings.Trim(line[start:i], " \t"))
			start = i + 1
		}
	}
	return out, true
}

func escaped(line string, at int) bool { return at > 0 && line[at-1] == '\\' }

// ruler says whether a cell is one of the rule, and where it has colons.
func ruler(cell string) (left, right, ok bool) {
	hyphens := cell
	hyphens, left = strings.CutPrefix(hyphens, ":")
	hyphens, right = strings.CutSuffix(hyphens, ":")
	return left, right, hyphens != "" && strings.Trim(hyphens, "-") == ""
}

func even(lines []string) []string {
	indent := lines[0][:strings.IndexByte(lines[0], '|')]
	var rows [][]string
	for _, line := range lines {
		row, _ := cells(line)
		rows = append(rows, row)
	}
	width := make([]int, len(rows[0]))
	for i := range width {
		width[i] = 3
		for r, row := range rows {
			if r != 1 {
				width[i] = max(width[i], utf8.RuneCountInString(row[i]))
			}
		}
	}
	var out []string
	for r, row := range rows {
		line := indent + "|"
		for i, cell := range row {
			left, right, _ := ruler(rows[1][i])
			if r == 1 {
				cell = drawn(width[i], left, right)
			} else {
				cell = placed(cell, width[i]-utf8.RuneCountInString(cell), left, right)
			}
			line += " " + cell + " |"
		}
		out = append(out, line)
	}
	return out
}

func drawn(width int, left, right bool) string {
	line := []byte(strings.Repeat("-", width))
	if left {
		line[0] = ':'
	}
	if right {
		line[width-1] = ':'
	}
	return string(line)
}

func placed(cell string, room int, left, right bool) string {
	before := 0
	switch {
	case left && right:
		before = room / 2
	case right:
		before = room
	}
	return strings.Repeat(" ", before) + cell + strings.Repeat(" ", room-before)
}
