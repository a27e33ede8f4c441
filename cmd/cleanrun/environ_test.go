package main

import (
	"slices"
	"testing"
)

func TestEnvironment(t *testing.T) {
	secrets := []string{"OPENAI_API_KEY=1", "GITHUB_TOKEN=1", "PGPASSWORD=1", "AWS_SECRET_ACCESS_KEY=1", "SSH_AUTH_SOCK=1", "GH_PAT=1", "apikey=1", "SENTRY_DSN=1", "KEY2=1"}
	plain := []string{"PATH=/bin", "HOME=/h", "GRPC_ROOTS_FILE_PATH=1", "XKB_KEYMAP=1", "AUTHOR=a", "LANG=C", "KEYBOARD=x"}
	env, withheld, err := environment(slices.Concat(plain, secrets), nil)
	if err != nil || !slices.Equal(env, plain) || len(withheld) != len(secrets) {
		t.Errorf("got %v, kept out %v, %v; want %v kept out", env, withheld, err, secrets)
	}
	env, withheld, err = environment(slices.Concat(plain, secrets), []string{"GH_PAT"})
	if err != nil || !slices.Contains(env, "GH_PAT=1") || slices.Contains(withheld, "GH_PAT") {
		t.Errorf("got %v, kept out %v, %v; want GH_PAT passed", env, withheld, err)
	}
	if _, _, err := environment(plain, []string{"NOT_THERE"}); err == nil {
		t.Error("a variable that is not there was accepted")
	}
}
