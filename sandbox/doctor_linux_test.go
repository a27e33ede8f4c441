package sandbox_test

import (
	"testing"

	"github.com/cleanrun-dev/cleanrun/sandbox"
)

func TestSandboxDoctor(t *testing.T) {
	checks := sandbox.Doctor()
	if len(checks) < 7 {
		t.Fatalf("got %d checks, want at least 7", len(checks))
	}
	run := checks[len(checks)-1]
	for _, c := range checks {
		t.Logf("%+v", c)
		if c.ID == "" || c.Got == "" || c.OK == (c.Hint != "") {
			t.Errorf("got %+v, want an id, what happened, and a hint exactly if it failed", c)
		}
		if run.OK && !c.OK {
			t.Errorf("%s failed (%s) but a whole run works", c.ID, c.Got)
		}
	}
}
