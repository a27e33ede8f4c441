package main

import (
	"math/big"
	"strconv"
)

// Line computes one line.
func Line(line string, vars map[string]int64) (int64, *Error) {
	p := &parser{tokens: Scan(line)}
	name := ""
	if len(p.tokens) > 2 && p.tokens[0].Kind == 'a' && p.tokens[1].Kind == '=' {
		name = p.next().Text
		p.next()
	}
	n, err := p.sum()
	if err == nil {
		err = p.want(0)
	}
	if err != nil {
		return 0, err
	}
	v, err := n.value(vars)
	if err == nil && name != "" {
		vars[name] = v
	}
	return v, err
}

// A node is a formula that has been read and not been computed yet, so that an
// unexpected token is told before anything that goes wrong in computing.
type node struct {
	Token
	args []*node
}

type parser struct{ tokens []Token }

func (p *parser) peek() Token { return p.tokens[0] }

func (p *parser) next() Token {
	t := p.tokens[0]
	if t.Kind != 0 {
		p.tokens = p.tokens[1:]
	}
	return t
}

func (p *parser) want(kind byte) *Error {
	if t := p.next(); t.Kind != kind {
		return &Error{t.Column, "unexpected " + t.Text}
	}
	return nil
}

// chain reads operands divided by operators of one level, from left to right.
func (p *parser) chain(operators string, operand func() (*node, *Error)) (*node, *Error) {
	left, err := operand()
	for err == nil && p.peek().Kind != 0 && contains(operators, p.peek().Kind) {
		op := p.next()
		var right *node
		right, err = operand()
		left = &node{op, []*node{left, right}}
	}
	return left, err
}

func contains(operators string, kind byte) bool {
	for i := range len(operators) {
		if operators[i] == kind {
			return true
		}
	}
	return false
}

func (p *parser) sum() (*node, *Error)     { return p.chain("+-", p.product) }
func (p *parser) product() (*node, *Error) { return p.chain("*/%", p.signed) }

func (p *parser) signed() (*node, *Error) {
	if p.peek().Kind != '-' {
		return p.power()
	}
	minus := p.next()
	n, err := p.signed()
	return &node{minus, []*node{n}}, err
}

// power goes from right to left: its exponent is signed, and so a power again.
func (p *parser) power() (*node, *Error) {
	base, err := p.atom()
	if err != nil || p.peek().Kind != '^' {
		return base, err
	}
	op := p.next()
	exponent, err := p.signed()
	return &node{op, []*node{base, exponent}}, err
}

func (p *parser) atom() (*node, *Error) {
	t := p.next()
	switch {
	case t.Kind == '0':
		return &node{t, nil}, nil
	case t.Kind == 'a' && (t.Text == "min" || t.Text == "max") && p.peek().Kind == '(':
		call := &node{t, nil}
		for sep := byte('('); p.peek().Kind == sep; sep = ',' {
			p.next()
			n, err := p.sum()
			if err != nil {
				return nil, err
			}
			call.args = append(call.args, n)
		}
		return call, p.want(')')
	case t.Kind == 'a':
		return &node{t, nil}, nil
	case t.Kind == '(':
		n, err := p.sum()
		if err == nil {
			err = p.want(')')
		}
		return n, err
	}
	return nil, &Error{t.Column, "unexpected " + t.Text}
}

func (n *node) value(vars map[string]int64) (int64, *Error) {
	var args []int64
	for _, a := range n.args {
		v, err := a.value(vars)
		if err != nil {
			return 0, err
		}
		args = append(args, v)
	}
	switch {
	case n.Kind == '0':
		v, err := strconv.ParseInt(n.Text, 10, 64)
		if err != nil {
			return 0, n.fail("too large")
		}
		return v, nil
	case n.Kind == 'a' && args == nil:
		v, ok := vars[n.Text]
		if !ok {
			return 0, n.fail("no value for " + n.Text)
		}
		return v, nil
	case n.Kind == 'a':
		best := args[0]
		for _, v := range args {
			if (n.Text == "min") == (v < best) && v != best {
				best = v
			}
		}
		return best, nil
	case len(args) == 1:
		return n.fit(new(big.Int).Neg(big.NewInt(args[0])))
	}
	return n.binary(args[0], args[1])
}

func (n *node) binary(a, b int64) (int64, *Error) {
	x, y := big.NewInt(a), big.NewInt(b)
	switch n.Kind {
	case '+':
		return n.fit(x.Add(x, y))
	case '-':
		return n.fit(x.Sub(x, y))
	case '*':
		return n.fit(x.Mul(x, y))
	case '^':
		if b < 0 {
			return 0, n.fail("negative exponent")
		}
		if (a > 1 || a < -1) && b > 64 {
			return 0, n.fail("too large")
		}
		return n.fit(x.Exp(x, y, nil))
	}
	if b == 0 {
		return 0, n.fail("division by zero")
	}
	quo, rem := new(big.Int).QuoRem(x, y, new(big.Int))
	if rem.Sign() != 0 && rem.Sign() != y.Sign() {
		quo.Sub(quo, big.NewInt(1))
		rem.Add(rem, y)
	}
	if n.Kind == '%' {
		return n.fit(rem)
	}
	return n.fit(quo)
}

func (n *node) fit(v *big.Int) (int64, *Error) {
	if !v.IsInt64() {
		return 0, n.fail("too large")
	}
	return v.Int64(), nil
}

func (n *node) fail(why string) *Error { return &Error{n.Column, why} }
