package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// Flags is a strict flag set: a flag that takes one value may be given once.
type Flags struct {
	fs   *flag.FlagSet
	cmd  *Command
	must []string
	seen map[string]bool
}

func newFlags(c *Command) *Flags {
	f := &Flags{fs: flag.NewFlagSet(c.Name, flag.ContinueOnError), cmd: c, seen: map[string]bool{}}
	f.fs.SetOutput(io.Discard)
	f.fs.Usage = func() {}
	if c.Flags != nil {
		c.Flags(f)
	}
	return f
}

type once struct {
	f    *Flags
	name string
	set  func(string) error
	get  func() string
	bool bool
}

func (o *once) String() string {
	if o == nil || o.get == nil {
		return ""
	}
	return o.get()
}
func (o *once) IsBoolFlag() bool { return o.bool }
func (o *once) Set(s string) error {
	if o.f.seen[o.name] {
		return errors.New("given twice")
	}
	o.f.seen[o.name] = true
	return o.set(s)
}

// String adds a flag with one value. The usage names the value in back quotes.
func (f *Flags) String(p *string, name, usage string) {
	f.fs.Var(&once{f: f, name: name, get: func() string { return *p }, set: func(s string) error {
		if s == "" {
			return errors.New("empty value")
		}
		*p = s
		return nil
	}}, name, usage)
}

// Strings adds a flag that may be given several times, each with another value.
func (f *Flags) Strings(p *[]string, name, usage string) {
	f.fs.Func(name, usage, func(s string) error {
		if s == "" {
			return errors.New("empty value")
		}
		if slices.Contains(*p, s) {
			return fmt.Errorf("%q given twice", s)
		}
		*p = append(*p, s)
		return nil
	})
}

// Required is String for a flag that must be given.
func (f *Flags) Required(p *string, name, usage string) {
	f.String(p, name, usage)
	f.must = append(f.must, name)
}

// Bool adds a flag without a value.
func (f *Flags) Bool(p *bool, name, usage string) {
	f.fs.Var(&once{f: f, name: name, bool: true, get: func() string { return "" }, set: func(s string) error {
		v, err := strconv.ParseBool(s)
		if err != nil {
			return err
		}
		*p = v
		return nil
	}}, name, usage)
}

// Uint adds a flag with one positive number.
func (f *Flags) Uint(p *uint32, name, usage string) {
	f.fs.Var(&once{f: f, name: name, get: func() string { return strconv.Itoa(int(*p)) }, set: func(s string) error {
		v, err := strconv.ParseUint(s, 10, 32)
		if err != nil || v == 0 {
			return fmt.Errorf("got %q, want a number from 1", s)
		}
		*p = uint32(v)
		return nil
	}}, name, usage)
}

// Set tells whether the flag was given.
func (f *Flags) Set(name string) bool { return f.seen[name] }

// parse takes flags before, between and after the arguments. "--" ends them;
// for a Dashed command what follows is the program, for others it is an error
// to have anything that is ignored.
func (f *Flags) parse(args []string) (rest, program []string, err error) {
	for i, a := range args {
		if a != "--" {
			continue
		}
		program = args[i+1:]
		args = args[:i]
		if !f.cmd.Dashed {
			return nil, nil, errors.New("unexpected --")
		}
		if len(program) == 0 {
			return nil, nil, errors.New("nothing after --")
		}
		break
	}
	for len(args) > 0 {
		if err := f.fs.Parse(args); err != nil {
			return nil, nil, err
		}
		args = f.fs.Args()
		if len(args) > 0 {
			rest = append(rest, args[0])
			args = args[1:]
		}
	}
	for _, m := range f.must {
		if !f.seen[m] {
			return nil, nil, fmt.Errorf("flag -%s is missing", m)
		}
	}
	return rest, program, nil
}

// each visits the flags by name.
func (f *Flags) each(fn func(name, value, usage string)) {
	f.fs.VisitAll(func(g *flag.Flag) {
		value, usage := flag.UnquoteUsage(g)
		if o, ok := g.Value.(*once); ok && o.bool {
			value = ""
		}
		fn(g.Name, value, usage)
	})
}
