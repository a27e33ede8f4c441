package expect

// A Why says why a dimension is not met. The list is closed (spec/expect.md, "Reasons").
type Why string

// Reasons of a dimension that is missed.
const (
	WhyNotRead      Why = "not-read"
	WhyOtherText    Why = "other-text"
	WhyChanged      Why = "changed"
	WhyMarkerAbsent Why = "marker-absent"
	WhyOtherMarker  Why = "other-marker"
	WhyNoLine       Why = "line-absent"
	WhySearched     Why = "searched"
	WhyOtherTask    Why = "other-task"     // of evidence-complete; for the others it is not established
	WhyAgents       Why = "several-agents" // the same
	WhyNoReply      Why = "no-reply"       // the same
	WhyOtherAuthor  Why = "other-author"
	WhyOtherChannel Why = "other-channel"
)

// Reasons of a dimension that is not established.
const (
	WhyCut        Why = "cut-off"
	WhyNoMarker   Why = "marker-unopened"
	WhyUnopened   Why = "open-unopened"
	WhyTooMany    Why = "too-many-opens"
	WhyUnnamed    Why = "reply-unnamed"
	WhyNotShown   Why = "reply-unopened"
	WhyLong       Why = "reply-long"
	WhyUnreadable Why = "reply-unreadable"
	WhyNoFile     Why = "reply-absent"
	WhyMoved      Why = "reply-moved"
	WhyMalformed  Why = "transcript-malformed"
	WhyTruncated  Why = "transcript-truncated"
)

// says of the reasons, in words.
var says = map[Why]string{
	WhyNotRead:      "nothing opened the named path for reading",
	WhyOtherText:    "another text stood at the named path",
	WhyChanged:      "the named path, or a folder above it, was changed",
	WhyMarkerAbsent: "the reply does not hold the marker as a whole word",
	WhyOtherMarker:  "the reply holds something else of the marker's shape: a guess, or the marker inside a longer word",
	WhyNoLine:       "the reply does not hold the line",
	WhySearched:     "something outside the workspace and the granted paths was used",
	WhyOtherTask:    "the transcript names another task",
	WhyAgents:       "the transcript has several agents",
	WhyNoReply:      "the transcript has no message of the agent after the last one to it",
	WhyOtherAuthor:  "somebody else wrote the reply",
	WhyOtherChannel: "the reply is in another channel",
	WhyCut:          "the journal has no end, or events were lost",
	WhyNoMarker:     "the bundle does not show the marker",
	WhyUnopened:     "the bundle does not show what an open of the named path gave, or not all of it",
	WhyTooMany:      "the named path was opened more often than is looked at",
	WhyUnnamed:      "the bundle does not name the reply's file: nothing wrote it, or the attester keeps it back",
	WhyNotShown:     "the bundle does not show the reply",
	WhyLong:         "the reply is too long",
	WhyUnreadable:   "the recorder could not read the reply, or removed secrets from it",
	WhyNoFile:       "no row shows that the run wrote the reply's file and left it there",
	WhyMoved:        "what stood in the reply's place at the end is not certain: it, or a folder above it, was moved or replaced",
	WhyMalformed:    "the transcript is malformed or cut off",
	WhyTruncated:    "the transcript says that it is truncated",
}

// Says is the reason in words, "" if there is none.
func (w Why) Says() string { return says[w] }
