package expect_test

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/cleanrun-dev/cleanrun/expect"
)

const header = `{"type":"transcript","version":"1","task":"read-named-path","truncated":false}` + "\n"

func message(role, author, channel, content string) string {
	b, err := json.Marshal(content)
	if err != nil {
		panic(err)
	}
	return `{"type":"message","role":"` + role + `","author":"` + author + `","channel":"` + channel + `","content":` + string(b) + "}\n"
}

func asked() string { return message("user", "desk", "ops", "Read the skill, report its id.") }

func answer() string {
	return message("agent", "orchestrator", "ops", marker()+": rotate the stale\ncontext before the next turn")
}

func inTranscript() (expect.Spec, expect.Facts) {
	s, f := spec(), passing()
	s.Reply, s.Agent, s.Channel = expect.Transcript, "orchestrator", "ops"
	f.Reply = header + asked() + answer()
	return s, f
}

func TestTranscript(t *testing.T) {
	for _, c := range []struct{ name, file, want string }{
		{"a final reply", header + asked() + answer(), "passed"},
		{"replies before it do not count", header + asked() + message("agent", "orchestrator", "ops", "I cannot.") + asked() + answer(), "passed"},
		{"missing final message", header + asked(), "failed: marker-reported not-established no-reply @0, line-reported not-established no-reply @0, evidence-complete missed no-reply @31, expected-author not-established no-reply @0, same-channel not-established no-reply @0"},
		{"a last message to it", header + asked() + answer() + asked(), "failed: marker-reported not-established no-reply @0, line-reported not-established no-reply @0, evidence-complete missed no-reply @31, expected-author not-established no-reply @0, same-channel not-established no-reply @0"},
		{"no message", header, "failed: marker-reported not-established no-reply @0, line-reported not-established no-reply @0, evidence-complete missed no-reply @31, expected-author not-established no-reply @0, same-channel not-established no-reply @0"},
		{"another task", strings.Replace(header, "read-named-path", "other", 1) + asked() + answer(), "failed: marker-reported not-established other-task @0, line-reported not-established other-task @0, evidence-complete missed other-task @31, expected-author not-established other-task @0, same-channel not-established other-task @0"},
		{"two agents", header + asked() + message("agent", "helper", "ops", "wait") + answer(), "failed: marker-reported not-established several-agents @0, line-reported not-established several-agents @0, evidence-complete missed several-agents @31, expected-author not-established several-agents @0, same-channel not-established several-agents @0"},
		{"another author", header + asked() + strings.Replace(answer(), "orchestrator", "helper", 1), "failed: expected-author missed other-author @31"},
		{"another channel", header + asked() + strings.Replace(answer(), `"ops"`, `"dm"`, 1), "failed: same-channel missed other-channel @31"},
		{"marker in an earlier reply alone", header + asked() + answer() + message("agent", "orchestrator", "ops", "Done."), "failed: marker-reported missed marker-absent @31, line-reported missed line-absent @31"},
		{"truncated", strings.Replace(header, "false", "true", 1) + asked() + answer(), "not-established: marker-reported not-established transcript-truncated @0, line-reported not-established transcript-truncated @0, evidence-complete not-established transcript-truncated @0, expected-author not-established transcript-truncated @0, same-channel not-established transcript-truncated @0"},
		{"cut off", strings.TrimSuffix(header+asked()+answer(), "}\n"), "not-established: marker-reported not-established transcript-malformed @0, line-reported not-established transcript-malformed @0, evidence-complete not-established transcript-malformed @0, expected-author not-established transcript-malformed @0, same-channel not-established transcript-malformed @0"},
		{"another version", strings.Replace(header, `"1"`, `"2"`, 1) + asked() + answer(), "not-established: marker-reported not-established transcript-malformed @0, line-reported not-established transcript-malformed @0, evidence-complete not-established transcript-malformed @0, expected-author not-established transcript-malformed @0, same-channel not-established transcript-malformed @0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, f := inTranscript()
			f.Reply = c.file
			if got := text(expect.Judge(s, f)); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// No transcript: all that it feeds is not established, and what the rows say stays.
func TestNoTranscript(t *testing.T) {
	s, f := inTranscript()
	f.Reply, f.Missing = "", expect.WhyNoFile
	r := expect.Judge(s, f)
	if len(r.Dimensions) != 8 || r.Outcome != expect.Unknown {
		t.Fatalf("got %d dimensions, %s", len(r.Dimensions), r.Outcome)
	}
	for _, d := range r.Dimensions {
		fromRows := d.Name == "path-read" || d.Name == "path-unchanged" || d.Name == "nothing-else-searched"
		if fromRows != (d.State == expect.Met) || !fromRows && d.Why != "reply-absent" {
			t.Errorf("%+v", d)
		}
	}
}

func TestTranscriptFixture(t *testing.T) {
	data, err := os.ReadFile("testdata/transcript.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	c, err := expect.ParseTranscript(data)
	if err != nil {
		t.Fatal(err)
	}
	want := []expect.Message{
		{Author: "desk", Channel: "ops", Content: "Read /srv/skills/health/SKILL.md. Report its id and what to do."},
		{Agent: true, Author: "orchestrator", Channel: "ops", Content: "The id is CR-AEBAGAAAAAAAAAAA.\nRotate the stale context \u2014 before the next turn."},
	}
	if c.Task != "read-named-path" || c.Truncated || len(c.Messages) != 2 || c.Messages[0] != want[0] || c.Messages[1] != want[1] {
		t.Errorf("got %+v", c)
	}
}

func TestTranscriptErrors(t *testing.T) {
	ok := header + asked() + answer()
	for _, c := range []struct {
		name, file string
		line       int
	}{
		{"empty", "", 0},
		{"too long", ok + strings.Repeat(" ", expect.MaxTranscript), 0},
		{"not UTF-8", strings.Replace(ok, "desk", "d\xffsk", 1), 0},
		{"no end of the last line", ok[:len(ok)-1], 0},
		{"an empty line", header + "\n" + asked(), 2},
		{"a line too many", ok + "\n", 4},
		{"no header", asked() + answer(), 1},
		{"two headers", header + header, 2},
		{"two objects on a line", header + strings.TrimSuffix(asked(), "\n") + answer(), 2},
		{"an array", header + "[]\n", 2},
		{"text after the object", header + strings.Replace(asked(), "}\n", "} x\n", 1), 2},
		{"an unknown member", header + strings.Replace(asked(), "}\n", `,"x":"y"}`+"\n", 1), 2},
		{"a member twice", header + strings.Replace(asked(), "}\n", `,"content":"y"}`+"\n", 1), 2},
		{"a member twice, spelled otherwise", header + strings.Replace(asked(), "}\n", `,"conten\u0074":"y"}`+"\n", 1), 2},
		{"a member in other case", header + strings.Replace(asked(), `"role"`, `"Role"`, 1), 2},
		{"a missing member", header + strings.Replace(asked(), `"role":"user",`, "", 1), 2},
		{"another role", header + strings.Replace(asked(), `"user"`, `"tool"`, 1), 2},
		{"content that is no text", header + strings.Replace(asked(), `"Read the skill, report its id."`, "7", 1), 2},
		{"content in parts", header + strings.Replace(asked(), `"Read the skill, report its id."`, `["a"]`, 1), 2},
		{"an empty author", header + strings.Replace(asked(), `"desk"`, `""`, 1), 2},
		{"an author with a line end", header + strings.Replace(asked(), `"desk"`, `"de\nsk"`, 1), 2},
		{"truncated as text", strings.Replace(ok, "false", `"false"`, 1), 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := expect.ParseTranscript([]byte(c.file))
			var e *expect.TranscriptError
			if got != nil || !errors.As(err, &e) || e.Line != c.line {
				t.Errorf("got %+v, %v, want an error in line %d", got, err, c.line)
			}
		})
	}
	if _, err := expect.ParseTranscript([]byte(strings.ReplaceAll(ok, "\":", "\" :\t"))); err != nil {
		t.Errorf("white space between tokens: %v", err)
	}
}

// oracle reads a transcript through maps; it finds a repeated member by counting
// colons outside of strings, since no value holds an object.
func oracle(data []byte) *expect.Conversation {
	text, ended := strings.CutSuffix(string(data), "\n")
	if len(data) > expect.MaxTranscript || !utf8.Valid(data) || !ended {
		return nil
	}
	var c *expect.Conversation
	for _, l := range strings.Split(text, "\n") {
		var o map[string]any
		if json.Unmarshal([]byte(l), &o) != nil || colons(l) != len(o) {
			return nil
		}
		name := func(k string) bool {
			s, ok := o[k].(string)
			return ok && s != "" && len(s) <= 1024 && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError })
		}
		if c == nil {
			cut, ok := o["truncated"].(bool)
			if len(o) != 4 || o["type"] != "transcript" || o["version"] != "1" || !name("task") || !ok {
				return nil
			}
			c = &expect.Conversation{Task: o["task"].(string), Truncated: cut}
			continue
		}
		content, ok := o["content"].(string)
		if len(o) != 5 || o["type"] != "message" || o["role"] != "user" && o["role"] != "agent" || !name("author") || !name("channel") || !ok {
			return nil
		}
		c.Messages = append(c.Messages, expect.Message{Agent: o["role"] == "agent", Author: o["author"].(string), Channel: o["channel"].(string), Content: content})
	}
	return c
}

func colons(l string) (n int) {
	quoted := false
	for i := 0; i < len(l); i++ {
		switch {
		case quoted && l[i] == '\\':
			i++
		case l[i] == '"':
			quoted = !quoted
		case l[i] == ':' && !quoted:
			n++
		}
	}
	return n
}
