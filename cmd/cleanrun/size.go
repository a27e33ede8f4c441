package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// parseSize reads a number of bytes: decimal digits and, perhaps, K, M, G or T for
// powers of 1024.
func parseSize(s string) (uint64, error) {
	digits, shift := s, 0
	if n := strings.IndexAny("KMGT", s[max(0, len(s)-1):]); n >= 0 {
		digits, shift = s[:len(s)-1], 10*(n+1)
	}
	v, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || v == 0 || strings.HasPrefix(digits, "+") || v > math.MaxInt64>>shift {
		return 0, fmt.Errorf("got %q, want a number from 1, with K, M, G or T for powers of 1024", s)
	}
	return v << shift, nil
}

// counted is a number of things, "1 run" or "12,000 runs".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return thousands(uint64(n)) + " " + thing + "s"
}

// several is a number of things without commas, as a script reads it: "1 entry" or
// "1200 entries".
func several[N int | int64 | uint32 | uint64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// thousands writes a number with commas between thousands.
func thousands(n uint64) string {
	s := strconv.FormatUint(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
