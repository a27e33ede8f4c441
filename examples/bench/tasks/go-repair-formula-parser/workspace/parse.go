package main

import "strconv"

// Line computes one line.
func Line(line string, vars map[string]int64) (int64, *Error) {
	p := &parser{tokens: Scan(line), vars: vars}
	if len(p.tokens) > 2 && p.tokens[0].Kind == 'a' && p.tokens[1].Kind == '=' {
		name := p.next().Text
		p.next()
		v, err := p.sum()
		vars[name] = v
		return v, err
	}
	return p.sum()
}

type parser struct {
	tokens []Token
	vars   map[string]int64
}

func (p *parser) peek() Token { return p.tokens[0] }

func (p *parser) next() Token {
	t := p.tokens[0]
	p.tokens = p.tokens[1:]
	return t
}

func (p *parser) sum() (int64, *Error) {
	v, err := p.product()
	if err != nil {
		return 0, err
	}
	switch p.peek().Kind {
	case '+':
		p.next()
		w, err := p.sum()
		return v + w, err
	case '-':
		p.next()
		w, err := p.sum()
		return v - w, err
	}
	return v, nil
}

func (p *parser) product() (int64, *Error) {
	v, err := p.power()
	if err != nil {
		return 0, err
	}
	switch p.peek().Kind {
	case '*':
		p.next()
		w, err := p.product()
		return v * w, err
	case '/':
		p.next()
		w, err := p.product()
		return v / w, err
	case '%':
		p.next()
		w, err := p.product()
		return v % w, err
	}
	return v, nil
}

func (p *parser) power() (int64, *Error) {
	v, err := p.atom()
	for err == nil && p.peek().Kind == '^' {
		p.next()
		var w int64
		w, err = p.atom()
		r := int64(1)
		for i := int64(0); i < w; i++ {
			r *= v
		}
		v = r
	}
	return v, err
}

func (p *parser) atom() (int64, *Error) {
	switch t := p.next(); t.Kind {
	case '0':
		v, _ := strconv.ParseInt(t.Text, 10, 64)
		return v, nil
	case '-':
		v, err := p.atom()
		return -v, err
	case 'a':
		return p.vars[t.Text], nil
	case '(':
		v, err := p.sum()
		p.next()
		return v, err
	default:
		return 0, &Error{t.Column, "unexpected " + t.Text}
	}
}
