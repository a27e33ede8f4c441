// Package keys makes and loads the private keys that sign seals and receipts.
//
// Limits first. Key files are not encrypted: their protection is the file mode,
// and a file that others can read is refused. Two kinds of key are known,
// Ed25519 and ECDSA P-256. There is no revocation and no expiry.
//
// A key is two files. x.key is the private key, PKCS#8 in PEM (RFC 7468, section
// 10). x.key.pub is one line, its vkey (c2sp.org/signed-note), which gives the
// key its name; PKCS#8 has no place for one that all tools keep. Load needs both
// and refuses a pair that does not belong together. The name is signed into
// every receipt, so it must not depend on how a file happens to be called.
//
// All signing goes through github.com/sigstore/sigstore, so that a key in a
// management service is used like one in a file (FromSigstore).
package keys
