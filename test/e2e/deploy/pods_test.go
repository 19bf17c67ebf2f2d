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

package deploy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/kubernetes"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// machine does what kubelets and the network do for pods. It runs the container of a pod
// as a process, with its ServiceAccount, arguments, variables and files. It lets
// processes find each other. Ports and paths are others, as all run on one machine.
type machine struct {
	// prefix tells the components of tests apart.
	prefix string
	// ports are those on this machine for "pod:port".
	ports map[string]int
	// claims are directories for PersistentVolumeClaims.
	claims map[string]string
	// flags are added to a container's, and variables to a pod's.
	flags, variables map[string][]string
}

func newMachine(prefix string) *machine {
	return &machine{prefix: prefix, ports: map[string]int{}, claims: map[string]string{}, flags: map[string][]string{}, variables: map[string][]string{}}
}

// port returns the port of this machine for one of a pod.
func (m *machine) port(t *testing.T, pod, port string) int {
	t.Helper()
	name := pod + ":" + port
	if m.ports[name] == 0 {
		free, err := cp.FreePort(m.prefix + name)
		require.NoError(t, err)
		m.ports[name] = free
	}
	return m.ports[name]
}

var (
	variableReference = regexp.MustCompile(`\$\(([A-Z_]+)\)`)
	memberAddress     = regexp.MustCompile(`([a-z0-9-]+)\.etcd\.` + systemNamespace + `\.svc:(\d+)`)
	everyAddress      = regexp.MustCompile(`0\.0\.0\.0:(\d+)`)
	securePort        = regexp.MustCompile(`^--secure-port=(\d+)$`)
)

// run starts the only container of a pod. It does not wait until that is ready.
func (m *machine) run(t *testing.T, pod corev1.Pod) *controlplane.Component {
	t.Helper()
	container := pod.Spec.Containers[0]
	variables := map[string]string{}
	for _, variable := range container.Env {
		variables[variable.Name] = m.variable(t, pod, container, variable)
	}
	paths := map[string]string{}
	for _, mount := range container.VolumeMounts {
		// The token is in a kubeconfig here.
		if dir := m.volume(t, pod, mount.Name); dir != "" {
			paths[mount.MountPath] = dir
		}
	}
	local := func(argument string) string {
		argument = variableReference.ReplaceAllStringFunc(argument, func(reference string) string {
			value, found := variables[variableReference.FindStringSubmatch(reference)[1]]
			require.True(t, found, "%s of %s is not defined.", reference, pod.Name)
			return value
		})
		for mount, dir := range paths {
			argument = strings.ReplaceAll(argument, "="+mount+"/", "="+dir+"/")
		}
		argument = memberAddress.ReplaceAllStringFunc(argument, func(address string) string {
			match := memberAddress.FindStringSubmatch(address)
			return fmt.Sprintf("localhost:%d", m.port(t, match[1], match[2]))
		})
		argument = everyAddress.ReplaceAllStringFunc(argument, func(address string) string {
			return fmt.Sprintf("127.0.0.1:%d", m.port(t, pod.Name, everyAddress.FindStringSubmatch(address)[1]))
		})
		return securePort.ReplaceAllStringFunc(argument, func(flag string) string {
			return fmt.Sprintf("--secure-port=%d", m.port(t, pod.Name, securePort.FindStringSubmatch(flag)[1]))
		})
	}

	name, _, _ := strings.Cut(path.Base(container.Image), ":")
	program := controlplane.Program{Binary: name}
	if len(container.Command) > 0 {
		program.Binary = path.Base(container.Command[0])
	}
	for _, argument := range container.Args {
		program.Args = append(program.Args, local(argument))
	}
	if pod.Spec.ServiceAccountName != "default" {
		require.NotNil(t, pod.Spec.AutomountServiceAccountToken)
		require.True(t, *pod.Spec.AutomountServiceAccountToken)
	}
	if program.Binary == "apiserver" || program.Binary == "crd-apiserver" || program.Binary == "webhook" {
		program.Args = append(program.Args, "--kubeconfig="+kubeconfigOf(t, pod))
	}
	for _, port := range container.Ports {
		if port.Name == "https" {
			program.Port = m.port(t, pod.Name, strconv.Itoa(int(port.ContainerPort)))
			program.Args = append(program.Args, "--bind-address=127.0.0.1")
		}
	}
	program.Args = append(program.Args, m.flags[container.Name]...)
	for name, value := range variables {
		program.Env = append(program.Env, local(name+"="+value))
	}
	program.Env = append(program.Env, m.variables[pod.Name]...)
	program.Check = m.probe(t, pod, container)
	component, err := cp.NewProgram(m.prefix+pod.Name, program)
	require.NoError(t, err)
	t.Cleanup(component.Kill)
	require.NoError(t, component.Launch())
	return component
}

// runAll starts pods and waits until they are ready.
func (m *machine) runAll(t *testing.T, pods []corev1.Pod) []*controlplane.Component {
	t.Helper()
	var components []*controlplane.Component
	for _, pod := range pods {
		components = append(components, m.run(t, pod))
	}
	for _, component := range components {
		require.NoError(t, component.WaitReady(t.Context()))
	}
	return components
}

func kubeconfigOf(t *testing.T, pod corev1.Pod) string {
	t.Helper()
	kubeconfig, err := cp.KubeconfigFor(serviceaccount.MakeUsername(pod.Namespace, pod.Spec.ServiceAccountName), serviceaccount.MakeGroupNames(pod.Namespace)...)
	require.NoError(t, err)
	return kubeconfig
}

// variable returns the value of an environment variable.
func (m *machine) variable(t *testing.T, pod corev1.Pod, container corev1.Container, variable corev1.EnvVar) string {
	t.Helper()
	switch from := variable.ValueFrom; {
	case from == nil:
		return variable.Value
	case from.FieldRef != nil:
		value, found := map[string]string{"metadata.name": pod.Name, "metadata.namespace": pod.Namespace}[from.FieldRef.FieldPath]
		require.True(t, found, from.FieldRef.FieldPath)
		return value
	default:
		require.Equal(t, "limits.memory", from.ResourceFieldRef.Resource)
		return strconv.FormatInt(container.Resources.Limits.Memory().Value(), 10)
	}
}

// volume returns the directory of a volume. That of a Secret follows the Secret, as a
// kubelet's does.
func (m *machine) volume(t *testing.T, pod corev1.Pod, name string) string {
	t.Helper()
	for _, volume := range pod.Spec.Volumes {
		if volume.Name != name {
			continue
		}
		switch {
		case volume.Secret != nil:
			dir := t.TempDir()
			read := func() error {
				secret, err := framework.Kube(cp).CoreV1().Secrets(pod.Namespace).Get(context.Background(), volume.Secret.SecretName, metav1.GetOptions{})
				if err != nil {
					return err
				}
				data := secret.Data
				if items := volume.Secret.Items; len(items) > 0 {
					data = map[string][]byte{}
					for _, item := range items {
						value, ok := secret.Data[item.Key]
						if !ok {
							return fmt.Errorf("the Secret %s has no %s", secret.Name, item.Key)
						}
						data[item.Path] = value
					}
				}
				return project(dir, secret.ResourceVersion, data)
			}
			controlplane.Eventually(t, read)
			stop := make(chan struct{})
			t.Cleanup(func() { close(stop) })
			go func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Second):
						_ = read()
					}
				}
			}()
			return dir
		case volume.ConfigMap != nil:
			dir := t.TempDir()
			config, err := framework.Kube(cp).CoreV1().ConfigMaps(pod.Namespace).Get(t.Context(), volume.ConfigMap.Name, metav1.GetOptions{})
			require.NoError(t, err)
			for file, content := range config.Data {
				path := filepath.Join(dir, file)
				require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
			}
			return dir
		case volume.PersistentVolumeClaim != nil:
			claim := volume.PersistentVolumeClaim.ClaimName
			_, err := framework.Kube(cp).CoreV1().PersistentVolumeClaims(pod.Namespace).Get(t.Context(), claim, metav1.GetOptions{})
			require.NoError(t, err)
			if m.claims[claim] == "" {
				m.claims[claim] = t.TempDir()
			}
			return m.claims[claim]
		}
	}
	return ""
}

// project puts the content of a Secret into a directory, all at once.
func project(dir, version string, data map[string][]byte) error {
	current := filepath.Join(dir, "..data")
	if target, err := os.Readlink(current); err == nil && target == version {
		return nil
	}
	if err := os.MkdirAll(filepath.Join(dir, version), 0o700); err != nil {
		return err
	}
	for name, content := range data {
		if err := os.WriteFile(filepath.Join(dir, version, name), content, 0o600); err != nil {
			return err
		}
		if err := os.Symlink(filepath.Join("..data", name), filepath.Join(dir, name)); err != nil && !os.IsExist(err) {
			return err
		}
	}
	if err := os.Symlink(version, current+".new"); err != nil {
		return err
	}
	return os.Rename(current+".new", current)
}

// probe returns the probes of a container, which all succeed when it is ready, as kubelets ask:
// without credentials.
func (m *machine) probe(t *testing.T, pod corev1.Pod, container corev1.Container) func(context.Context) error {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		DisableKeepAlives: true,
	}}
	var checks []func(context.Context) error
	for _, probe := range []*corev1.Probe{container.StartupProbe, container.LivenessProbe, container.ReadinessProbe} {
		if probe == nil {
			continue
		}
		get, url := probe.HTTPGet, ""
		for _, port := range container.Ports {
			if port.Name == get.Port.StrVal {
				url = fmt.Sprintf("%s://127.0.0.1:%d%s", strings.ToLower(string(get.Scheme)), m.port(t, pod.Name, strconv.Itoa(int(port.ContainerPort))), get.Path)
			}
		}
		require.NotEmpty(t, url, "A probe of %s asks a port that it does not have.", pod.Name)
		checks = append(checks, controlplane.CheckURL(client, url))
	}
	return func(ctx context.Context) error {
		for _, check := range checks {
			if err := check(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// awaitSecret waits for a Secret.
func awaitSecret(t *testing.T, client kubernetes.Interface, name string) *corev1.Secret {
	t.Helper()
	var secret *corev1.Secret
	controlplane.Eventually(t, func() (err error) {
		secret, err = client.CoreV1().Secrets(systemNamespace).Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return err
		}
		require.NoError(t, err)
		if len(secret.Data) == 0 {
			return fmt.Errorf("the Secret %s is empty", name)
		}
		return nil
	})
	return secret
}
