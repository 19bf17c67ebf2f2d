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

package binaries

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestVersion(t *testing.T) {
	require.Regexp(t, `^v1\.\d+\.\d+$`, Version())
	require.Regexp(t, `^-X k8s\.io/component-base/version\.gitVersion=v1\.\d+\.\d+ -X \S+Major=1 -X \S+Minor=\d+$`, versionFlags(Version()))
}

func TestRelease(t *testing.T) {
	for name, test := range map[string]struct{ option, variable, want, err string }{
		"by default":           {want: Version()},
		"an option":            {option: "1.34", want: "v1.34.4"},
		"with a v":             {option: "v1.35", want: "v1.35.4"},
		"a release":            {option: "1.34.1", want: "v1.34.1"},
		"before a release":     {option: "v1.38.0-alpha.0", want: "v1.38.0-alpha.0"},
		"the default's minor":  {option: "1.37", want: Version()},
		"a variable":           {variable: "1.36", want: "v1.36.3"},
		"an option beside one": {option: "1.34", variable: "1.36", want: "v1.34.4"},
		"something else":       {option: "latest", err: `"latest" is not a version of Kubernetes: name a release, such as ` + Version() + `, or one of the minor versions 1.34 to 1.37`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(VersionVariable, test.variable)
			got, err := Options{Version: test.option}.Release()
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestDerive(t *testing.T) {
	require.Equal(t, `module kubernetes.build

go 1.24.0

godebug default=go1.24

require (
	github.com/armon/circbuf v0.0.0-20190214190532-5111143e8da2
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => k8s.io/api v0.34.4
	k8s.io/kubectl => k8s.io/kubectl v0.34.4
)

require k8s.io/kubernetes v1.34.4
`, derive(`module k8s.io/kubernetes

go 1.24.0

godebug default=go1.24

require (
	github.com/armon/circbuf v0.0.0-20190214190532-5111143e8da2
	k8s.io/api v0.0.0
)

replace (
	k8s.io/api => ./staging/src/k8s.io/api
	k8s.io/kubectl => ./staging/src/k8s.io/kubectl
)
`, "v1.34.4"))
}

// TestKubernetes builds the smallest program, whose packages the build cache usually has.
func TestKubernetes(t *testing.T) {
	var mu sync.Mutex
	var told []string
	options := Options{CacheDir: filepath.Join(t.TempDir(), "cache"), Progress: func(message string) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, message)
	}}
	dirs := make([]string, 2)
	var both sync.WaitGroup
	for i := range dirs {
		both.Go(func() {
			var err error
			dirs[i], err = Kubernetes(t.Context(), options, "etcd")
			require.NoError(t, err)
		})
	}
	both.Wait()
	require.Equal(t, dirs[0], dirs[1])
	etcd := filepath.Join(dirs[0], "etcd")
	output, err := exec.CommandContext(t.Context(), etcd, "--version").CombinedOutput()
	require.NoError(t, err, "%s", output)
	require.Contains(t, string(output), "etcd Version: 3.")
	entries, err := os.ReadDir(dirs[0])
	require.NoError(t, err)
	require.Len(t, entries, 1, "the build has left something behind")

	// Existing programs are not built again, so that the go command is not needed.
	t.Setenv("PATH", "")
	dir, err := Kubernetes(t.Context(), options, "etcd")
	require.NoError(t, err)
	require.Equal(t, dirs[0], dir)
	_, err = Kubernetes(t.Context(), options, "etcd", "kubectl")
	require.ErrorContains(t, err, `kubectl cannot be built: go build k8s.io/kubernetes/cmd/kubectl: exec: "go": executable file not found in $PATH`)
	older := options
	older.Version = "1.34"
	_, err = Kubernetes(t.Context(), older, "kubectl", "etcd")
	require.EqualError(t, err, "etcd is no part of Kubernetes v1.34.4: leave out the version")
	_, err = Kubernetes(t.Context(), options, "kubeadm")
	require.EqualError(t, err, `"kubeadm" is not a program of a cluster: choose from etcd, etcdctl, kube-apiserver, kube-controller-manager, kube-proxy, kube-scheduler, kubectl, kubelet`)
}

func TestOneBuildsAndTheOthersWait(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	lock, err := Options{}.lock(t.Context(), path)
	require.NoError(t, err)

	waiting := make(chan string, 1)
	options := Options{Progress: func(message string) { waiting <- message }}
	interrupted, interrupt := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := options.lock(interrupted, path)
		ended <- err
	}()
	require.Equal(t, "waiting for another process that builds Kubernetes and has locked "+path, <-waiting)
	interrupt()
	require.ErrorIs(t, <-ended, context.Canceled)

	go func() {
		lock, err := options.lock(t.Context(), path)
		if err == nil {
			err = lock.Close()
		}
		ended <- err
	}()
	<-waiting
	require.NoError(t, lock.Close())
	require.NoError(t, <-ended)
}

// TestPackage builds a program of another module.
func TestPackage(t *testing.T) {
	module := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		require.NoError(t, os.WriteFile(filepath.Join(module, name), []byte(content), 0o600))
	}
	write("go.mod", "module example.com/hello\n\ngo 1.26.0\n")
	write("main.go", "package main\n\nfunc main() { println(\"hello\") }\n")
	t.Chdir(module)
	target := filepath.Join("bin", "hello")
	require.NoError(t, Package(t.Context(), Options{}, ".", target))
	output, err := exec.CommandContext(t.Context(), filepath.Join(module, target)).CombinedOutput()
	require.NoError(t, err)
	require.Equal(t, "hello\n", string(output))

	write("main.go", "package main\n\nfunc main() { hello() }\n")
	err = Package(t.Context(), Options{}, "example.com/hello", target)
	require.ErrorContains(t, err, "hello cannot be built: go build example.com/hello: exit status 1\n")
	require.ErrorContains(t, err, "undefined: hello")

	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	require.ErrorContains(t, Package(ctx, Options{}, ".", target), "building hello: context deadline exceeded")
}
