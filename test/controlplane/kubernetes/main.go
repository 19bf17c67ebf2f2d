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

// Command kubernetes builds etcd and programs of Kubernetes, in the versions that this module is
// made for, and puts them into a directory:
//
//	go run ./test/controlplane/kubernetes -dir=_output/bin kube-apiserver etcd
//
// Programs in the user's cache are not built again, so that all checkouts on a machine share
// them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane/binaries"
)

func main() {
	dir := flag.String("dir", ".", "where to put the programs")
	interval := flag.Duration("interval", 5*time.Second, "time between two reports on a build")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *dir, *interval, flag.Args())
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, interval time.Duration, names []string) error {
	cache, err := binaries.Kubernetes(ctx, binaries.Options{
		Version: binaries.Version(), Interval: interval, Progress: func(message string) { fmt.Println(message) },
	}, names...)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, name := range names {
		if err := replace(filepath.Join(dir, name), filepath.Join(cache, name)); err != nil {
			return err
		}
	}
	return nil
}

// replace copies a program over another, as a whole or not at all. The other may be running.
func replace(target, source string) (err error) {
	from, err := os.Open(source)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.CreateTemp(filepath.Dir(target), ".copy-")
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	err = errors.Join(err, to.Chmod(0o755), to.Close())
	if err == nil {
		err = os.Rename(to.Name(), target)
	}
	if err != nil {
		return errors.Join(err, os.Remove(to.Name()))
	}
	return nil
}
