package eval

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestSplit compares with a real shell.
func TestSplit(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh to compare with")
	}
	for _, line := range []string{
		`agent --prompt {prompt} {task}`,
		`agent 'one word' "two words" three\ words`,
		`agent "a \"quoted\" word" 'it'"'"'s'`,
		`agent "" ''`,
		`agent 'a $VAR and * stay' "x\$y" \*`,
		`agent {a,b} {prompt}`,
		"agent  \t many   blanks ",
		`agent a\\b "c\\d" "e\f"`,
		`agent 'new
line'`,
	} {
		got, err := Split(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		out, err := exec.Command(sh, "-c", `for w in `+strings.TrimPrefix(line, "agent")+`; do printf '%s\000' "$w"; done`).Output()
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		want := []string{"agent"}
		if len(out) > 0 {
			want = append(want, strings.Split(strings.TrimSuffix(string(out), "\000"), "\000")...)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	for _, line := range []string{
		"", "  ", `''`, `agent $HOME`, `agent "$HOME"`, "agent `id`", `agent $(id)`, `agent "$(id)"`, `agent 'open`, `agent "open`,
		`agent; rm x`, `agent | cat`, `agent > out`, `agent < in`, `agent &`, `agent $((1+1))`, `agent *.txt`, `agent ~/x`, `agent a?`, `agent a && b`, `(agent)`,
	} {
		if got, err := Split(line); err == nil {
			t.Errorf("%s: got %q, want it refused", line, got)
		}
	}
}

func TestExpand(t *testing.T) {
	v := Values{Prompt: "say {task} and {prompt}", Task: "t-1", Trial: 3, PromptFile: "/p"}
	got, err := v.Expand([]string{"a", "x{prompt}y", "{task}/{trial}", "{prompt_file}", "{other}"})
	want := []string{"a", "xsay {task} and {prompt}y", "t-1/3", "/p", "{other}"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if got := Unknown([]string{"{promt}", "{prompt} {promt}", `{"a":1}`, "{X}"}); !slices.Equal(got, []string{"{promt}"}) {
		t.Errorf("got %q, want the misspelled one", got)
	}
	for name, v := range map[string]Values{
		"NUL":      {Prompt: "a\x00b"},
		"too long": {Prompt: strings.Repeat("x", MaxArgument+1)},
	} {
		if got, err := v.Expand([]string{"a", "{prompt}"}); err == nil {
			t.Errorf("%s: got %d words, want an error", name, len(got))
		}
	}
	if _, err := (Values{Prompt: strings.Repeat("x", MaxArgument)}).Expand([]string{"a", "{prompt}"}); err != nil {
		t.Errorf("the longest argument: %v", err)
	}
	if _, err := (Values{}).Expand([]string{"{prompt_file}"}); err == nil {
		t.Error("a prompt file that is not there is passed")
	}
}

// A prompt or an id that begins with - is no option of the program that gets it.
func TestMisreadOption(t *testing.T) {
	for _, c := range []struct {
		command, prompt, task string
		field                 string // "" if it is fine
	}{
		{"my-model {prompt}", "say one", "t-1", ""},
		{"my-model -- {prompt}", "--output=/etc/passwd", "t-1", ""},
		{"my-model --task={prompt}", "--output=/etc/passwd", "t-1", ""},
		{"my-model --file {prompt_file}", "--output=/etc/passwd", "t-1", ""},
		{"sh -c 'my-model -- \"$1\"' sh {prompt}", "- a list", "t-1", ""},
		{"my-model x{prompt}", "-x", "t-1", ""},
		{"my-model {prompt}", "--output=/etc/passwd", "t-1", PromptText},
		{"my-model {prompt}", "- a list", "t-1", PromptText},
		{"my-model --task {prompt}", "-x", "t-1", PromptText},
		{"my-model {prompt} --", "-x", "t-1", PromptText},
		{"sh {prompt}", "-c id", "t-1", PromptText},
		{"my-model {task}", "say one", "-x", TaskID},
		{"my-model {task}", "say one", "x-", ""},
	} {
		command, err := Split(c.command)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		var field *FieldError
		if errors.As(Values{Prompt: c.prompt, Task: c.task}.Misread(command), &field) {
			got = field.Field
		}
		if got != c.field {
			t.Errorf("%s with %q for task %q: got %q, want %q", c.command, c.prompt, c.task, got, c.field)
		}
	}
}

// A prompt or an id that the benchmark's owner chose is no program text and leads
// to no other path.
func TestMisread(t *testing.T) {
	for _, c := range []struct {
		command, task string
		field         string // "" if it is fine
	}{
		{"sh -c 'my-model \"$1\"' sh {prompt}", "t-1", ""},
		{"sh -c 'exec my-model {task}'", "t-1", ""},
		{"my-model -c {prompt}", "t-1", ""},
		{"my-model {prompt} --task={task}", "../x; $(id)", ""},
		{"cat answers/{task}/answer.txt", "group/t-1", ""},
		{"sh -c 'my-model {prompt}'", "t-1", PromptText},
		{"sh -c {prompt}", "t-1", PromptText},
		{"/usr/bin/env bash -lc 'my-model \"{prompt}\"'", "t-1", PromptText},
		{"timeout 9 python3 -c 'print(\"{prompt}\")'", "t-1", PromptText},
		{"sh -c 'exec my-model {task}'", "$(id)", TaskID},
		{"sh -c 'exec my-model {task}'", "-x", TaskID},
		{"cat answers/{task}/answer.txt", "../../secret", TaskID},
		{"cat {task}/answer.txt", "/etc", TaskID},
	} {
		command, err := Split(c.command)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		var field *FieldError
		if errors.As(Values{Prompt: "say one", Task: c.task}.Misread(command), &field) {
			got = field.Field
		}
		if got != c.field {
			t.Errorf("%s for task %q: got %q, want %q", c.command, c.task, got, c.field)
		}
	}
}
