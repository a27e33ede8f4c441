// Package expect judges whether a run did what its task asks with one named path: it
// read it, reported the marker that was planted in it and perhaps a line, and searched
// nothing else. spec/expect.md has the rules.
//
// Limits. It knows neither journal nor key: the caller says what was read and searched,
// and shows the reply. Reporting a marker is no proof of understanding. A dimension that
// the evidence does not reach is not established, which is neither met nor missed.
//
// Which test answers which case of known checks of this kind, and their holes:
//
//	exact pass                                TestExactReply, TestTranscript/a_final_reply
//	refusal wording around a correct answer   TestReply/refusal_wording_around_a_correct_answer
//	true refusal                              TestReply/true_refusal
//	reworded or wrapped action                TestReply/wrapped_over_lines, TestReply/within_a_sentence; TestReply/reworded is missed
//	missing marker                            TestReply/missing_marker
//	wrong action                              TestReply/wrong_action
//	fixture parse                             TestTranscriptFixture, TestTranscriptErrors, FuzzTranscript
//	no evidence                               TestNoEvidence/no_reply, TestNoTranscript: not established, not failed
//	missing final message                     TestTranscript/missing_final_message
//	hole: searching elsewhere is not scored   TestPath/something_else_searched
//	hole: the agent rewrites the expected     TestPath/the_agent's_own_text, TestPath/read,_then_replaced
//	hole: one marker for all trials           TestMarker, TestReply/another_run's_marker
//	hole: the marker follows from public ids  TestMarker: it comes from the seed alone, which the recorder draws
//	hole: the line is constant and public     TestReply/missing_marker: it passes only with the marker
//	hole: a list of candidates passes         TestReply/list_of_guesses, TestReply/guess_inside_of_a_word
//	hole: evidence is cut off or left out     TestTranscript/cut_off, TestTranscript/truncated, TestOpeningsLeftOut
package expect

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"
)

// Placeholder stands in the template of the planted file where the marker goes.
const Placeholder = "{{cleanrun.marker}}"

// Reply says where the final reply is.
type Reply uint8

// Places of a reply.
const (
	Stdout     Reply = iota + 1 // all that the command writes to standard output
	File                        // a file of the workspace, as the run left it
	Transcript                  // the last message of the agent in a JSONL file of the workspace
)

const markerPrefix = "CR-"

// Marker is the text of a run's marker: "CR-" and 16 letters and digits (80 bits of
// seed, RFC 4648 base32). The recorder draws seed for each run, so nobody can compute it
// from what is public.
func Marker(seed [32]byte) string {
	return markerPrefix + base32.StdEncoding.EncodeToString(seed[:10])
}

// Commit is what the start row binds of the marker:
// SHA-256("cleanrun/marker/v1" 00 seed).
func Commit(seed [32]byte) (c [32]byte) {
	h := sha256.New()
	h.Write([]byte("cleanrun/marker/v1\x00"))
	h.Write(seed[:])
	h.Sum(c[:0])
	return c
}

// Plant is the text of the planted file.
func Plant(template string, seed [32]byte) string {
	return strings.Replace(template, Placeholder, Marker(seed), 1)
}
