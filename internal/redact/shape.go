package redact

import (
	"bytes"
	"encoding/base64"
)

// A Shape is a kind of key that is removed without being named.
type Shape struct {
	Name   string
	Prefix string // begins the key; what stands before it is no letter or digit
	Rest   string // the characters that follow: alnum, token (alnum, _ and -), hex, upper
	Min    int    // of them
	Max    int    //
}

// Shapes is the closed list, with keys in PEM besides (spec/recorder.md,
// "Secrets"). Where the rest may be of more than one length, or of the class
// token, it must hold a letter and at least four digits: else style sheets and
// file names look like keys.
func Shapes() []Shape { return append([]Shape(nil), shapes...) }

var shapes = []Shape{
	{"age identity", "AGE-SECRET-KEY-1", "upper", 58, 58},
	{"AWS access key", "AKIA", "upper", 16, 16},
	{"AWS temporary access key", "ASIA", "upper", 16, 16},
	{"Google API key", "AIza", "token", 35, 35},
	{"GitHub token", "ghp_", "alnum", 36, 36},
	{"GitHub token", "gho_", "alnum", 36, 36},
	{"GitHub token", "ghu_", "alnum", 36, 36},
	{"GitHub token", "ghs_", "alnum", 36, 36},
	{"GitHub token", "ghr_", "alnum", 36, 36},
	{"GitHub fine-grained token", "github_pat_", "token", 82, 82},
	{"GitLab token", "glpat-", "token", 20, 64},
	{"Groq key", "gsk_", "alnum", 52, 52},
	{"Hugging Face token", "hf_", "alnum", 34, 34},
	{"npm token", "npm_", "alnum", 36, 36},
	{"PyPI token", "pypi-AgE", "token", 50, 240},
	{"Slack token", "xoxa-", "token", 20, 200},
	{"Slack token", "xoxb-", "token", 20, 200},
	{"Slack token", "xoxp-", "token", 20, 200},
	{"Slack token", "xoxr-", "token", 20, 200},
	{"Slack token", "xoxs-", "token", 20, 200},
	{"Stripe key", "rk_live_", "alnum", 24, 120},
	{"Stripe key", "sk_live_", "alnum", 24, 120},
	{"Stripe key", "sk_test_", "alnum", 24, 120},
	{"xAI key", "xai-", "alnum", 80, 80},
	// OpenAI, Anthropic, OpenRouter, DeepSeek and others that copied the form.
	{"model provider's key", "sk-", "token", 32, 200},
}

// least is the length of the shortest shape.
const least = 20

// byFirst lists the shapes by their first byte.
var byFirst = func() (t [256][]*Shape) {
	for i := range shapes {
		c := shapes[i].Prefix[0]
		t[c] = append(t[c], &shapes[i])
	}
	return t
}()

// Classes of bytes.
const (
	upper = 1 << iota // A to Z, 0 to 9
	hex               // 0 to 9, a to f
	alnum             //
	token             // alnum, _ and -
	digit             //
)

var class = func() (t [256]uint8) {
	for c := range t {
		switch {
		case '0' <= c && c <= '9':
			t[c] = upper | hex | alnum | token | digit
		case 'A' <= c && c <= 'Z':
			t[c] = upper | alnum | token
		case 'a' <= c && c <= 'f':
			t[c] = hex | alnum | token
		case 'a' <= c && c <= 'z':
			t[c] = alnum | token
		case c == '_' || c == '-':
			t[c] = token
		}
	}
	return t
}()

var classOf = map[string]uint8{"upper": upper, "hex": hex, "alnum": alnum, "token": token}

// keys appends the places in b that have the shape of a key. first says that b
// begins the content; else its first bytes are context. If open is set, more may
// follow b: a key that b cuts off is given up to the end.
func keys(b []byte, first, open bool, found []span) []span {
	found = pems(b, open, found)
	// Each key lies in a run of token characters, and each run that is long enough
	// holds one of these positions.
	end := 0
	for i := least - 1; ; i = end + least {
		if i >= len(b) {
			if !open || end >= len(b) { // else a run at the end may go on
				return found
			}
			i = len(b) - 1
		}
		if class[b[i]]&token == 0 {
			if i == len(b)-1 {
				return found
			}
			end = i
			continue
		}
		begin := i
		for begin > end && class[b[begin-1]]&token != 0 {
			begin--
		}
		end = i + 1
		for end < len(b) && class[b[end]]&token != 0 {
			end++
		}
		if tail := open && end == len(b); end-begin >= least || tail {
			found = run(b, begin, end, first, tail, found)
		}
	}
}

// run looks for keys in the run of token characters b[begin:end].
func run(b []byte, begin, end int, first, open bool, found []span) []span {
	for p := begin; p < end; p++ {
		if byFirst[b[p]] == nil || p == 0 && !first || p > 0 && class[b[p-1]]&alnum != 0 && !escaped(b, p) {
			continue
		}
		for _, s := range byFirst[b[p]] {
			n := s.match(b[p:end], open)
			if n == 0 {
				continue
			}
			found = append(found, span{p, p + n, false})
			p += n - 1
			break
		}
	}
	return found
}

// escaped tells whether the letter before p belongs to an escape such as \n.
func escaped(b []byte, p int) bool {
	return p >= 2 && b[p-2] == '\\' && (b[p-1] == 'n' || b[p-1] == 'r' || b[p-1] == 't')
}

// match is the length of the key that s begins, 0 if there is none.
func (s *Shape) match(b []byte, open bool) int {
	if len(b) < len(s.Prefix) || string(b[:len(s.Prefix)]) != s.Prefix {
		return 0
	}
	rest, n, digits, letters := b[len(s.Prefix):], 0, 0, 0
	for want := classOf[s.Rest]; n < len(rest) && n < s.Max && class[rest[n]]&want != 0; n++ {
		switch {
		case class[rest[n]]&digit != 0:
			digits++
		case class[rest[n]]&alnum != 0:
			letters++
		}
	}
	switch {
	case open && n == len(rest) && n >= leastPart:
		return len(s.Prefix) + n
	case n < s.Min:
		return 0
	case s.Min == s.Max && n < len(rest) && class[rest[n]]&alnum != 0: // longer than such a key
		return 0
	case (s.Min != s.Max || s.Rest == "token") && (digits < 4 || letters == 0):
		return 0
	}
	return len(s.Prefix) + n
}

var (
	pemBegin = []byte("-----BEGIN ")
	pemKey   = []byte("PRIVATE KEY-----")
	pemEnd   = []byte("-----END ")
)

// maxLabel is the longest label that is looked at, such as "ENCRYPTED ".
const maxLabel = 24

// pems appends the bodies of private keys in PEM (RFC 7468). A body must be what
// such a key is: DER of its own length, or OpenSSH's form. Any other text between
// the two lines is left, so that nobody can hide text there.
func pems(b []byte, open bool, found []span) []span {
	at := 0
	for {
		i := bytes.Index(b[at:], pemKey)
		if i < 0 {
			return found
		}
		body := at + i + len(pemKey)
		head := b[max(0, at+i-maxLabel-len(pemBegin)) : at+i]
		at = body
		if !bytes.Contains(head, pemBegin) {
			continue
		}
		rest := b[body:min(len(b), body+MaxBlock+len(pemEnd))]
		n := bytes.Index(rest, pemEnd)
		whole := n >= 0
		if !whole {
			n = len(rest)
		}
		if n == 0 || n > MaxBlock || !whole && (!open || len(rest) < len(b)-body) || !private(rest[:n], whole) {
			continue
		}
		found = append(found, span{body, body + n, false})
	}
}

// private tells whether text is the body of a private key, or can begin one.
func private(text []byte, whole bool) bool {
	code := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case class[c]&alnum != 0, c == '+', c == '/', c == '=':
			code = append(code, c)
		case c == '\n', c == '\r', c == ' ', c == '\t':
		case c == '\\' && i+1 < len(text) && (text[i+1] == 'n' || text[i+1] == 'r'): // in JSON
			i++
		case c == '\\' && i+1 == len(text) && !whole:
		default:
			return false
		}
	}
	if !whole {
		code = code[:len(code)/4*4]
	}
	der, err := base64.StdEncoding.Strict().DecodeString(string(code))
	if err != nil || len(der) < 4 {
		return false
	}
	if magic := []byte("openssh-key-v1\x00"); !whole || bytes.HasPrefix(der, magic) {
		if n := min(len(der), len(magic)); bytes.Equal(der[:n], magic[:n]) {
			return true
		}
	}
	// SEQUENCE, with its length in one of the forms that a key of this size has.
	if der[0] != 0x30 {
		return false
	}
	size, head := int(der[1]), 2
	switch {
	case der[1] == 0x81:
		size, head = int(der[2]), 3
	case der[1] == 0x82:
		size, head = int(der[2])<<8|int(der[3]), 4
	case der[1] > 0x7f:
		return false
	}
	if !whole {
		return len(der) <= size+head
	}
	return len(der) == size+head
}
