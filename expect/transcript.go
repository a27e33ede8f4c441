package expect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf8"
)

// MaxTranscript bounds a transcript, in bytes.
const MaxTranscript = 256 << 10

// maxName bounds the names in it, in bytes.
const maxName = 1024

// A Conversation is what a transcript holds (spec/expect.md, "Transcript").
type Conversation struct {
	Task      string
	Truncated bool // its writer left something out
	Messages  []Message
}

// A Message was said by the user, or by the agent.
type Message struct {
	Agent   bool // role agent; else user
	Author  string
	Channel string
	Content string
}

// A TranscriptError says which line of a transcript is wrong, from 1; 0 is the whole.
type TranscriptError struct {
	Line int
	Got  string
	Want string
}

func (e *TranscriptError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("transcript: got %s, want %s", e.Got, e.Want)
	}
	return fmt.Sprintf("transcript, line %d: got %s, want %s", e.Line, e.Got, e.Want)
}

// ParseTranscript reads a transcript: one JSON object a line, the header first. It is
// strict: members are those of the page, each once, and the last line is ended too, so
// that a file that was cut off is none. The error is a *TranscriptError.
func ParseTranscript(data []byte) (*Conversation, error) {
	bad := func(line int, got, want string) (*Conversation, error) {
		return nil, &TranscriptError{line, got, want}
	}
	switch {
	case len(data) > MaxTranscript:
		return bad(0, fmt.Sprintf("%d bytes", len(data)), fmt.Sprintf("at most %d", MaxTranscript))
	case !utf8.Valid(data):
		return bad(0, "other bytes", "UTF-8")
	case len(data) == 0 || data[len(data)-1] != '\n':
		return bad(0, "a last line without an end", "lines that end with LF: the file was cut off")
	}
	c, number := new(Conversation), 0
	for line := range bytes.Lines(data) {
		number++
		if number == 1 {
			o, err := parseObject(line, "type", "version", "task", "truncated")
			if err != "" {
				return bad(number, err, "one JSON object with type, version, task and truncated")
			}
			truncated, ok := o["truncated"].(bool)
			if o["type"] != "transcript" || o["version"] != "1" || !isName(o["task"]) || !ok {
				return bad(number, "another header", `type "transcript", version "1", the name of a task, and whether it is truncated`)
			}
			c.Task, c.Truncated = o["task"].(string), truncated
			continue
		}
		o, err := parseObject(line, "type", "role", "author", "channel", "content")
		if err != "" {
			return bad(number, err, "one JSON object with type, role, author, channel and content")
		}
		content, ok := o["content"].(string)
		if o["type"] != "message" || o["role"] != "user" && o["role"] != "agent" || !isName(o["author"]) || !isName(o["channel"]) || !ok {
			return bad(number, "another message", `type "message", role "user" or "agent", the names of author and channel, and a text`)
		}
		c.Messages = append(c.Messages, Message{o["role"] == "agent", o["author"].(string), o["channel"].(string), content})
	}
	return c, nil
}

// parseObject reads an object of exactly these members, each a text or a boolean. Names
// are compared byte for byte, which encoding/json alone does not.
func parseObject(line []byte, members ...string) (o map[string]any, problem string) {
	if !json.Valid(line) {
		return nil, "no JSON"
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, "no object"
	}
	o = map[string]any{}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, "no object"
		}
		if _, twice := o[name]; twice {
			return nil, fmt.Sprintf("%.80q twice", name)
		}
		value, err := dec.Token()
		if err != nil {
			return nil, "no object"
		}
		switch value.(type) {
		case string, bool:
		default:
			return nil, fmt.Sprintf("%.80q as neither text nor boolean", name)
		}
		o[name] = value
	}
	for _, m := range members {
		if _, ok := o[m]; !ok {
			return nil, "no " + m
		}
	}
	if len(o) != len(members) {
		return nil, "a further member"
	}
	return o, ""
}

// isName tells a text that names somebody or something.
func isName(v any) bool {
	s, ok := v.(string)
	if !ok || s == "" || len(s) > maxName {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return false
		}
	}
	return true
}
