package proof

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/cleanrun-dev/cleanrun/receipt"
)

// MaxOfEach bounds the logs, the witnesses and the groups of a policy: 64 of each.
// c2sp.org/tlog-policy asks for at least 32.
const MaxOfEach = 64

// QuorumNone is the quorum that asks for no witness.
const QuorumNone = "none"

// A Log is a log that a policy accepts.
type Log struct {
	Key receipt.PublicKey // Ed25519; its name is the log's origin
	URL string            // where it can be asked, or ""
}

// A Witness is one that a policy knows.
type Witness struct {
	Name string // in the policy alone
	Key  WitnessKey
	URL  string // submission prefix of c2sp.org/tlog-witness, or ""
}

// A Group has witnessed a checkpoint if K of its members have.
type Group struct {
	Name    string
	K       int
	Members []string // names of witnesses and of groups before this one
}

// A Policy says which logs are accepted, and which witnesses must have cosigned a
// checkpoint (c2sp.org/tlog-policy). Its zero value is one without lines, which
// pins no log and has no quorum.
//
// It is stricter than the page where counting one party twice is at stake: a key
// is a log's or one witness's, no witness has a log's name, and two keys of one
// name are members only of one group that asks for any.
type Policy struct {
	Logs      []Log
	Witnesses []Witness
	Groups    []Group
	Quorum    string // name of a witness or group, QuorumNone, or "" without a line
}

// Names that a reader of policies may take for its own words.
var reserved = []string{"log", "witness", "group", "quorum", "any", "all", QuorumNone}

// Line takes one line of a policy, as the words that blanks separate: the first is
// log, witness, group or quorum. The error is an *Error, and the policy is then as
// it was.
func (p *Policy) Line(words []string) error {
	if err := p.line(words); err != nil {
		return err
	}
	return nil
}

func (p *Policy) line(words []string) *Error {
	if len(words) == 0 {
		return bad("no word", "log, witness, group or quorum", "")
	}
	for _, w := range words {
		for i := range len(w) {
			if w[i] <= ' ' || w[i] > '~' {
				return bad(fmt.Sprintf("byte 0x%02x in %s", w[i], clip(w)), "printable ASCII", "")
			}
		}
		if w == "" || strings.Contains(w, "#") {
			return bad(clip(w), "words without #", "some readers of policies take the rest of a line for a comment")
		}
	}
	switch words[0] {
	case "log":
		return p.log(words)
	case "witness":
		return p.witness(words)
	case "group":
		return p.group(words)
	case "quorum":
		return p.quorum(words)
	}
	return bad(clip(words[0]), "log, witness, group or quorum", "")
}

func bad(got, want, hint string) *Error { return refuse(StagePolicy, got, want, hint) }

// count asks for that many words.
func count(words []string, least, most int, want string) *Error {
	if len(words) < least || len(words) > most {
		return bad(fmt.Sprintf("%d words", len(words)), want, "")
	}
	return nil
}

func (p *Policy) log(words []string) *Error {
	if err := count(words, 2, 3, "log VKEY [URL]"); err != nil {
		return err
	}
	if len(p.Logs) == MaxOfEach {
		return bad("one log more", fmt.Sprintf("at most %d logs", MaxOfEach), "")
	}
	key, err := receipt.ParseVKey(words[1])
	if err != nil {
		return bad(err.Error(), "the vkey of a log", "copy the line that the log prints or publishes")
	}
	if err := checkLogKey(key); err != nil {
		return bad(err.Got, err.Want, err.Hint)
	}
	for _, l := range p.Logs {
		if l.Key.SameKey(key) {
			return bad(fmt.Sprintf("the key of log %s again, as %s", l.Key.Name(), key.Name()), "each key once", "two lines of one key are one log")
		}
		if l.Key.Name() == key.Name() {
			return bad(fmt.Sprintf("log %s again, with another key", key.Name()), "each origin once", "")
		}
	}
	for _, w := range p.Witnesses {
		if err := apart(key, w); err != nil {
			return err
		}
	}
	at, wrong := parseURL(words[2:])
	if wrong != nil {
		return wrong
	}
	p.Logs = append(p.Logs, Log{key, at})
	return nil
}

// apart asks that a log is not its own witness.
func apart(log receipt.PublicKey, w Witness) *Error {
	if w.Key.ed.SameKey(log) || w.Key.Name() == log.Name() {
		return bad(fmt.Sprintf("log %s as witness %s", log.Name(), w.Name), "witnesses that are not a log of the policy", "who signs the tree cannot attest that everybody sees the same one")
	}
	return nil
}

func parseURL(words []string) (string, *Error) {
	if len(words) == 0 {
		return "", nil
	}
	u, err := url.Parse(words[0])
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" {
		return "", bad(clip(words[0]), "an https:// or http:// URL without user and query", "")
	}
	return words[0], nil
}

func (p *Policy) witness(words []string) *Error {
	if err := count(words, 3, 4, "witness NAME VKEY [URL]"); err != nil {
		return err
	}
	if len(p.Witnesses) == MaxOfEach {
		return bad("one witness more", fmt.Sprintf("at most %d witnesses", MaxOfEach), "")
	}
	if err := p.free(words[1]); err != nil {
		return err
	}
	key, err := ParseWitnessKey(words[2])
	if err != nil {
		return bad(err.Error(), "the cosignature vkey of a witness", "copy the line that the witness prints or publishes")
	}
	at, wrong := parseURL(words[3:])
	if wrong != nil {
		return wrong
	}
	w := Witness{Name: words[1], Key: key, URL: at}
	for _, other := range p.Witnesses {
		if other.Key.SameKey(key) {
			return bad(fmt.Sprintf("the key of witness %s again, as %s", other.Name, w.Name), "each key once", "one operator under two names would count twice")
		}
		if other.Key.Name() == key.Name() && other.Key.ID() == key.ID() {
			return bad(fmt.Sprintf("key name and id of witness %s again", other.Name), "keys that signature lines can tell apart", "")
		}
	}
	for _, l := range p.Logs {
		if err := apart(l.Key, w); err != nil {
			return err
		}
	}
	p.Witnesses = append(p.Witnesses, w)
	return nil
}

// free asks that a name is nobody's yet.
func (p *Policy) free(name string) *Error {
	if slices.Contains(reserved, name) || len(name) > maxName {
		return bad("name "+clip(name), fmt.Sprintf("a name of up to %d characters that is no word of the policy", maxName), "")
	}
	if p.defined(name) {
		return bad(fmt.Sprintf("name %q again", name), "each name once", "witnesses and groups share their names")
	}
	return nil
}

func (p *Policy) defined(name string) bool {
	return slices.ContainsFunc(p.Witnesses, func(w Witness) bool { return w.Name == name }) ||
		slices.ContainsFunc(p.Groups, func(g Group) bool { return g.Name == name })
}

func (p *Policy) group(words []string) *Error {
	if err := count(words, 4, 3+2*MaxOfEach, "group NAME all|any|K and names"); err != nil {
		return err
	}
	if len(p.Groups) == MaxOfEach {
		return bad("one group more", fmt.Sprintf("at most %d groups", MaxOfEach), "")
	}
	if err := p.free(words[1]); err != nil {
		return err
	}
	g := Group{Name: words[1], Members: slices.Clone(words[3:])}
	switch n := len(g.Members); words[2] {
	case "all":
		g.K = n
	case "any":
		g.K = 1
	default:
		k, ok := parseDecimal(words[2])
		if !ok || k < 1 || k > uint64(n) {
			return bad(clip(words[2]), fmt.Sprintf("all, any or a number from 1 to %d, the number of members", n), "a group that nobody must witness asks for nothing")
		}
		g.K = int(k)
	}
	for i, name := range g.Members {
		if !p.defined(name) {
			return bad("member "+clip(name), "a witness or group of a line before", "")
		}
		if slices.Contains(g.Members[:i], name) || slices.ContainsFunc(p.Groups, func(o Group) bool { return slices.Contains(o.Members, name) }) {
			return bad(fmt.Sprintf("%q as a member again", name), "each name a member of at most one group", "it would count twice")
		}
	}
	if err := p.operators(g); err != nil {
		return err
	}
	p.Groups = append(p.Groups, g)
	return nil
}

// operators asks that no operator counts twice: keys of one name (one of Ed25519
// and one of ML-DSA-44, or an old and a new one) stand in one group, and any of
// them makes it.
func (p *Policy) operators(g Group) *Error {
	for _, w := range p.Witnesses {
		if !slices.Contains(g.Members, w.Name) {
			continue
		}
		for _, other := range p.Witnesses {
			if other.Name == w.Name || other.Key.Name() != w.Key.Name() {
				continue
			}
			elsewhere := slices.ContainsFunc(p.Groups, func(o Group) bool { return slices.Contains(o.Members, other.Name) })
			if elsewhere || g.K > 1 && slices.Contains(g.Members, other.Name) {
				return bad(fmt.Sprintf("witnesses %s and %s with keys of one name, %s, counted apart", w.Name, other.Name, w.Key.Name()),
					"keys of one operator in one group of any", "put them into a group of their own: group NAME any "+w.Name+" "+other.Name)
			}
		}
	}
	return nil
}

func (p *Policy) quorum(words []string) *Error {
	if err := count(words, 2, 2, "quorum NAME or quorum none"); err != nil {
		return err
	}
	if p.Quorum != "" {
		return bad("a second quorum", "one", "")
	}
	if words[1] != QuorumNone && !p.defined(words[1]) {
		return bad("quorum "+clip(words[1]), "none, or a witness or group of a line before", "")
	}
	p.Quorum = words[1]
	return nil
}

// Done tells what only the whole file shows: lines that are there need a quorum
// line, or nothing would say which checkpoints are good. The error is an *Error.
func (p *Policy) Done() error {
	if p.Quorum == "" && len(p.Logs)+len(p.Witnesses)+len(p.Groups) > 0 {
		return bad("no quorum line", "one after the logs, witnesses and groups", "quorum none asks for no witness")
	}
	return nil
}

// String gives the lines of c2sp.org/tlog-policy alone, for other programs.
func (p *Policy) String() string {
	var b strings.Builder
	write := func(words ...string) {
		b.WriteString(strings.TrimRight(strings.Join(words, " "), " ") + "\n")
	}
	for _, l := range p.Logs {
		write("log", l.Key.String(), l.URL)
	}
	for _, w := range p.Witnesses {
		write("witness", w.Name, w.Key.String(), w.URL)
	}
	for _, g := range p.Groups {
		write(append([]string{"group", g.Name, strconv.Itoa(g.K)}, g.Members...)...)
	}
	if p.Quorum != "" {
		write("quorum", p.Quorum)
	}
	return b.String()
}

// FindLog returns the log of that origin.
func (p *Policy) FindLog(origin string) (Log, bool) {
	i := slices.IndexFunc(p.Logs, func(l Log) bool { return l.Key.Name() == origin })
	if i < 0 {
		return Log{}, false
	}
	return p.Logs[i], true
}
