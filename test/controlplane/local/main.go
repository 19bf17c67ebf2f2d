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

// Command local runs a control plane with an API server on this machine until it is
// interrupted. "make run" calls it, here and in the modules of other API servers:
//
//	go get -tool restaurant.programming-kubernetes.info/apiserver/test/controlplane/local
//	go tool local -next='kubectl get breads'
//
// By default, it builds cmd/apiserver of the module in the working directory, registers it
// by the kustomization artifacts/deploy/base, and keeps all data in _output/local. Flags
// change this. It prints the next commands: the lines of -next, or else how to apply
// artifacts/examples. The programs of Kubernetes are built the first time, which takes some
// minutes, and then kept in the user's cache directory.
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
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane/binaries"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	// After the first signal, a second one ends this process at once, and the kernel its
	// children.
	context.AfterFunc(ctx, cancel)
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	config := controlplane.Config{Progress: func(message string) { fmt.Fprintln(out, message) }}
	flags := flag.NewFlagSet("local", flag.ContinueOnError)
	flags.StringVar(&config.Dir, "dir", "_output/local", "directory for the data of the control plane")
	flags.StringVar(&config.BinDir, "bin", "", "directory with the programs of Kubernetes and the server; those that are not named are built")
	flags.StringVar(&config.KubernetesVersion, "kubernetes-version", "", "release of Kubernetes, such as 1.34 or v1.34.4; if empty, "+binaries.VersionVariable+" or "+binaries.Version())
	flags.StringVar(&config.Manifests, "manifests", "", "directory with the kustomization that registers the server; artifacts/deploy/base of this module if empty")
	flags.StringVar(&config.APIServer.Package, "package", "", "main package of the server, which is built; if empty, apiserver of -bin or cmd/apiserver of this module")
	flags.DurationVar(&config.Timeouts.Ready, "ready-timeout", 0, "how long a component may take until it is ready; 0 means 5 minutes")
	var next lines
	flags.Var(&next, "next", "line to print below what to type next, may be repeated; by default, lines that apply "+examples+" if that exists")
	flags.IntVar(&config.Etcd.Port, "etcd-port", 0, "port of etcd; 0 means any that is free")
	flags.IntVar(&config.KubeAPIServer.Port, "kube-apiserver-port", 0, "port of kube-apiserver; 0 means any that is free")
	flags.IntVar(&config.ControllerManager.Port, "kube-controller-manager-port", 0, "port of kube-controller-manager; 0 means any that is free")
	flags.IntVar(&config.APIServer.Port, "apiserver-port", 0, "port of the server; 0 means any that is free")
	buildRest := flags.String("build-rest", "", "command that builds kubectl and kube-controller-manager in -bin; it runs once the server is up")
	build := flags.Bool("build", false, "build the programs that tests start instead of running")
	clean := flags.Bool("clean", false, "delete the directory instead of running")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if *clean {
		return controlplane.RemoveDirectory(config.Dir)
	}

	config.BinDir = cmp.Or(config.BinDir, os.Getenv(controlplane.BinDirVariable))
	if *build {
		return buildPrograms(ctx, config)
	}
	config.ControllerManager.Off = true
	cp, err := controlplane.Start(ctx, config)
	if err != nil {
		if ctx.Err() != nil {
			return errors.New("interrupted before everything was ready")
		}
		var taken *controlplane.PortTakenError
		if errors.As(err, &taken) {
			return fmt.Errorf("%w\nFor instance: make run %s_PORT=%d", err,
				strings.ToUpper(strings.ReplaceAll(taken.Component, "-", "_")), taken.Port+100)
		}
		return err
	}
	if err := welcome(ctx, out, cp.Kubeconfig(), config, next); err != nil {
		return errors.Join(err, cp.Stop())
	}

	var rest sync.WaitGroup
	rest.Go(func() {
		if err := startRest(ctx, cp, *buildRest, out); err != nil && ctx.Err() == nil {
			fmt.Fprintf(os.Stderr, "Error: the control plane goes on without kube-controller-manager: %v\n", err)
		}
	})
	err = cp.Wait(ctx)
	fmt.Fprintln(out, "\nStopping; the data stays for the next time.")
	rest.Wait()
	return errors.Join(err, cp.Stop())
}

// buildPrograms builds the programs and prints its progress, which "go test" would keep
// until a test ends.
func buildPrograms(ctx context.Context, config controlplane.Config) error {
	options := binaries.Options{Version: config.KubernetesVersion, Progress: config.Progress}
	if config.BinDir == "" {
		if _, err := binaries.Kubernetes(ctx, options, "etcd", "kube-apiserver", "kube-controller-manager", "kubectl"); err != nil {
			return err
		}
	}
	return binaries.Package(ctx, options, cmp.Or(config.APIServer.Package, "./cmd/apiserver"), filepath.Join(config.Dir, "bin", "apiserver"))
}

// startRest builds and starts the parts that the server does not need.
func startRest(ctx context.Context, cp *controlplane.ControlPlane, build string, out io.Writer) error {
	if build != "" {
		cmd := exec.CommandContext(ctx, "sh", "-c", build)
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		// The process group includes the compilers.
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s: %w", build, err)
		}
	}
	if err := cp.Kubectl(ctx).Err; err != nil {
		return err
	}
	if err := cp.ControllerManager.Start(ctx); err != nil {
		return err
	}
	fmt.Fprintln(out, "kube-controller-manager is ready: objects are collected and namespaces deleted, as in any cluster.")
	return nil
}

// examples is the directory of a module's examples.
const examples = "artifacts/examples"

// welcome prints commands for the running control plane.
func welcome(ctx context.Context, out io.Writer, kubeconfig string, config controlplane.Config, next []string) error {
	binDir := config.BinDir
	options := binaries.Options{Version: config.KubernetesVersion}
	release, err := options.Release()
	if err != nil {
		return err
	}
	if binDir == "" || release != binaries.Version() {
		if binDir, err = binaries.Kubernetes(ctx, options); err != nil {
			return err
		}
	}
	if binDir, err = filepath.Abs(binDir); err != nil {
		return err
	}
	if _, err := os.Stat(examples); err == nil && len(next) == 0 {
		next = []string{"kubectl apply -f " + examples, "kubectl get -f " + examples}
	}
	kubectl := ""
	if _, err := os.Stat(filepath.Join(binDir, "kubectl")); errors.Is(err, os.ErrNotExist) {
		kubectl = "; kubectl is still being built, until then another kubectl does"
	}
	_, err = fmt.Fprintf(out, `
The API server is ready, behind a real kube-apiserver. In another terminal%s:

  export KUBECONFIG=%s PATH=%s:$PATH

%s
Ctrl-C stops everything.

`, kubectl, kubeconfig, binDir, lines(next).indented())
	return err
}

// lines is a flag that may be repeated.
type lines []string

func (l *lines) String() string { return strings.Join(*l, "\n") }

func (l *lines) Set(line string) error {
	*l = append(*l, line)
	return nil
}

func (l lines) indented() string {
	var text strings.Builder
	for _, line := range l {
		fmt.Fprintf(&text, "  %s\n", line)
	}
	return text.String()
}
