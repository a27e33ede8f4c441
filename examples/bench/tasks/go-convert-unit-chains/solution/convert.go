package main

import (
	"errors"
	"math/big"
	"regexp"
	"sort"
	"strings"
)

var decimal = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// Convert says how many of the unit to an amount of the unit from is.
func Convert(rules []Rule, amount string, from, to string) (string, error) {
	edges := map[string][]edge{}
	for _, r := range rules {
		left, _ := new(big.Rat).SetString(r.Left)
		right, _ := new(big.Rat).SetString(r.Right)
		factor := new(big.Rat).Quo(right, left)
		edges[r.From] = append(edges[r.From], edge{r.To, factor})
		edges[r.To] = append(edges[r.To], edge{r.From, new(big.Rat).Inv(factor)})
	}
	if unit := contradiction(edges); unit != "" {
		return "", errors.New("rules disagree about " + unit)
	}
	if !decimal.MatchString(amount) {
		return "", errors.New("bad number")
	}
	factor, found := factors(edges, from)[to]
	if len(edges[from]) == 0 || !found {
		return "", errors.New("no way from " + from + " to " + to)
	}
	value, _ := new(big.Rat).SetString(amount)
	return show(value.Mul(value, factor)), nil
}

type edge struct {
	to     string
	factor *big.Rat
}

// factors returns for each unit that a chain reaches what one of start is in it.
func factors(edges map[string][]edge, start string) map[string]*big.Rat {
	known := map[string]*big.Rat{start: big.NewRat(1, 1)}
	todo := []string{start}
	for len(todo) > 0 {
		unit := todo[0]
		todo = todo[1:]
		for _, e := range edges[unit] {
			if known[e.to] == nil {
				known[e.to] = new(big.Rat).Mul(known[unit], e.factor)
				todo = append(todo, e.to)
			}
		}
	}
	return known
}

// contradiction returns the first unit that a chain leads back to with a factor
// other than 1. In a connected part with one wrong circle that is every unit.
func contradiction(edges map[string][]edge) string {
	units := make([]string, 0, len(edges))
	for unit := range edges {
		units = append(units, unit)
	}
	sort.Strings(units)
	for _, unit := range units {
		known := factors(edges, unit)
		for at, f := range known {
			for _, e := range edges[at] {
				if new(big.Rat).Mul(f, e.factor).Cmp(known[e.to]) != 0 {
					return unit
				}
			}
		}
	}
	return ""
}

func show(value *big.Rat) string {
	text := value.FloatString(6)
	text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	if text == "-0" || text == "" {
		return "0"
	}
	return text
}
