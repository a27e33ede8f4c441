package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// spawnAttempt does a job in a process of its own, in its own session: Ctrl-C
// does not reach it, a kill of this process ends it and all below it, and so does
// the end of ctx. An error means that it did not reply.
func spawnAttempt(ctx context.Context, j attemptJob) (attemptReply, error) {
	job, err := json.Marshal(j)
	if err != nil {
		return attemptReply{}, err
	}
	var out bytes.Buffer
	said := &tail{most: 2 << 10}
	cmd := exec.CommandContext(ctx, "/proc/self/exe") // killed with SIGKILL when ctx ends
	cmd.Args = []string{stageAttempt}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(job), &out, said
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Pdeathsig: unix.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	ended := make(chan error, 1)
	go func() {
		// It dies with the thread that started it, so that thread stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		ended <- cmd.Run()
	}()
	if err := <-ended; err != nil {
		if text := said.String(); text != "" {
			err = fmt.Errorf("%w: %s", err, text)
		}
		return attemptReply{}, fmt.Errorf("the attempt's process ended: %w", err)
	}
	var rep attemptReply
	if err := json.Unmarshal(out.Bytes(), &rep); err != nil {
		return attemptReply{}, fmt.Errorf("the attempt's process replied %q: %w", out.Bytes()[:min(out.Len(), 200)], err)
	}
	return rep, nil
}
