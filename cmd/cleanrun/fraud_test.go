package main

import (
	"os"

	"github.com/cleanrun-dev/cleanrun/internal/fixture"
)

// lying-runner writes policy.txt, a compact bundle whose signed tree leaves out
// what the agent read (compact.cleanrun), one of an honest run
// (honest.cleanrun), and the evidence of both.
func init() { commands["lying-runner"] = lyingRunner }

func lyingRunner() {
	must := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	owner, runner := fixture.NewKey("bench.example/owner"), fixture.NewKey("evals.example/runner")
	seal, err := fixture.NewSeal(owner, "bench", []string{"a", "b"})
	must(err)
	evidence, bundle, err := seal.Hidden(runner, "a")
	must(err)
	full, err := seal.Bundle(runner, fixture.Attempt{Task: "b", Trial: 1, Attempt: 1, Agent: "agent", Model: "model"})
	must(err)
	for name, data := range map[string][]byte{
		"policy.txt":    []byte("owner " + owner.Public().String() + "\nrunner " + runner.Public().String() + "\n"),
		"evidence.cbor": evidence, "compact.cleanrun": bundle, "other.cleanrun": full,
	} {
		must(os.WriteFile(name, data, 0o644))
	}
}
