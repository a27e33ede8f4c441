package submission

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/cleanrun-dev/cleanrun/attest"
)

// naive enumerates the subsets of k of n trials of which the first c have passed:
// in how many at least one has passed, and in how many all have.
func naive(n, c, k int) (anyPassed, allPassed *big.Rat) {
	subsets, some, all := int64(0), int64(0), int64(0)
	for set := range uint64(1) << n {
		if bits.OnesCount64(set) != k {
			continue
		}
		subsets++
		passed := bits.OnesCount64(set & (1<<c - 1))
		if passed > 0 {
			some++
		}
		if passed == k {
			all++
		}
	}
	return big.NewRat(some, subsets), big.NewRat(all, subsets)
}

func TestPassAtK(t *testing.T) {
	cases := 0
	for n := 1; n <= 12; n++ {
		for c := 0; c <= n; c++ {
			var trials []*big.Rat
			for i := range n {
				// What is not 1 has not passed.
				v := big.NewRat(1, 1)
				if i >= c {
					v = big.NewRat(int64(i%3), 3)
				}
				trials = append(trials, v)
			}
			for k := 1; k <= n; k++ {
				some, all := naive(n, c, k)
				at, hat := Rule{rulePassAt, uint32(k)}, Rule{rulePassHat, uint32(k)}
				if got := at.value(trials); got.Cmp(some) != 0 {
					t.Fatalf("pass@%d of %d of %d: got %v, want %v", k, c, n, got, some)
				}
				if got := hat.value(trials); got.Cmp(all) != 0 {
					t.Fatalf("pass^%d of %d of %d: got %v, want %v", k, c, n, got, all)
				}
				cases++
			}
			for _, r := range []Rule{{rulePassAt, uint32(n + 1)}, {rulePassHat, uint32(n + 1)}} {
				if got := r.value(trials); got != nil {
					t.Fatalf("%v of %d trials: got %v, want none", r, n, got)
				}
			}
		}
	}
	if cases < 500 {
		t.Fatalf("got %d cases", cases)
	}
}

func float(t *testing.T, s string) float64 {
	t.Helper()
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func near(a, b float64) bool { return math.Abs(a-b) <= 0.5000001e-6 }

// Intervals against floats, and Wilson's against its definition: the p that are
// exactly z standard errors away from the observed share.
func TestInterval(t *testing.T) {
	const z = 1.959963984540054
	r := rand.New(rand.NewPCG(1, 2))
	methods, cut := map[string]int{}, 0
	for range 3000 {
		n := 1 + r.IntN(40)
		binary, wide := r.IntN(2) == 0, r.IntN(2) == 0
		var values []*big.Rat
		var sum float64
		var floats []float64
		for range n {
			v := big.NewRat(int64(r.IntN(2)), 1)
			if !binary {
				v = big.NewRat(int64(r.IntN(11)), 10)
				if wide {
					v = big.NewRat(int64(r.IntN(80)-30), 10)
				}
			}
			f, _ := v.Float64()
			values, floats, sum = append(values, v), append(floats, f), sum+f
		}
		mean := sum / float64(n)
		got := interval(values)
		methods[got.Method]++
		switch got.Method {
		case MethodWilson:
			for _, bound := range []string{got.Low, got.High} {
				p := float(t, bound)
				// (mean - p)^2 = z^2 p(1-p)/n, up to the rounding of p
				slope := 2*math.Abs(mean-p) + z*z/float64(n) + 1e-6
				if diff := math.Abs((mean-p)*(mean-p) - z*z*p*(1-p)/float64(n)); diff > slope*0.6e-6 {
					t.Fatalf("%v of %d: %v is off by %v", mean, n, p, diff)
				}
			}
			if float(t, got.Low) > mean+1e-6 || float(t, got.High) < mean-1e-6 {
				t.Fatalf("%v is not in %+v", mean, got)
			}
		case MethodClustered:
			var ss float64
			for _, f := range floats {
				ss += (f - mean) * (f - mean)
			}
			half := z * math.Sqrt(ss/float64(n-1)/float64(n))
			low, high := mean-half, mean+half
			if slices.Min(floats) >= 0 && slices.Max(floats) <= 1 {
				low, high = max(low, 0), min(high, 1)
				cut++
			}
			if !near(float(t, got.Low), low) || !near(float(t, got.High), high) {
				t.Fatalf("%v: got %+v, want %v to %v", floats, got, mean-half, mean+half)
			}
		case MethodNone:
			if n != 1 {
				t.Fatalf("no interval of %d values", n)
			}
		}
	}
	for _, m := range []string{MethodWilson, MethodClustered, MethodNone} {
		if methods[m] == 0 {
			t.Errorf("no case with method %s", m)
		}
	}
	if cut == 0 || cut == methods[MethodClustered] {
		t.Errorf("%d of %d intervals are of shares, want some", cut, methods[MethodClustered])
	}
	if got := interval(nil); got != (Interval{Method: MethodNone}) {
		t.Errorf("got %+v of no values", got)
	}
}

// Published values of Wilson's interval (R: binom::binom.wilson, 95%).
func TestWilsonPublished(t *testing.T) {
	for _, c := range []struct {
		passed, n int
		low, high string
	}{
		{0, 10, "0.000000", "0.277533"},
		{10, 10, "0.722467", "1.000000"},
		{5, 10, "0.236593", "0.763407"},
		{81, 263, "0.255262", "0.366201"},
	} {
		var values []*big.Rat
		for i := range c.n {
			v := new(big.Rat)
			if i < c.passed {
				v = big.NewRat(1, 1)
			}
			values = append(values, v)
		}
		got := interval(values)
		if math.Abs(float(t, got.Low)-float(t, c.low)) > 6e-5 || math.Abs(float(t, got.High)-float(t, c.high)) > 6e-5 {
			t.Errorf("%d of %d: got %+v, want %s to %s", c.passed, c.n, got, c.low, c.high)
		}
	}
}

func TestPrintDecimal(t *testing.T) {
	for _, c := range []struct {
		r    *big.Rat
		want string
	}{
		{big.NewRat(1, 3), "0.333333"}, {big.NewRat(2, 3), "0.666667"}, {big.NewRat(1, 2000000), "0.000001"},
		{big.NewRat(-1, 2000000), "-0.000001"}, {big.NewRat(-1, 20000000), "0.000000"}, {big.NewRat(0, 1), "0.000000"},
		{big.NewRat(-3, 2), "-1.500000"}, {big.NewRat(10, 1), "10.000000"},
	} {
		if got := printDecimal(c.r); got != c.want {
			t.Errorf("%v: got %s, want %s", c.r, got, c.want)
		}
	}
}

func TestParseRule(t *testing.T) {
	for _, s := range []string{"mean", "pass@1", "pass@100", "pass^1", "pass^8"} {
		r, err := ParseRule(s)
		if err != nil || r.String() != s {
			t.Errorf("%s: got %v, %v", s, r, err)
		}
	}
	for _, s := range []string{"", "Mean", "mean@1", "pass@0", "pass@", "pass@k", "pass@01", "pass@+1", "pass@-1", "pass^1 ", "pass^9999999999", "pass@100001", "pass1"} {
		if r, err := ParseRule(s); err == nil {
			t.Errorf("%q: got %v, want an error", s, r)
		}
	}
}

// oracle counts a grid with maps and floats.
func oracle(rule Rule, tasks uint64, trials uint32, grid []Cell, by Counting) (scored, unscored, missing uint64, value float64, valued int) {
	type key struct {
		task  string
		trial uint32
	}
	last := map[key]Cell{}
	for _, c := range grid {
		k := key{c.Task, c.Trial}
		if old, ok := last[k]; !ok || old.Attempt < c.Attempt {
			last[k] = c
		}
	}
	of := map[string][]float64{}
	for k, c := range last {
		switch {
		case c.State == Missing || c.State == Failed:
			continue
		case by == Ruled && c.State == Dirty:
			of[k.task] = append(of[k.task], 0)
			scored++
		case by == Ruled && c.State == Inconclusive, c.Score == nil:
			unscored++
		default:
			f, err := strconv.ParseFloat(c.Score.Value, 64)
			if err != nil {
				panic(err)
			}
			of[k.task] = append(of[k.task], f)
			scored++
		}
	}
	missing = tasks*uint64(trials) - scored - unscored
	for _, list := range of {
		n, c, total := len(list), 0, 0.0
		for _, f := range list {
			total += f
			if f == 1 {
				c++
			}
		}
		switch {
		case rule.k == 0:
			value += total / float64(n)
		case n < int(rule.k):
			continue
		case rule.name == rulePassAt:
			some, _ := naive(n, c, int(rule.k))
			f, _ := some.Float64()
			value += f
		default:
			_, all := naive(n, c, int(rule.k))
			f, _ := all.Float64()
			value += f
		}
		valued++
	}
	return scored, unscored, missing, value / float64(valued), valued
}

func TestTotals(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	states := []State{Clean, Clean, Clean, Dirty, Inconclusive, Failed, Missing}
	none := 0
	for round := range 400 {
		tasks, trials := uint64(1+r.IntN(6)), uint32(1+r.IntN(5))
		var grid []Cell
		for task := range tasks {
			for trial := range trials {
				attempts := 1 + r.IntN(3)
				for n := range attempts {
					c := Cell{Task: fmt.Sprintf("t%d", task), Trial: trial + 1, Attempt: uint32(n + 1), State: states[r.IntN(len(states))]}
					if c.State == Missing {
						if n > 0 {
							continue
						}
						c.Attempt = 0
						grid = append(grid, c)
						break
					}
					if c.State.Attested() && r.IntN(5) > 0 {
						c.Score = &attest.Score{Value: []string{"0", "1", "1.0", "0.5", "0.25"}[r.IntN(5)]}
					}
					grid = append(grid, c)
				}
			}
		}
		for _, text := range []string{"mean", "pass@1", "pass@2", "pass^2"} {
			rule, err := ParseRule(text)
			if err != nil {
				t.Fatal(err)
			}
			plain, ruled, err := Totals(rule, tasks, trials, grid)
			if err != nil {
				t.Fatal(err)
			}
			for by, got := range map[Counting]Total{Plain: plain, Ruled: ruled} {
				scored, unscored, missing, value, valued := oracle(rule, tasks, trials, grid, by)
				if got.Scored != scored || got.Unscored != unscored || got.Missing != missing || got.Tasks != uint64(valued) {
					t.Fatalf("round %d, %s, %s: got %+v, want %d scored, %d unscored, %d missing, %d tasks", round, text, by, got, scored, unscored, missing, valued)
				}
				if (got.Value == "") != (valued == 0) || valued > 0 && !near(float(t, got.Value), value) {
					t.Fatalf("round %d, %s, %s: got %q, want %v", round, text, by, got.Value, value)
				}
				if valued == 0 {
					none++
				}
			}
		}
	}
	if none == 0 {
		t.Error("no case without a value")
	}
}
