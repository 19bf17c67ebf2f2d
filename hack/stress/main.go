/*
Copyright The Restaurant API Server Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

// Command stress runs a command repeatedly beside a load on all processors:
//
//	go run ./hack/stress -rounds=5 go test -count=1 ./pkg/...
//
// The load is threads of this process, so it ends with it, however that ends. A round
// that fails does not keep the others from running; the exit code tells whether any has.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

func main() {
	rounds := flag.Int("rounds", 5, "how often to run the command")
	load := flag.Int("load", 20, "how many threads want a processor all the time")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, *rounds, *load, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, rounds, load int, command []string) error {
	if len(command) == 0 {
		return errors.New("there is no command to run: name it after the flags")
	}
	ctx, idle := context.WithCancel(ctx)
	defer idle()
	// The threads of the load, and one for the rest.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(load + 1))
	for range load {
		go func() {
			for ctx.Err() == nil { // To be busy is what it is for.
			}
		}()
	}
	failed := 0
	for round := 1; round <= rounds; round++ {
		began := time.Now()
		err := once(ctx, out, command)
		if ctx.Err() != nil {
			return fmt.Errorf("round %d was interrupted; of those before, %d failed", round, failed)
		}
		result := "ok"
		if err != nil {
			result = "FAILED: " + err.Error()
			failed++
		}
		fmt.Fprintf(out, "==> round %d of %d: %s after %s\n", round, rounds, result, time.Since(began).Round(time.Second))
	}
	if failed > 0 {
		return fmt.Errorf("%d of %d rounds failed", failed, rounds)
	}
	return nil
}

// once runs the command. It is interrupted, as by Ctrl-C, when the context is done.
func once(ctx context.Context, out io.Writer, command []string) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd.Run()
}
