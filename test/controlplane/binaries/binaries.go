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

// Package binaries builds the programs of a control plane from source: etcd, Kubernetes,
// and the tested server. There are no downloads of etcd and Kubernetes for tests
// of the aggregation layer. The package needs only the go command and the Go modules.
//
// By default, kubernetes.mod has the versions, a Go module that is part of this
// package. It has the libraries of Kubernetes in the same versions as this module, so that
// code which kube-apiserver and a server share is compiled once. Options.Version names another
// release of Kubernetes, which is built with its own dependencies. The user's cache directory
// keeps the programs by the version and by the content of the module, so that each is built
// once.
package binaries

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	// The module of the Kubernetes builds is embedded.
	_ "embed"
)

// The module that Kubernetes is built in can't be a directory with a go.mod. Downloads of this
// module would not contain such a directory.
var (
	//go:embed kubernetes.mod
	goMod string
	//go:embed kubernetes.sum
	goSum string
)

// Options are the options of builds. The zero value is usable.
type Options struct {
	// CacheDir is the directory of built programs, by default one in os.UserCacheDir.
	CacheDir string
	// Version is the release of Kubernetes to build, such as "v1.34.4". "1.34" is the latest
	// known release of a minor version. The default is the environment variable
	// CONTROLPLANE_KUBERNETES_VERSION, and without that, Version(). It has no effect on etcd.
	Version string
	// Progress, if set, is called every few seconds with the progress of a long build.
	Progress func(message string)
}

// packages are the main packages of the programs, by their names.
func packages() map[string]string {
	programs := map[string]string{"etcd": "go.etcd.io/etcd/server/v3", "etcdctl": "go.etcd.io/etcd/etcdctl/v3"}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubectl", "kubelet"} {
		programs[name] = "k8s.io/kubernetes/cmd/" + name
	}
	return programs
}

// Known reports whether this package builds a program.
func Known(name string) bool { return packages()[name] != "" }

// Version returns the default version of Kubernetes, for instance "v1.37.1".
func Version() string {
	return regexp.MustCompile(`(?m)^\s*k8s\.io/kubernetes (v\S+)`).FindStringSubmatch(goMod)[1]
}

// Kubernetes returns a directory with the named programs: "etcd", "kube-apiserver",
// "kube-controller-manager", "kube-scheduler" or "kubectl". It builds missing ones:
// kube-apiserver takes some minutes the first time. When several processes want the same
// programs at once, one builds and the others wait.
func Kubernetes(ctx context.Context, options Options, names ...string) (dir string, err error) {
	version, err := options.Release()
	if err != nil {
		return "", err
	}
	release := releaseOf(version)
	if i := slices.Index(names, "etcd"); i >= 0 && !release.own() {
		return "", fmt.Errorf("etcd is no part of Kubernetes %s: leave out the version", version)
	}
	root := options.CacheDir
	if root == "" {
		if root, err = userCacheDir(); err != nil {
			return "", err
		}
	}
	content := sha256.Sum256([]byte(strings.Join([]string{release.goMod, release.goSum, runtime.GOOS, runtime.GOARCH}, "\x00")))
	root = filepath.Join(root, fmt.Sprintf("%s-%x", version, content[:6]))
	dir = filepath.Join(root, "bin")
	if missing, err := missing(dir, names); err != nil || len(missing) == 0 {
		return dir, err
	}
	module := filepath.Join(root, "module")
	for _, path := range []string{dir, module} {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return "", fmt.Errorf("cannot keep the programs of Kubernetes: %w", err)
		}
	}
	lock, err := options.lock(ctx, filepath.Join(root, "lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	// Another process may have built them meanwhile.
	wanted, err := missing(dir, names)
	if err != nil {
		return "", err
	}
	if err := release.write(ctx, module); err != nil {
		return "", err
	}
	for _, name := range wanted {
		err := options.build(ctx, build{
			dir: module, target: filepath.Join(dir, name), pkg: packages()[name], shared: true,
			// The flags are the same for all programs, so that shared packages are compiled
			// once.
			flags: []string{"-trimpath", "-buildvcs=false"},
			env:   []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=" + release.mode(), "GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH},
			// Without these flags, the programs would report v0.0.0.
			ldflags: versionFlags(version),
		})
		if err != nil {
			return "", err
		}
	}
	return dir, nil
}

// Package builds a main package of the module in the working directory, or of a required one.
// "go build" has its usual flags and environment there. The program is put at the target,
// unless it is up to date.
func Package(ctx context.Context, options Options, pkg, target string) error {
	target, err := filepath.Abs(target)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return err
	}
	return options.build(ctx, build{target: target, pkg: pkg})
}

func userCacheDir() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("there is no directory to keep the programs of Kubernetes in: %w; set HOME, or name a directory with the programs", err)
	}
	return filepath.Join(dir, "restaurant.programming-kubernetes.info", "apiserver"), nil
}

// missing returns the named programs that are not in the directory.
func missing(dir string, names []string) ([]string, error) {
	known := packages()
	var missing []string
	for _, name := range names {
		if known[name] == "" {
			return nil, fmt.Errorf("%q is not a program of a cluster: choose from %s", name,
				strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
		_, err := os.Stat(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			missing = append(missing, name)
		} else if err != nil {
			return nil, err
		}
	}
	return missing, nil
}

func versionFlags(version string) string {
	const pkg = "k8s.io/component-base/version"
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	return fmt.Sprintf("-X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", pkg, version, parts[0], parts[1])
}

// lock locks a file until it is closed. It waits if another process has locked it.
func (o Options) lock(ctx context.Context, path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	for waiting := false; ; waiting = true {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(fmt.Errorf("cannot lock %s: %w", path, err), file.Close())
		}
		if !waiting {
			o.progress("waiting for another process that builds Kubernetes and has locked %s", path)
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("another process has locked %s: %w", path, context.Cause(ctx)), file.Close())
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (o Options) progress(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(fmt.Sprintf(format, args...))
	}
}
