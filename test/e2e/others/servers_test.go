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

// Package others examines API servers that other people wrote, and compares what is found with
// testdata, so that docs/lab/conformance.md stays true. "make nightly SUITE=others" builds the servers.
package others

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/template"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/pkg/conformance"
	"restaurant.programming-kubernetes.info/apiserver/pkg/doctor"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

var update = flag.Bool("update", false, "write what is found to testdata")

// server is one that somebody else wrote.
type server struct {
	// Name names the program, and the server's objects in the cluster.
	Name     string
	Versions []schema.GroupVersion
	// Rules are permissions of the server's account besides those that every such server needs.
	Rules []string
	// etcd is set if the server keeps objects in an etcd, and unready if it serves before it says that it is ready.
	etcd, unready bool
	// kubeconfigs are the names of flags that take a kubeconfig.
	kubeconfigs []string
	flags       []string
	// examples are objects of kinds that none can be made of from their schemas.
	examples string
}

// given are the flags that every server takes.
var given = []string{"--bind-address", "--secure-port", "--tls-cert-file", "--tls-private-key-file"}

// run runs the program with the flags of the control plane's servers that it has, too.
func (s *server) run(dir string) func(context.Context, []string) error {
	return func(ctx context.Context, flags []string) error {
		var args []string
		for _, flag := range flags {
			name, value, _ := strings.Cut(flag, "=")
			switch {
			case name == "--kubeconfig":
				for _, name := range s.kubeconfigs {
					args = append(args, name+"="+value)
				}
			case slices.Contains(given, name) || s.etcd && strings.HasPrefix(name, "--etcd-"):
				args = append(args, flag)
			}
		}
		log, err := os.Create(filepath.Join(dir, s.Name+".log"))
		if err != nil {
			return err
		}
		defer log.Close()
		cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv(controlplane.BinDirVariable), s.Name), append(args, s.flags...)...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		if err := cmd.Run(); ctx.Err() == nil {
			text, _ := os.ReadFile(log.Name())
			return errors.Join(fmt.Errorf("%s has ended: %s", s.Name, text[max(0, len(text)-2000):]), err)
		}
		return nil
	}
}

func (s *server) start(t *testing.T) *controlplane.ControlPlane {
	t.Helper()
	dir := t.TempDir()
	var manifests strings.Builder
	require.NoError(t, registration.Execute(&manifests, s))
	for name, text := range map[string]string{"kustomization.yaml": "resources: [server.yaml]", "server.yaml": manifests.String()} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	config := controlplane.Config{Manifests: dir, APIServer: controlplane.ServerConfig{Run: s.run(dir)}}
	if s.etcd {
		config.APIServer.Etcd = "etcd-of-" + s.Name
	}
	if !s.unready {
		return controlplane.ForTest(t, config)
	}
	config.APIServer.Off = true
	cp := controlplane.ForTest(t, config)
	require.NoError(t, cp.Install(t.Context()))
	require.NoError(t, cp.APIServer.Launch())
	require.NoError(t, cp.Register(t.Context(), cp.APIServer))
	return cp
}

var registration = template.Must(template.New("").Parse(`
apiVersion: v1
kind: Namespace
metadata: {name: {{.Name}}}
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: {{.Name}}, name: {{.Name}}}
---
apiVersion: v1
kind: Service
metadata: {namespace: {{.Name}}, name: {{.Name}}}
spec: {ports: [{port: 443}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "{{.Name}}:delegator"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:auth-delegator}
subjects: [{kind: ServiceAccount, namespace: {{.Name}}, name: {{.Name}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: kube-system, name: "{{.Name}}:reader"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: ServiceAccount, namespace: {{.Name}}, name: {{.Name}}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: "{{.Name}}"}
rules:
- {apiGroups: [""], resources: [namespaces], verbs: [get, list, watch]}
- {apiGroups: [admissionregistration.k8s.io], resources: ["*"], verbs: [get, list, watch]}
- {apiGroups: [flowcontrol.apiserver.k8s.io], resources: ["*"], verbs: [get, list, watch]}
{{- range .Rules}}
- {{.}}
{{- end}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "{{.Name}}"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "{{.Name}}"}
subjects: [{kind: ServiceAccount, namespace: {{.Name}}, name: {{.Name}}}]
{{- range .Versions}}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: {{.Version}}.{{.Group}}}
spec: {group: {{.Group}}, version: {{.Version}}, groupPriorityMinimum: 1000, versionPriority: 10, service: {namespace: {{$.Name}}, name: {{$.Name}}}}
{{- end}}
`))

// groupVersions are of one group.
func groupVersions(group string, versions ...string) (all []schema.GroupVersion) {
	for _, version := range versions {
		all = append(all, schema.GroupVersion{Group: group, Version: version})
	}
	return all
}

var delegating = []string{"--kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"}

func servers() []*server {
	return []*server{{
		Name: "sample-apiserver", Versions: groupVersions("wardle.example.com", "v1beta1", "v1alpha1"), etcd: true, kubeconfigs: delegating,
	}, {
		Name: "metrics-server", Versions: groupVersions("metrics.k8s.io", "v1beta1"), kubeconfigs: delegating, flags: []string{"--kubelet-insecure-tls"}, unready: true,
		Rules: []string{`{apiGroups: [""], resources: [nodes, nodes/metrics, pods], verbs: [get, list, watch]}`},
	}, {
		Name: "custom-metrics-adapter", Versions: append(groupVersions("custom.metrics.k8s.io", "v1beta2", "v1beta1"), groupVersions("external.metrics.k8s.io", "v1beta1")...),
		kubeconfigs: []string{"--lister-kubeconfig", "--authentication-kubeconfig", "--authorization-kubeconfig"},
		Rules:       []string{`{apiGroups: ["*"], resources: ["*"], verbs: [get, list]}`},
	}, {
		Name: "acme-webhook", Versions: groupVersions("acme.example.com", "v1alpha1"), kubeconfigs: delegating,
		Rules: []string{`{apiGroups: [""], resources: [secrets], verbs: [get, list, watch]}`},
		examples: `
apiVersion: webhook.acme.cert-manager.io/v1alpha1
kind: ChallengePayload
request: {uid: a, action: Present, type: dns-01, dnsName: example.com, key: a, resourceNamespace: default, resolvedFQDN: _acme-challenge.example.com., resolvedZone: example.com.}`,
	}}
}

// TestServers finds in each server what testdata says. Findings of only some runs are marked there by
// "sometimes".
func TestServers(t *testing.T) {
	framework.Long(t, "the servers are not ours")
	for _, server := range servers() {
		t.Run(server.Name, func(t *testing.T) {
			examples := filepath.Join(t.TempDir(), "examples.yaml")
			require.NoError(t, os.WriteFile(examples, []byte(server.examples), 0o600))
			options := conformance.Options{
				GroupVersions: server.Versions, Level: conformance.Hostile, WebhookAddress: "127.0.0.1:0",
				Progress: func(line string) { t.Log(line) },
			}
			var err error
			options.Examples, err = conformance.ReadExamples(examples)
			require.NoError(t, err)
			cp := server.start(t)
			requireHealthy(t, cp)
			report, err := conformance.Run(t.Context(), cp.RESTConfig(), options)
			require.NoError(t, err)
			found := []string{}
			for _, result := range report.Having(conformance.Failed) {
				t.Logf("%s %s\n%s", result.Resource, result.Check, result.Finding)
				found = append(found, result.Resource+" "+result.Check)
			}
			require.Equal(t, server.expected(t, found), found)
		})
	}
}

// requireHealthy requires that the doctor finds nothing, once kube-apiserver knows the server.
func requireHealthy(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	controlplane.Eventually(t, func() error {
		results, err := doctor.ExamineAPIServices(t.Context(), cp.RESTConfig())
		for _, result := range results {
			if result.Status == doctor.Failure || result.Status == doctor.Warning {
				err = errors.Join(err, fmt.Errorf("%s: %s", result.Check, result.Cause))
			}
		}
		return err
	})
}

// expected are the findings in testdata, without those that only some runs have and this one does not.
func (s *server) expected(t *testing.T, found []string) []string {
	t.Helper()
	golden := filepath.Join("testdata", s.Name+".txt")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(strings.Join(found, "\n")+"\n"), 0o600))
	}
	text, err := os.ReadFile(golden)
	require.NoError(t, err)
	expected := []string{}
	for line := range strings.Lines(string(text)) {
		line, sometimes := strings.CutSuffix(strings.TrimSuffix(line, "\n"), " sometimes")
		if line != "" && (!sometimes || slices.Contains(found, line)) {
			expected = append(expected, line)
		}
	}
	return expected
}
