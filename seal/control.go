package seal

import (
	"fmt"
	"io"
	"strings"
)

// The control text is syllables: it goes through every reading and form as an
// ordinary text does, and no other text holds a shingle of it by chance (6 bits
// a syllable, 24 syllables a shingle).
const (
	controlHead  = "cleanrun control file, random words:\n"
	consonants   = "bdfghjklmnprstvz" // 16
	vowels       = "aeio"             // 4
	controlWords = 600
)

// NewControl draws the control text of one task from random (crypto/rand). It
// is public: the sealed set holds it, and every run opens it.
func NewControl(random io.Reader) (string, error) {
	draw := make([]byte, 3*controlWords)
	if _, err := io.ReadFull(random, draw); err != nil {
		return "", fmt.Errorf("control text: %w", err)
	}
	var b strings.Builder
	b.WriteString(controlHead)
	for i, d := range draw {
		b.WriteByte(consonants[d>>4])
		b.WriteByte(vowels[d>>2&3])
		switch {
		case i%36 == 35:
			b.WriteByte('\n')
		case i%3 == 2:
			b.WriteByte(' ')
		}
	}
	return b.String(), nil
}
