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
