// Package scanner turns the private folder of one run into its evidence pack:
// for each row of the journal, what its content hashes to under the task's key.
//
// Limits. It believes the recorder: contents are those that the journal commits
// to, and what the recorder did not see is not here. The pack shows digests and
// sizes; that they were derived honestly can be checked by whoever has the run
// folder and, later, the task key. The self-check (selfcheck.go) catches a
// scanner that is broken, not one that lies.
//
// How a row's content is treated:
//
//   - A file whose SHA-256 stands in the baseline manifest is exempt, unless it is
//     the control file.
//   - A chunk from a channel declared as the model's is searched for canaries only.
//   - Everything else is scanned: raw, and in all views (internal/views); text rows
//     (argument vectors, new names) with the k=24 profile too.
//   - A stream (stdin, stdout, stderr) is one content in chunks. A shingle belongs
//     to the chunk that completes it. Each chunk is also scanned as an object of
//     its own, and all chunks of one phase together for views, which belong to the
//     last of them.
//   - Scanned content that yields no digest though it has the canonical bytes for
//     one (a long row of zeros) gets its ClassRaw digest, so that an entry without
//     digests always means content without text.
//   - Opaque bytes count for input files, and for stdin that is no model channel.
//
// The same run folder, key and set give the same bytes.
package scanner
