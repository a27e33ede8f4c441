//go:build !linux

package main

import (
	"context"
	"errors"
	"io"
)

const stageModel = "cleanrun: model"

var errLinux = errors.New("eval needs Linux: the recorder does")

func spawnAttempt(context.Context, attemptJob) (attemptReply, error) {
	return attemptReply{}, errLinux
}

func keepModel([]string) int { return 2 }

func startModel([]string) (io.Reader, io.Writer, func() error, error) {
	return nil, nil, nil, errLinux
}
