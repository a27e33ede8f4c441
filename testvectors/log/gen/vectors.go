package main

import (
	"encoding/hex"
	"strings"
)

func all() []vector { return append(contradictions(), malformed()...) }

// contradictions are logs whose last entry is taken or refused for what the
// others say.
func contradictions() []vector {
	var out []vector
	add := func(name, refusal, redteam, comment string, entries ...[]byte) {
		out = append(out, vector{name, refusal, redteam, comment, entries})
	}
	var (
		sealed = seal(owner, "head")
		one    = register(runner, 1)
		at7    = checkpoint(runner, 1, 7, "root at 7")
		end    = final(runner, 1, 9, "root at 9")
		done   = attest(runner, 1, 9, "root at 9")
	)
	id, text := submission()

	add("ok-seal-benchmark", "ok", "", "the digest of a benchmark's head", sealed)
	add("ok-seal-set", "ok", "", "the digest of a set sealed alone", envelope(owner, "seal", "tiny-bench/first-task", "sealed-set", sum("set")))
	add("ok-seal-again", "ok", "", "a digest that another owner sealed first", seal(owner2, "head"), sealed)
	add("ok-register", "ok", "", "a run under a seal that is logged", sealed, one)
	add("ok-register-second-attempt", "ok", "", "attempt 2 after attempt 1", sealed, one, register(runner, 2))
	add("ok-register-other-issuer", "ok", "", "run id and attempt of another issuer", sealed, register(runner2, 1), one)
	add("ok-checkpoint", "ok", "", "a journal that grows", sealed, one, at7, checkpoint(runner, 1, 8, "root at 8"))
	add("ok-checkpoint-again", "ok", "", "the bytes of an entry that is logged", sealed, one, at7, checkpoint(runner, 1, 8, "root at 8"), at7)
	add("ok-final", "ok", "", "the end of a run", sealed, one, at7, end)
	add("ok-final-without-checkpoint", "ok", "", "the end of a short run", sealed, one, end)
	add("ok-final-of-checkpoint", "ok", "", "a FINAL of the head that was logged last", sealed, one, at7, final(runner, 1, 7, "root at 7"))
	add("ok-attest", "ok", "", "the receipt of a run", sealed, one, at7, end, done)
	add("ok-submit", "ok", "", "a submission", entry(runner, "submission", "application/vnd.in-toto+json", id, []byte(text)))
	add("ok-submit-digest", "ok", "", "the digest of a submission", envelope(runner, "submit", id, "submission", sum("submission.cose")))

	add("seal-missing", "seal-missing", "19", "a run before its seal", one)
	add("seal-missing-other", "seal-missing", "19", "another digest is sealed", seal(owner, "old head"), one)
	add("register-again-attempt", "register-again", "82", "one attempt, two runs", sealed, one, registration{run: 2, values: map[int64][]byte{6: num(1)}}.by(runner))
	add("register-again-run", "register-again", "81", "one run id, two tasks", sealed, one, with(4, tstr("second-task")))
	add("checkpoint-unregistered", "checkpoint-unregistered", "", "a run that nobody registered", sealed, one, checkpoint(runner, 2, 7, "root at 7"))
	add("checkpoint-unregistered-issuer", "checkpoint-unregistered", "", "a run that another issuer registered", sealed, one, checkpoint(runner2, 1, 7, "root at 7"))
	add("checkpoint-back", "checkpoint-back", "2", "fewer rows than before", sealed, one, at7, checkpoint(runner, 1, 6, "root at 6"))
	add("checkpoint-back-same-size", "checkpoint-back", "2", "as many rows with another root", sealed, one, at7, checkpoint(runner, 1, 7, "another"))
	add("final-unregistered", "final-unregistered", "", "the end of a run that nobody registered", sealed, one, final(runner, 2, 9, "root at 9"))
	add("final-unregistered-issuer", "final-unregistered", "", "the end of a run that another issuer registered", sealed, one, final(runner2, 1, 9, "root at 9"))
	add("final-short", "final-short", "3", "rows dropped that a CHECKPOINT counts", sealed, one, at7, final(runner, 1, 6, "root at 6"))
	add("final-head", "final-head", "3", "rows exchanged that a CHECKPOINT covers", sealed, one, at7, final(runner, 1, 7, "another"))
	add("final-again", "final-again", "9", "a second end", sealed, one, end, final(runner, 1, 10, "root at 10"))
	add("after-final", "after-final", "15", "a run goes on after its end", sealed, one, end, checkpoint(runner, 1, 10, "root at 10"))
	add("attest-unfinished", "attest-unfinished", "8", "the receipt of a run that goes on", sealed, one, checkpoint(runner, 1, 9, "root at 9"), done)
	add("attest-unfinished-issuer", "attest-unfinished", "70", "the receipt of another issuer's run", sealed, one, end, attest(runner2, 1, 9, "root at 9"))
	add("attest-head-size", "attest-head", "2", "a receipt over fewer rows", sealed, one, at7, end, attest(runner, 1, 7, "root at 7"))
	add("attest-head-root", "attest-head", "7", "a receipt over other rows", sealed, one, at7, end, attest(runner, 1, 9, "another"))

	add("unknown-issuer", "unknown-issuer", "70", "a key that the log does not admit", sealed, register(attacker, 1))
	add("unknown-issuer-runner-seals", "unknown-issuer", "18", "a runner is no owner", seal(runner, "head"))
	add("unknown-issuer-owner-registers", "unknown-issuer", "", "an owner is no runner", sealed, register(owner, 1))
	forged := append([]byte{}, one...)
	forged[len(forged)-1] ^= 1
	add("bad-signature", "bad-signature", "1", "one bit of the signature", sealed, forged)
	return out
}

// malformed are entries that no log takes.
func malformed() []vector {
	var out []vector
	add := func(name, redteam, comment string, last []byte) {
		out = append(out, vector{name, "not-an-entry", redteam, comment, [][]byte{seal(owner, "head"), last}})
	}
	run1 := hex.EncodeToString(runID(1))
	reg := registration{run: 1}
	add("register-version", "", "version 2", with(1, tstr("cleanrun/register/v2")))
	add("register-run-text", "60", "the run id as text", with(2, tstr(run1)))
	add("register-run-zero", "", "run id zero", registration{sub: strings.Repeat("0", 32), values: map[int64][]byte{2: bstr(make([]byte, 16)), 6: num(1)}, run: 1}.by(runner))
	add("register-sub-other", "81", "sub names another run", registration{run: 1, sub: hex.EncodeToString(runID(2))}.by(runner))
	add("register-sub-upper", "60", "sub in upper case", registration{run: 1, sub: strings.ToUpper(run1)}.by(runner))
	add("register-benchmark-empty", "", "a run without a task", with(3, tstr("")))
	add("register-task-bidi", "", "a name that changes the writing direction", with(4, tstr("first\u202etask")))
	add("register-task-not-utf8", "61", "a name that is no UTF-8", with(4, tstr("first\xfftask")))
	add("register-trial-zero", "", "trial 0", with(5, num(0)))
	add("register-trial-text", "60", `trial "1"`, with(5, tstr("1")))
	add("register-trial-float", "60", "trial 1.0", with(5, []byte{0xf9, 0x3c, 0x00}))
	add("register-trial-two-bytes", "60", "trial 1 in two bytes", with(5, []byte{0x18, 1}))
	add("register-attempt-zero", "", "attempt 0", with(6, num(0)))
	add("register-attempt-large", "", "attempt 2^32", with(6, num(1<<32)))
	add("register-sealed-31-bytes", "21", "a digest of 31 bytes", with(8, bstr(sum("head")[:31])))
	add("register-sealed-zero", "16", "a digest of zeros", with(8, bstr(make([]byte, 32))))
	add("register-scope-null", "", "no scope", with(10, []byte{0xf6}))
	absent := reg
	absent.absent = 12
	add("register-key-missing", "62", "no model", absent.by(runner))
	extra := reg
	extra.extra = cat(num(15), num(1))
	add("register-key-unknown", "62", "key 15", extra.by(runner))
	twice := reg
	twice.extra = cat(num(14), bstr(sum("start")))
	add("register-key-twice", "59", "key 14 twice", twice.by(runner))
	swap := reg
	swap.swap = true
	add("register-keys-unsorted", "60", "attempt before trial", swap.by(runner))
	add("register-trailing", "61", "a byte after the payload", entry(runner, "register", media+"register+cbor", run1, append(reg.payload(), 0)))
	add("register-as-checkpoint", "69", "the payload of a REGISTER in a CHECKPOINT", checkpointOf(runner, 1, reg.payload()))

	indefinite := cat([]byte{0xbf}, num(1), tstr("cleanrun/checkpoint/v1"), num(2), num(7), num(3), bstr(sum("root at 7")), []byte{0xff})
	add("checkpoint-indefinite", "61", "a map of indefinite length", checkpointOf(runner, 1, indefinite))
	add("checkpoint-no-rows", "12", "size 0", checkpoint(runner, 1, 0, ""))

	counts := func(list ...[]byte) []byte { return finalOf(runner, 1, 9, "root at 9", 1, 0, array(list...)) }
	add("final-outcome-5", "", "an unknown outcome", finalOf(runner, 1, 9, "root at 9", 5, 0, array(count(0, 1, 8))))
	add("final-completed-3", "", "completed with exit code 3", finalOf(runner, 1, 9, "root at 9", 1, 3, array(count(0, 1, 8))))
	add("final-counts-short", "6", "fewer rows than the size says", counts(count(0, 1, 1), count(1, 4, 6)))
	add("final-counts-unsorted", "4", "agent before setup", counts(count(1, 4, 7), count(0, 1, 1)))
	add("final-counts-twice", "5", "one count twice", counts(count(0, 1, 4), count(0, 1, 4)))
	add("final-counts-overflow", "", "counts whose sum is 8 modulo 2^64", counts(count(0, 1, 1<<64-1), count(1, 4, 9)))
	add("final-counts-itself", "", "the closing row counted", counts(count(0, 1, 1), count(0, 2, 1), count(1, 4, 6)))

	root := hex.EncodeToString(sum("root at 9"))
	good := statement(run1, root, 9)
	add("attest-sub-other", "81", "sub names another run", attestOf(runner, 2, good))
	add("attest-subject-digest", "75", "the subject is not the head", attestOf(runner, 1, strings.Replace(good, `"sha256":"`+root, `"sha256":"`+hex.EncodeToString(sum("another")), 1)))
	add("attest-two-subjects", "75", "a second subject", attestOf(runner, 1, strings.Replace(good, `"subject":[`, `"subject":[{"digest":{"sha256":"00"},"name":"x"},`, 1)))
	add("attest-with-space", "60", "white space in the statement", attestOf(runner, 1, strings.Replace(good, `"subject":[`, `"subject": [`, 1)))
	add("attest-field-twice", "59", "a field twice", attestOf(runner, 1, strings.Replace(good, `"verdict":"CLEAN"`, `"verdict":"CLEAN","verdict":"CLEAN"`, 1)))

	id, text := submission()
	add("submit-sub-other", "81", "sub names another submission", entry(runner, "submission", "application/vnd.in-toto+json", run1, []byte(text)))
	add("submit-sub-text", "", "sub is no id", envelope(runner, "submit", "mine", "submission", sum("x")))
	add("submit-digest-31-bytes", "21", "a digest of 31 bytes", envelope(runner, "submit", id, "submission", sum("x")[:31]))
	add("benchmark-itself", "69", "a benchmark's head in place of a SEAL over it", entry(owner, "benchmark", media+"benchmark+cbor", "tiny-bench", pairs(num(1), num(1))))
	add("text", "", "no COSE", []byte("not an entry\n"))
	return out
}
