package eval

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestDue(t *testing.T) {
	ok := result(Cell{"a", 1, 1}, "CLEAN")
	lost := func(n uint32, interrupted bool) Result {
		r := result(Cell{"a", 1, n}, "INCONCLUSIVE")
		r.Retry, r.Interrupted = "abandoned", interrupted
		return r
	}
	for name, c := range map[string]struct {
		list    []Result
		retries uint32
		want    uint32
	}{
		"nothing yet":              {nil, 0, 1},
		"done":                     {[]Result{ok}, 2, 0},
		"first retry":              {[]Result{lost(1, false)}, 2, 2},
		"last retry":               {[]Result{lost(1, false), lost(2, false)}, 2, 3},
		"used up":                  {[]Result{lost(1, false), lost(2, false), lost(3, false)}, 2, 0},
		"no retries":               {[]Result{lost(1, false)}, 0, 0},
		"stopped is not counted":   {[]Result{lost(1, true)}, 0, 2},
		"stopped after the others": {[]Result{lost(1, false), lost(2, true)}, 0, 3},
	} {
		if got := Due(c.list, c.retries); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

// The scheduler against a fake: every cell is made once, retries go on under the
// next number, at most Jobs run at a time.
func TestRun(t *testing.T) {
	p := plan("a", "b", "c")
	p.Trials = 3
	d := open(t, private(t), p)
	var mu sync.Mutex
	running, most := 0, 0
	made := map[Cell]int{}
	sum, err := Run(t.Context(), d, Config{Jobs: 2, Retries: 2, Attempt: func(_ context.Context, c Cell) (Result, error) {
		mu.Lock()
		running++
		most = max(most, running)
		made[c]++
		mu.Unlock()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
			mu.Lock()
			both := most > 1
			mu.Unlock()
			if both {
				break
			}
		}
		mu.Lock()
		running--
		mu.Unlock()
		r := result(c, "CLEAN")
		switch {
		case c.Task == "b" && c.Attempt == 1: // fails once
			r.Verdict, r.Reasons, r.Retry = "INCONCLUSIVE", []string{"abandoned"}, "abandoned"
		case c.Task == "c" && c.Trial == 2: // always
			r.Verdict, r.Reasons, r.Retry = "INCONCLUSIVE", []string{"abandoned"}, "abandoned"
		}
		return r, nil
	}})
	if err != nil || sum.Errors != 0 || sum.Made != 9+3+2 || most != 2 {
		t.Errorf("got %+v, %v, %d at a time", sum, err, most)
	}
	for c, n := range made {
		if n != 1 {
			t.Errorf("%v was made %d times", c, n)
		}
	}
	tab := Tabulate(d.Snapshot(), 2)
	if !tab.Complete() || tab.States["CLEAN"] != 8 || tab.States["INCONCLUSIVE"] != 1 || tab.Attempts != 14 {
		t.Errorf("got %+v", tab)
	}
	// Nothing is left to do.
	sum, err = Run(t.Context(), d, Config{Jobs: 2, Retries: 2, Attempt: func(context.Context, Cell) (Result, error) {
		return Result{}, errors.New("called")
	}})
	if err != nil || sum.Made+sum.Errors != 0 {
		t.Errorf("again: got %+v, %v, want nothing to do", sum, err)
	}
}

func TestRunGoesOnAfterErrors(t *testing.T) {
	d := open(t, private(t), plan("a", "b", "c", "d", "e", "f"))
	sum, err := Run(t.Context(), d, Config{Jobs: 1, Attempt: func(_ context.Context, c Cell) (Result, error) {
		if c.Task != "a" {
			return Result{}, errors.New("no such workspace")
		}
		return result(c, "CLEAN"), nil
	}})
	if err != nil || sum.Made != 2 || sum.Errors != 10 {
		t.Errorf("got %+v, %v", sum, err)
	}
	if tab := Tabulate(d.Snapshot(), 0); tab.Complete() || tab.States[Missing] != 10 {
		t.Errorf("got %+v", tab.States)
	}
}

func TestRunHopeless(t *testing.T) {
	d := open(t, private(t), plan("a", "b", "c", "d", "e", "f"))
	sum, err := Run(t.Context(), d, Config{Jobs: 1, Attempt: func(context.Context, Cell) (Result, error) {
		return Result{}, errors.New("no user namespaces")
	}})
	if !errors.Is(err, ErrHopeless) || !strings.Contains(err.Error(), "no user namespaces") || sum.Errors != hopeless {
		t.Errorf("got %+v, %v", sum, err)
	}
}

func TestRunStops(t *testing.T) {
	d := open(t, private(t), plan("a", "b", "c"))
	ctx, cancel := context.WithCancel(t.Context())
	sum, err := Run(ctx, d, Config{Jobs: 2, Attempt: func(ctx context.Context, c Cell) (Result, error) {
		if c.Task == "a" {
			return result(c, "CLEAN"), nil
		}
		cancel()
		<-ctx.Done()
		r := result(c, "")
		r.Outcome, r.Root, r.Retry, r.Interrupted = Killed, "", "journal-open", true
		return r, nil
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	if n := len(d.Snapshot().Results); sum.Made != n || n < 2 || n > 3 {
		t.Errorf("made %d, %d on record", sum.Made, n)
	}
	// The same folder goes on, and the killed attempts stay.
	_, err = Run(t.Context(), d, Config{Jobs: 2, Attempt: func(_ context.Context, c Cell) (Result, error) {
		return result(c, "CLEAN"), nil
	}})
	tab := Tabulate(d.Snapshot(), 0)
	if err != nil || !tab.Complete() || tab.Killed == 0 || tab.Attempts != 6+tab.Killed {
		t.Errorf("after going on: %+v, %v", tab, err)
	}
}

// A folder that can no longer be written ends the eval: what is not on record
// would be made again.
func TestRunFolderFails(t *testing.T) {
	d := open(t, private(t), plan("a", "b", "c", "d"))
	n := 0
	_, err := Run(t.Context(), d, Config{Jobs: 1, Attempt: func(_ context.Context, c Cell) (Result, error) {
		if n++; n == 2 {
			d.results.Close()
		}
		return result(c, "CLEAN"), nil
	}})
	if err == nil || n != 2 {
		t.Errorf("got %v after %d attempts, want the error at the second", err, n)
	}
}

func TestTableText(t *testing.T) {
	p := plan("a", "b")
	d := open(t, private(t), p)
	for i, r := range []Result{result(Cell{"a", 1, 1}, "CLEAN"), result(Cell{"a", 2, 1}, "DIRTY"), result(Cell{"b", 1, 1}, "")} {
		r.Cost = Cost{Setup: 1e7, Close: 2e7}
		if i < 2 {
			r.Score = &Score{fmt.Sprint(1 - i), []string{"observed", "asserted"}[i]}
		}
		if i == 1 {
			r.Reasons = []string{"whole-object"}
		}
		if err := d.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	tab := Tabulate(d.Snapshot(), 2)
	want := `task  trials, by number
a     C 1     D 0~    mean 0.5
b     u       -
C CLEAN, D DIRTY, I INCONCLUSIVE, u not attested, - missing; then the score, ~ if it is only asserted
 a trial 2: DIRTY: whole-object

 trials     4: 1 CLEAN, 1 DIRTY, 1 unattested, 1 missing
 attempts   3
 score      0.5, the mean over tasks; trials: 1 observed, 1 asserted, 2 without
 recorder   took 3.0% of 3s in all attempts
`
	if got := tab.Text(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestLeft(t *testing.T) {
	walls := []time.Duration{9 * time.Second, time.Second, 2 * time.Second}
	if got := Left(walls, 5, 2); got != 6*time.Second {
		t.Errorf("got %v, want three rounds of the median", got)
	}
	if got := Left(nil, 5, 2); got != 0 {
		t.Errorf("got %v without any, want nothing", got)
	}
}
