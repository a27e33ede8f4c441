// Peer runs the witness of transparency-dev/witness for a test, with its state in
// memory. It has a module of its own: that library wants versions of the log
// libraries that are not released.
//
// Arguments: the witness's private key (PRIVATE+KEY+...) and the verifier keys of
// logs. It prints its address and ends when its input does.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	fnote "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(key string, vkeys []string) error {
	signer, err := fnote.NewSignerForCosignatureV1(key)
	if err != nil {
		return err
	}
	logs := map[string]note.Verifier{}
	for _, k := range vkeys {
		v, err := note.NewVerifier(k)
		if err != nil {
			return err
		}
		logs[v.Name()] = v
	}
	w, err := witness.New(context.Background(), witness.Opts{
		Persistence: inmemory.New(),
		Signers:     []note.Signer{signer},
		VerifierForLog: func(_ context.Context, origin string) (note.Verifier, bool, error) {
			v, ok := logs[origin]
			return v, ok, nil
		},
	})
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	http.HandleFunc("POST /add-checkpoint", witness.NewHTTPHandler(w).AddCheckpoint)
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	return http.Serve(l, nil)
}
