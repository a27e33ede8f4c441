package submission

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// A Rule makes one value of the trials of a task. The zero value is no rule.
type Rule struct {
	name string
	k    uint32
}

const (
	ruleMean    = "mean"
	rulePassAt  = "pass@k"
	rulePassHat = "pass^k"
)

// Mean is the mean of a task's scored trials.
func Mean() Rule { return Rule{name: ruleMean} }

// ParseRule reads "mean", "pass@3" or "pass^3".
func ParseRule(text string) (Rule, error) {
	if text == ruleMean {
		return Mean(), nil
	}
	for _, r := range []string{rulePassAt, rulePassHat} {
		digits, ok := strings.CutPrefix(text, strings.TrimSuffix(r, "k"))
		if !ok {
			continue
		}
		k, err := strconv.ParseUint(digits, 10, 32)
		if err == nil && strconv.FormatUint(k, 10) == digits {
			return newRule(r, uint32(k))
		}
	}
	return Rule{}, bad("score rule", quote(text), "mean, pass@K or pass^K with a number from 1")
}

func newRule(name string, k uint32) (Rule, error) {
	switch {
	case name == ruleMean && k == 0:
	case (name == rulePassAt || name == rulePassHat) && k >= 1 && k <= MaxTrials:
	default:
		return Rule{}, bad("score rule", fmt.Sprintf("%s with k = %d", quote(name), k), fmt.Sprintf("mean with k = 0, or pass@k or pass^k with k from 1 to %d", MaxTrials))
	}
	return Rule{name, k}, nil
}

// String is what ParseRule reads.
func (r Rule) String() string {
	if r.k == 0 {
		return r.name
	}
	return strings.TrimSuffix(r.name, "k") + strconv.FormatUint(uint64(r.k), 10)
}

// value of the scored trials of one task, nil if they are too few. A trial has
// passed if its score is exactly 1.
func (r Rule) value(trials []*big.Rat) *big.Rat {
	n, c := int64(len(trials)), int64(0)
	if n == 0 || n < int64(r.k) {
		return nil
	}
	sum := new(big.Rat)
	for _, t := range trials {
		sum.Add(sum, t)
		if t.Cmp(one) == 0 {
			c++
		}
	}
	k := int64(r.k)
	switch r.name {
	case rulePassAt:
		// The unbiased estimator 1 - C(n-c, k) / C(n, k): Chen et al. 2021,
		// arXiv:2107.03374, section 2.1.
		return new(big.Rat).Sub(one, choose(n-c, n, k))
	case rulePassHat:
		// C(c, k) / C(n, k): Yao et al. 2024, arXiv:2406.12045, section 3.
		return choose(c, n, k)
	}
	return sum.Quo(sum, new(big.Rat).SetInt64(n))
}

var one = big.NewRat(1, 1)

// choose is C(a, k) / C(n, k).
func choose(a, n, k int64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).Binomial(a, k), new(big.Int).Binomial(n, k))
}

// Methods of a confidence interval.
const (
	// MethodWilson is the score interval of Wilson 1927 (Journal of the American
	// Statistical Association 22, 209-212) over tasks, where each task has the
	// value 0 or 1.
	MethodWilson = "wilson-95"
	// MethodClustered is the normal interval with the standard error clustered by
	// task (Miller 2024, arXiv:2411.00640, section 2.2): that of the mean of the
	// tasks' values, so that trials of one task do not count as independent. Cut to
	// 0 to 1 if all values are in there.
	MethodClustered = "clustered-normal-95"
	// MethodNone stands where there is no interval: no task, or one task with a
	// value between 0 and 1.
	MethodNone = "none"
)

// z is the 97.5% point of the standard normal distribution.
var z = big.NewRat(1_959_963_984_540_054, 1_000_000_000_000_000)

// interval of the mean of values.
func interval(values []*big.Rat) Interval {
	n := int64(len(values))
	mean := meanOf(values)
	if mean == nil {
		return Interval{Method: MethodNone}
	}
	count := new(big.Rat).SetInt64(n)
	binary, share := true, true
	for _, v := range values {
		binary = binary && (v.Sign() == 0 || v.Cmp(one) == 0)
		share = share && v.Sign() >= 0 && v.Cmp(one) <= 0
	}
	if binary {
		// (p + zz/2n +- z sqrt(p(1-p)/n + zz/4nn)) / (1 + zz/n)
		zz := new(big.Rat).Mul(z, z)
		zzn := new(big.Rat).Quo(zz, count)
		variance := new(big.Rat).Sub(one, mean)
		variance.Mul(variance, mean).Quo(variance, count)
		variance.Add(variance, new(big.Rat).Quo(zzn, new(big.Rat).Mul(count, big.NewRat(4, 1))))
		half := new(big.Rat).Mul(z, sqrt(variance))
		centre := new(big.Rat).Add(mean, new(big.Rat).Mul(zzn, big.NewRat(1, 2)))
		scale := new(big.Rat).Add(one, zzn)
		return Interval{
			Low:  printDecimal(new(big.Rat).Quo(new(big.Rat).Sub(centre, half), scale)),
			High: printDecimal(new(big.Rat).Quo(new(big.Rat).Add(centre, half), scale)), Method: MethodWilson,
		}
	}
	if n < 2 {
		return Interval{Method: MethodNone}
	}
	sum := new(big.Rat)
	for _, v := range values {
		d := new(big.Rat).Sub(v, mean)
		sum.Add(sum, d.Mul(d, d))
	}
	sum.Quo(sum, new(big.Rat).SetInt64(n*(n-1)))
	half := new(big.Rat).Mul(z, sqrt(sum))
	low, high := new(big.Rat).Sub(mean, half), new(big.Rat).Add(mean, half)
	if share && low.Sign() < 0 {
		low.SetInt64(0)
	}
	if share && high.Cmp(one) > 0 {
		high.SetInt64(1)
	}
	return Interval{Low: printDecimal(low), High: printDecimal(high), Method: MethodClustered}
}

// meanOf is nil without values.
func meanOf(values []*big.Rat) *big.Rat {
	if len(values) == 0 {
		return nil
	}
	sum := new(big.Rat)
	for _, v := range values {
		sum.Add(sum, v)
	}
	return sum.Quo(sum, new(big.Rat).SetInt64(int64(len(values))))
}

// sqrtScale is the square of 10^20: square roots are cut after 20 decimals, by
// whole numbers, so that no machine's floats decide a printed digit.
var sqrtScale = new(big.Int).Exp(big.NewInt(10), big.NewInt(40), nil)

// sqrt of a number that is not negative.
func sqrt(r *big.Rat) *big.Rat {
	scaled := new(big.Int).Mul(r.Num(), sqrtScale)
	scaled.Quo(scaled, r.Denom())
	return new(big.Rat).SetFrac(scaled.Sqrt(scaled), new(big.Int).Sqrt(sqrtScale))
}

// decimals that a statement prints.
const decimals = 6

// printDecimal rounds to six digits after the point, halves away from zero.
func printDecimal(r *big.Rat) string {
	s := r.FloatString(decimals)
	if strings.Trim(s, "-0.") == "" {
		s = strings.TrimPrefix(s, "-")
	}
	return s
}

// parseDecimal reads a decimal in the spelling of attest.Score: an optional
// minus, 1 to 15 digits without a leading zero, and an optional fraction of at
// most nine digits.
func parseDecimal(v string) (*big.Rat, bool) {
	whole, fraction, point := strings.Cut(strings.TrimPrefix(v, "-"), ".")
	if len(whole) == 0 || len(whole) > 15 || len(whole) > 1 && whole[0] == '0' || !digits(whole) {
		return nil, false
	}
	if point && (len(fraction) == 0 || len(fraction) > 9 || !digits(fraction)) {
		return nil, false
	}
	return new(big.Rat).SetString(v)
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}
