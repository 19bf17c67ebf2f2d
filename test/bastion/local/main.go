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

// Command local runs a control plane with the server on this machine, where clients reach it by
// SSH only, until it is interrupted. See package bastion. It needs root, and is what "make run-remote"
// calls.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"restaurant.programming-kubernetes.info/apiserver/test/bastion"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// From the first signal on, a second one ends this process at once, and the
	// kernel its children.
	context.AfterFunc(ctx, cancel)
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	config := controlplane.Config{Progress: func(message string) { fmt.Fprintln(out, message) }}
	flags := flag.NewFlagSet("local", flag.ContinueOnError)
	flags.StringVar(&config.Dir, "dir", "_output/remote", "directory for the data of the control plane")
	flags.StringVar(&config.BinDir, "bin", "", "directory with the programs of Kubernetes and the server; those that are not named are built")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	config.BinDir = cmp.Or(config.BinDir, os.Getenv(controlplane.BinDirVariable))
	network, err := bastion.New()
	if err != nil {
		return err
	}
	network.Configure(&config)
	cp, err := controlplane.Start(ctx, config)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted before everything was ready")
		}
		return err
	}
	if err := welcome(ctx, out, network, cp); err != nil {
		return errors.Join(err, cp.Stop())
	}
	err = cp.Wait(ctx)
	fmt.Fprintln(out, "\nStopping; the data stays for the next time.")
	return errors.Join(err, cp.Stop())
}

// welcome starts sshd and says how to get through it.
func welcome(ctx context.Context, out io.Writer, network *bastion.Network, cp *controlplane.ControlPlane) error {
	if err := network.Listen(ctx, cp); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, `
The API server is ready, behind a real kube-apiserver, on a host that clients have no
way to. On the client, which is another network namespace, open the tunnel as root:

  %s

and in another terminal, as root, use it:

  %s

Ctrl-C stops everything.

`, line(network.Client.Command(ctx, "ssh", network.SSHArgs()...)), line(cp.Kubectl(ctx, "--kubeconfig="+cp.Kubeconfig(), "get", "pizzas")))
	return err
}

// line is the command as one types it.
func line(cmd *exec.Cmd) string {
	words := slices.Clone(cmd.Args)
	for i, word := range words {
		if strings.ContainsAny(word, " '\"\\$&;()<>|*?") {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}
