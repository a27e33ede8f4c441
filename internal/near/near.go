// Package near finds the word that was probably meant by a misspelt one: of a flag, a
// command, a key of a file.
package near

// Word is the word of a list that was probably meant by word: the first with the
// fewest edits, at most a third of its letters; "" if there is none. An edit is a
// letter put in, left out or changed, or two neighbours swapped.
func Word(word string, list []string) string {
	best, least := "", len([]rune(word))/3+1
	for _, w := range list {
		if d := edits([]rune(word), []rune(w)); d < least {
			best, least = w, d
		}
	}
	return best
}

// edits is the distance of optimal string alignment (Damerau 1964, Communications of
// the ACM 7, 171-176, without a second edit in what was swapped).
func edits(a, b []rune) int {
	var before, last []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		before, last, row = last, row, make([]int, len(b)+1)
		row[0] = i + 1
		for j := range b {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
	}
	return row[len(b)]
}
