package main

import (
	"crypto/ed25519"
	"errors"
	"strings"
	"time"

	"github.com/cleanrun-dev/cleanrun/internal/fixture"
	"github.com/cleanrun-dev/cleanrun/receipt"
	"github.com/cleanrun-dev/cleanrun/verify"
)

// loggedRate verifies a logged receipt, whose log has three witnesses, and makes
// only the signature checks that this takes.
func loggedRate(_ string, repeat int) (Measure, error) {
	var m Measure
	owner, runner := fixture.NewKey("bench.example/owner"), fixture.NewKey("evals.example/runner")
	log := fixture.NewLog("log.example/1", 3)
	for range 1000 {
		log.Add([]byte("an entry of somebody else"))
	}
	seal, err := fixture.NewSeal(owner, "bench", []string{"task"})
	if err != nil {
		return m, err
	}
	bundle, err := seal.Bundle(runner, fixture.Attempt{Task: "task", Trial: 1, Attempt: 1, Agent: "agent", Model: "model",
		Log: &fixture.Logging{Log: log, Owner: owner, Runner: runner, Heads: []uint64{4}, Between: 100}})
	if err != nil {
		return m, err
	}
	policy, err := verify.ParsePolicy([]byte(strings.Join([]string{"owner " + owner.Public().String(), "runner " + runner.Public().String(), log.PolicyLines(3)}, "\n")))
	if err != nil {
		return m, err
	}
	bare, err := loggedSignatures(bundle)
	if err != nil {
		return m, err
	}
	const rounds = 200
	now := time.Unix(fixture.LogStart+3600, 0)
	rates := map[string][]float64{}
	for range repeat {
		began := time.Now()
		for range rounds {
			if err := bare(); err != nil {
				return m, err
			}
		}
		rates["its signatures alone"] = append(rates["its signatures alone"], rounds/time.Since(began).Seconds())
		began = time.Now()
		for range rounds {
			if r := verify.Verify(bundle, policy, now); r.Exit != 0 || r.Assurance.Level != verify.L1 {
				return m, errors.New("the logged receipt does not verify: " + r.Text("bundle"))
			}
		}
		rates["verify, with the evidence"] = append(rates["verify, with the evidence"], rounds/time.Since(began).Seconds())
	}
	m = Measure{Unit: "receipts/s", Values: map[string]float64{}}
	for name, list := range rates {
		m.Values[name] = median(list)
	}
	return m, nil
}

// loggedSignatures makes as many signature checks as a logged bundle needs, over
// as many bytes.
func loggedSignatures(bundle []byte) (func() error, error) {
	b, err := receipt.ParseBundle(bundle)
	if err != nil {
		return nil, err
	}
	l, err := receipt.ParseLog(b.Log)
	if err != nil {
		return nil, err
	}
	sealed, err := receipt.ParseSealed(b.Sealed)
	if err != nil {
		return nil, err
	}
	head := b.Sealed
	if sealed.Part != nil {
		head = sealed.Part.Head
	}
	sizes := []int{len(b.Receipt), len(b.Statement), len(head), len(l.Seal.Statement), len(l.Register.Statement), len(l.Final.Statement)}
	for _, c := range l.Checkpoints {
		sizes = append(sizes, len(c.Statement))
	}
	for range 4 { // COSE receipts: inclusion of REGISTER and of the receipt, and consistency twice
		sizes = append(sizes, 150)
	}
	for range 3 * (1 + 3) { // checkpoints: the log and three witnesses
		sizes = append(sizes, 100)
	}
	secret := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))
	public := secret.Public().(ed25519.PublicKey)
	type signed struct{ message, signature []byte }
	var list []signed
	for _, n := range sizes {
		message := make([]byte, n)
		list = append(list, signed{message, ed25519.Sign(secret, message)})
	}
	return func() error {
		for _, s := range list {
			if !ed25519.Verify(public, s.message, s.signature) {
				return errors.New("a signature does not verify")
			}
		}
		return nil
	}, nil
}
