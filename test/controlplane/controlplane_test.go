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

package controlplane

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// parentDirectory turns the test binary into a program that starts a control
// plane on the named directory. It prints the ids of its processes, and waits to
// be killed.
const parentDirectory = "CONTROLPLANE_TEST_DIRECTORY"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentDirectory); dir != "" {
		if err := parent(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func parent(dir string) error {
	cp, err := Start(context.Background(), bare(dir))
	if err != nil {
		return err
	}
	var pids []int
	for _, component := range []*Component{cp.Etcd, cp.KubeAPIServer} {
		pids = append(pids, component.PID())
	}
	if err := json.NewEncoder(os.Stdout).Encode(pids); err != nil {
		return err
	}
	return cp.Wait(context.Background())
}

// bare configures a kube-apiserver and its etcd only.
func bare(dir string) Config {
	config := Config{Dir: dir}
	config.ControllerManager.Off = true
	config.APIServer.Off = true
	return config
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return client
}

func createConfigMap(t *testing.T, cp *ControlPlane, name string) {
	t.Helper()
	_, err := clientFor(t, cp.RESTConfig()).CoreV1().ConfigMaps("default").
		Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
}

func requireConfigMap(t *testing.T, cp *ControlPlane, name string) {
	t.Helper()
	_, err := clientFor(t, cp.RESTConfig()).CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
}

func TestComponentsCanBeStoppedKilledAndStarted(t *testing.T) {
	cp := ForTest(t, bare(""))
	createConfigMap(t, cp, "kept")

	require.ErrorContains(t, cp.Etcd.Start(t.Context()), "etcd is running already, as process")
	cp.Etcd.Kill()
	require.Zero(t, cp.Etcd.PID())
	require.NoError(t, cp.Etcd.Start(t.Context()))
	require.NoError(t, cp.KubeAPIServer.WaitReady(t.Context()))
	requireConfigMap(t, cp, "kept")

	// Flags can change from one start to the next, also those that are given
	// by default.
	require.NoError(t, cp.KubeAPIServer.Stop())
	cp.KubeAPIServer.SetFlags("--authorization-mode=AlwaysAllow")
	require.NoError(t, cp.KubeAPIServer.Start(t.Context()))
	nobody, err := cp.RESTConfigFor("nobody")
	require.NoError(t, err)
	_, err = clientFor(t, nobody).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	require.NoError(t, err)

	// A flag that does not exist is reported in the component's own words.
	require.NoError(t, cp.KubeAPIServer.Stop())
	cp.KubeAPIServer.SetFlags("--no-such-flag")
	err = cp.KubeAPIServer.Start(t.Context())
	require.ErrorContains(t, err, "kube-apiserver did not become ready: kube-apiserver ended by itself, with exit status 1")
	require.ErrorContains(t, err, "the end of its log "+cp.KubeAPIServer.LogFile())
	require.ErrorContains(t, err, "unknown flag: --no-such-flag")
}

func TestOtherProcessesCanAttach(t *testing.T) {
	running := bare(filepath.Join(t.TempDir(), "running"))
	_, err := Start(t.Context(), Config{Dir: t.TempDir(), Attach: running.Dir})
	require.ErrorContains(t, err, "no control plane runs on the directory "+running.Dir)
	require.ErrorContains(t, err, `start one, for instance with "make run"`)

	cp := ForTest(t, running)
	config := bare(t.TempDir())
	config.Attach = running.Dir
	other, err := Start(t.Context(), config)
	require.NoError(t, err)
	_, err = Start(t.Context(), Config{Dir: t.TempDir(), Attach: running.Dir})
	require.ErrorContains(t, err, "another test uses the control plane on the directory "+running.Dir)
	createConfigMap(t, other, "shared")
	requireConfigMap(t, cp, "shared")
	require.Equal(t, cp.KubeAPIServer.LogFile(), other.KubeAPIServer.LogFile())

	require.EqualError(t, other.Etcd.Restart(t.Context()), "etcd runs in a control plane of another process, "+
		"which alone can start and stop it: run this test without CONTROLPLANE_ATTACH")
	require.NoError(t, other.Stop())
	requireConfigMap(t, cp, "shared")
}

func TestUsersAreWhoTheirCertificatesSay(t *testing.T) {
	cp := ForTest(t, bare(""))
	config, err := cp.RESTConfigFor("stranger", "users")
	require.NoError(t, err)
	_, err = clientFor(t, config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, `User "stranger" cannot list resource "nodes"`)

	kubeconfig, err := cp.KubeconfigFor("system:serviceaccount:a:b", "g")
	require.NoError(t, err)
	other, err := cp.KubeconfigFor("system:serviceaccount:a:b", "h")
	require.NoError(t, err)
	require.NotEqual(t, kubeconfig, other)
	whoami, err := cp.Kubectl(t.Context(), "--kubeconfig="+kubeconfig, "auth", "whoami", "--output=jsonpath={.status.userInfo}").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(whoami), `"username":"system:serviceaccount:a:b"`)
}

func TestDeathOfAComponentIsReported(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it has a control plane of its own")
	}
	cp := ForTest(t, bare(""))
	require.NoError(t, cp.KubeAPIServer.Restart(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.NoError(t, cp.Wait(ctx), "an ordered restart is no death")

	require.NoError(t, syscall.Kill(cp.KubeAPIServer.PID(), syscall.SIGKILL))
	require.ErrorContains(t, cp.Wait(t.Context()), "kube-apiserver ended by itself, with signal: killed; the end of its log")
}

// A terminal with "kubectl get --watch" must not prevent any component from
// ending.
func TestStopDoesNotWaitForWatchers(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it has a control plane of its own")
	}
	cp := ForTest(t, bare(""))
	watcher, err := clientFor(t, cp.RESTConfig()).CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	defer watcher.Stop()
	require.NoError(t, cp.KubeAPIServer.Stop())
}

func TestServersCanBeAddedAndSwitched(t *testing.T) {
	config := Config{}
	config.ControllerManager.Off = true
	config.APIServer.Etcd = "own-etcd"
	cp := ForTest(t, config)
	client, err := dynamic.NewForConfig(cp.RESTConfig())
	require.NoError(t, err)
	toppings := client.Resource(schema.GroupVersionResource{Group: "restaurant.programming-kubernetes.info", Version: "v1", Resource: "toppings"})
	topping := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "restaurant.programming-kubernetes.info/v1",
		"kind":       "Topping",
		"metadata":   map[string]any{"name": "basil"},
		"spec":       map[string]any{"cost": "1"},
	}}
	_, err = toppings.Create(t.Context(), topping, metav1.CreateOptions{})
	require.NoError(t, err)

	second, err := cp.NewAPIServer("second", config.APIServer)
	require.NoError(t, err)
	require.NoError(t, second.Start(t.Context()))
	require.NoError(t, cp.Register(t.Context(), second))
	require.NoError(t, cp.APIServer.Stop())
	require.NoError(t, cp.WaitAvailable(t.Context()))
	_, err = toppings.Get(t.Context(), "basil", metav1.GetOptions{})
	require.NoError(t, err, "the second server does not use the first one's etcd")

	// An embedded etcd has only the objects of its server.
	third, err := cp.NewAPIServer("third", ServerConfig{})
	require.NoError(t, err)
	require.NoError(t, third.Start(t.Context()))
	require.NoError(t, cp.Register(t.Context(), third))
	_, err = toppings.Get(t.Context(), "basil", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	// A server that dies while it is waited for is reported at once.
	third.Kill()
	err = cp.Register(t.Context(), third)
	require.ErrorContains(t, err, "third ended by itself, with signal: killed")
}

func TestDataSurvives(t *testing.T) {
	if testing.Short() {
		t.Skip("long: it has a control plane of its own")
	}
	dir := filepath.Join(t.TempDir(), "controlplane")
	cp, err := Start(t.Context(), bare(dir))
	require.NoError(t, err)
	createConfigMap(t, cp, "kept")
	etcd := cp.Etcd.Dir()
	require.NoError(t, cp.Stop())
	require.NoError(t, cp.Stop(), "stopping twice does nothing")

	// An interrupted run leaves damaged files behind.
	for _, path := range []string{"pki/client-ca.crt", "pki/kube-apiserver.key", "pki/front-proxy-client.crt", "kubeconfig"} {
		require.NoError(t, os.Truncate(filepath.Join(dir, path), 10))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "pki", ".etcd.crt.123"), nil, 0o600))

	cp = ForTest(t, bare(dir))
	require.Equal(t, etcd, cp.Etcd.Dir())
	requireConfigMap(t, cp, "kept")
	require.FileExists(t, cp.Etcd.LogFile()+".previous")
	output, err := cp.Kubectl(t.Context(), "get", "configmap", "kept").CombinedOutput()
	require.NoError(t, err, string(output))
}

func TestChildrenDieWithTheirParent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "controlplane")
	executable, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(executable)
	cmd.Env = append(os.Environ(), parentDirectory+"="+dir)
	cmd.Stderr = t.Output()
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	line, readErr := bufio.NewReader(stdout).ReadBytes('\n')
	killErr := cmd.Process.Kill()
	waitErr := cmd.Wait()
	require.NoError(t, readErr)
	require.NoError(t, killErr)
	require.Error(t, waitErr)
	var pids []int
	require.NoError(t, json.Unmarshal(line, &pids))
	require.Len(t, pids, 2)
	gone := func() bool {
		return errors.Is(syscall.Kill(pids[0], 0), syscall.ESRCH) && errors.Is(syscall.Kill(pids[1], 0), syscall.ESRCH)
	}
	if runtime.GOOS == "linux" {
		require.Eventually(t, gone, Patience, pollInterval, "the kernel does not end the children")
	}

	// On the same directory everything starts again, also where the kernel does
	// not end the children.
	cp := ForTest(t, bare(dir))
	require.True(t, gone())
	createConfigMap(t, cp, "after")
}

func TestWhatCannotStartSaysWhy(t *testing.T) {
	t.Run("port taken", func(t *testing.T) {
		listener, err := net.Listen("tcp", address(thisMachine{}, 0))
		require.NoError(t, err)
		defer listener.Close()
		config := bare(t.TempDir())
		config.Etcd.Port = listener.Addr().(*net.TCPAddr).Port
		_, err = Start(t.Context(), config)
		require.ErrorContains(t, err, fmt.Sprintf("port %d, which etcd is to listen on, is taken by another program", config.Etcd.Port))
	})
	t.Run("no binaries", func(t *testing.T) {
		config := bare(t.TempDir())
		config.BinDir = t.TempDir()
		_, err := Start(t.Context(), config)
		require.ErrorContains(t, err, "cannot start etcd: there is no etcd in "+config.BinDir+": build it there")
	})
	t.Run("directory in use", func(t *testing.T) {
		dir := t.TempDir()
		f, err := claimDirectory(dir)
		require.NoError(t, err)
		defer f.release()
		_, err = Start(t.Context(), bare(dir))
		require.ErrorContains(t, err, "a control plane already runs on the directory "+dir)
	})
	t.Run("no directory", func(t *testing.T) {
		_, err := Start(t.Context(), Config{})
		require.ErrorContains(t, err, "set Config.Dir")
	})
	t.Run("name given twice", func(t *testing.T) {
		config := bare(t.TempDir())
		cp, err := prepare(config)
		require.NoError(t, err)
		defer cp.Stop()
		_, err = cp.NewAPIServer("apiserver", ServerConfig{})
		require.ErrorContains(t, err, "has a component apiserver already")
	})
	t.Run("interrupted", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := Start(ctx, bare(t.TempDir()))
		require.ErrorIs(t, err, context.Canceled)
	})
}
