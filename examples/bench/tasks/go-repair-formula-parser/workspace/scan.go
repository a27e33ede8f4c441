package main

// A Token is a number, a name, a sign or the end of the line.
type Token struct {
	Kind   byte // '0', 'a', the sign itself, or 0 for the end
	Text   string
	Column int
}

// An Error says where and why a formula has no value.
type Error struct {
	Column int
	Why    string
}

// Scan cuts a line into tokens; the last one is the end. A character that no
// token begins with is a token of its own kind.
func Scan(line string) []Token {
	var out []Token
	for i := 0; i < len(line); {
		c := line[i]
		j := i + 1
		switch {
		case c == ' ' || c == '\t' || c == '\r':
			i++
			continue
		case '0' <= c && c <= '9':
			for j < len(line) && '0' <= line[j] && line[j] <= '9' {
				j++
			}
			out = append(out, Token{'0', line[i:j], i + 1})
		case 'a' <= c && c <= 'z':
			for j < len(line) && 'a' <= line[j] && line[j] <= 'z' {
				j++
			}
			out = append(out, Token{'a', line[i:j], i + 1})
		default:
			out = append(out, Token{c, line[i:j], i + 1})
		}
		i = j
	}
	return append(out, Token{0, "end", len(line) + 1})
}
