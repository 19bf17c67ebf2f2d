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

package apiservices

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// manifests are what an installation of a server has, with a pod instead of controllers.
func (s *server) manifests(ca []byte) string {
	replacements := []string{
		"NAMESPACE", s.namespace, "NAME", s.name, "ACCOUNT", s.account, "CLUSTERIP", s.clusterIP(), "PORT", fmt.Sprint(port), "CABUNDLE", base64.StdEncoding.EncodeToString(ca),
	}
	text := strings.NewReplacer(replacements...).Replace(`
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE}
---
apiVersion: v1
kind: Node
metadata: {name: node}
spec: {podCIDR: 192.0.2.0/24}
---
apiVersion: v1
kind: ServiceAccount
metadata: {namespace: NAMESPACE, name: ACCOUNT}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-NAME-delegator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:auth-delegator}
subjects: [{kind: ServiceAccount, namespace: NAMESPACE, name: ACCOUNT}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {namespace: kube-system, name: test-NAME-reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
subjects: [{kind: ServiceAccount, namespace: NAMESPACE, name: ACCOUNT}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: test-NAME}
rules:
  - {apiGroups: [""], resources: [namespaces, nodes, nodes/metrics, pods], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: test-NAME}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: test-NAME}
subjects: [{kind: ServiceAccount, namespace: NAMESPACE, name: ACCOUNT}]
---
apiVersion: flowcontrol.apiserver.k8s.io/v1
kind: FlowSchema
metadata: {name: test-NAME}
spec:
  matchingPrecedence: 100
  priorityLevelConfiguration: {name: exempt}
  rules:
    - subjects: [{kind: ServiceAccount, serviceAccount: {namespace: NAMESPACE, name: ACCOUNT}}]
      resourceRules: [{verbs: [create], apiGroups: [authentication.k8s.io, authorization.k8s.io], resources: [tokenreviews, subjectaccessreviews], clusterScope: true}]
---
apiVersion: v1
kind: Secret
metadata: {namespace: NAMESPACE, name: NAME-serving}
data: {ca.crt: CABUNDLE}
---
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: NAMESPACE, name: NAME}
spec:
  selector: {matchLabels: {test: NAME}}
  template:
    metadata: {labels: {test: NAME}}
    spec:
      serviceAccountName: ACCOUNT
      containers: [{name: server, image: server, ports: [{name: https, containerPort: 6443}]}]
      volumes: [{name: serving, secret: {secretName: NAME-serving}}]
---
apiVersion: v1
kind: Pod
metadata: {namespace: NAMESPACE, name: NAME-0, labels: {test: NAME}}
spec:
  nodeName: node
  serviceAccountName: ACCOUNT
  automountServiceAccountToken: false
  containers: [{name: server, image: server, ports: [{name: https, containerPort: 6443}]}]
  volumes: [{name: serving, secret: {secretName: NAME-serving}}]
---
apiVersion: v1
kind: Service
metadata: {namespace: NAMESPACE, name: NAME}
spec: {clusterIP: CLUSTERIP, selector: {test: NAME}, ports: [{name: https, port: PORT, targetPort: https}]}
`)
	if s == sample {
		text = strings.Replace(text, "rules:\n", "rules:\n  - {apiGroups: [admissionregistration.k8s.io], resources: [\"*\"], verbs: [get, list, watch]}\n", 1)
	}
	if s == ours { // Its own manifests have that, and it needs nothing else.
		begin, end := strings.Index(text, "apiVersion: flowcontrol"), strings.Index(text, "apiVersion: v1\nkind: Secret")
		text = text[:begin] + text[end:]
	}
	for i, version := range s.versions {
		text += fmt.Sprintf(`
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: %[1]s.%[2]s}
spec: {group: %[2]s, version: %[1]s, groupPriorityMinimum: 1000, versionPriority: %[3]d, caBundle: %[4]s, service: {namespace: %[5]s, name: %[6]s, port: %[7]d}}
`, version, s.group, 100-i, base64.StdEncoding.EncodeToString(ca), s.namespace, s.name, port)
	}
	return text
}

// relay stands where a Service leads to, and passes connections on.
type relay struct {
	address string

	mu       sync.Mutex
	listener net.Listener
	to       string
	open     []net.Conn
}

// silence has a relay accept connections, and nothing else.
const silence = "silence"

// lead has connections go somewhere else, or nowhere. Those that are open end.
func (r *relay) lead(to string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.to = to
	for _, connection := range r.open {
		_ = connection.Close()
	}
	r.open = nil
	if to == "" && r.listener != nil {
		_ = r.listener.Close()
		r.listener = nil
	}
	if to == "" || r.listener != nil {
		return nil
	}
	var err error
	if r.listener, err = net.Listen("tcp", r.address); err == nil {
		go r.serve(r.listener)
	}
	return err
}

func (r *relay) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.open = append(r.open, client)
		to := r.to
		if to != silence {
			if server, err := net.Dial("tcp", to); err != nil {
				_ = client.Close()
			} else {
				r.open = append(r.open, server)
				go pass(client, server)
				go pass(server, client)
			}
		}
		r.mu.Unlock()
	}
}

func pass(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
}

// kinds are those of the objects that faults change, in the order in which they are put back.
func kinds() []schema.GroupVersionResource {
	var kinds []schema.GroupVersionResource
	for _, kind := range []string{
		"admissionregistration.k8s.io/v1/validatingwebhookconfigurations", "admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", "admissionregistration.k8s.io/v1/validatingadmissionpolicies",
		"/v1/serviceaccounts", "rbac.authorization.k8s.io/v1/clusterroles", "rbac.authorization.k8s.io/v1/clusterrolebindings", "rbac.authorization.k8s.io/v1/rolebindings",
		"flowcontrol.apiserver.k8s.io/v1/flowschemas", "networking.k8s.io/v1/networkpolicies", "autoscaling/v2/horizontalpodautoscalers", "/v1/resourcequotas", "/v1/secrets", "/v1/configmaps",
		"apps/v1/deployments", "/v1/pods", "/v1/services", "apiregistration.k8s.io/v1/apiservices", "apiextensions.k8s.io/v1/customresourcedefinitions", "/v1/namespaces",
	} {
		parts := strings.Split(kind, "/")
		kinds = append(kinds, schema.GroupVersionResource{Group: parts[0], Version: parts[1], Resource: parts[2]})
	}
	return kinds
}

// snapshot is what there was, by kind and name.
type snapshot map[schema.GroupVersionResource]map[string]*unstructured.Unstructured

func take(ctx context.Context) (snapshot, error) {
	client, all := dynamic.NewForConfigOrDie(cp.RESTConfig()), snapshot{}
	for _, kind := range kinds() {
		list, err := client.Resource(kind).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		all[kind] = map[string]*unstructured.Unstructured{}
		for i := range list.Items {
			all[kind][list.Items[i].GetNamespace()+"/"+list.Items[i].GetName()] = &list.Items[i]
		}
	}
	return all, nil
}

// restore deletes what has come since, and puts back what was changed.
func (before snapshot) restore(ctx context.Context) error {
	now, err := take(ctx)
	if err != nil {
		return err
	}
	client := dynamic.NewForConfigOrDie(cp.RESTConfig())
	immediately := int64(0)
	options := metav1.DeleteOptions{GracePeriodSeconds: &immediately}
	for _, kind := range kinds() {
		remove := func(object *unstructured.Unstructured) error {
			if len(object.GetFinalizers()) > 0 {
				patch := []byte(`{"metadata":{"finalizers":null}}`)
				_, _ = client.Resource(kind).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), "application/merge-patch+json", patch, metav1.PatchOptions{})
			}
			err := client.Resource(kind).Namespace(object.GetNamespace()).Delete(ctx, object.GetName(), options)
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil
			}
			return err
		}
		for name, object := range now[kind] {
			if before[kind][name] == nil {
				if err := remove(object); err != nil {
					return err
				}
			}
		}
		for name, object := range before[kind] {
			of := client.Resource(kind).Namespace(object.GetNamespace())
			current := now[kind][name]
			if current != nil && same(kind, object, current) {
				continue
			}
			object = object.DeepCopy()
			object.SetResourceVersion("")
			object.SetUID("")
			if current != nil && kind.Resource != "pods" {
				object.SetResourceVersion(current.GetResourceVersion())
				object.SetUID(current.GetUID())
				if _, err := of.Update(ctx, object, metav1.UpdateOptions{}); err == nil {
					continue
				}
				object.SetResourceVersion("")
				object.SetUID("")
			}
			if current != nil {
				if err := remove(current); err != nil {
					return err
				}
			}
			created, err := of.Create(ctx, object, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("%s %s: %w", kind.Resource, name, err)
			}
			if kind.Resource == "pods" {
				object.SetResourceVersion(created.GetResourceVersion())
				object.SetUID(created.GetUID())
				if _, err := of.UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// same compares what tests change.
func same(kind schema.GroupVersionResource, a, b *unstructured.Unstructured) bool {
	a, b = a.DeepCopy(), b.DeepCopy()
	for _, object := range []*unstructured.Unstructured{a, b} {
		if kind.Resource != "pods" {
			delete(object.Object, "status")
		}
		for _, field := range []string{"managedFields", "resourceVersion", "uid", "generation", "creationTimestamp"} {
			unstructured.RemoveNestedField(object.Object, "metadata", field)
		}
	}
	return equality.Semantic.DeepEqual(a.Object, b.Object)
}

// report has a pod be in a state, as a kubelet would report it.
func report(t testing.TB, s *server, ready bool, more string) {
	t.Helper()
	status := map[bool]string{true: "True", false: "False"}[ready]
	kubectl(t, "patch", "pod", s.name+"-0", "--namespace="+s.namespace, "--subresource=status", "--type=merge", fmt.Sprintf(
		`--patch={"status":{"phase":"Running","podIP":"%[1]s","podIPs":[{"ip":"%[1]s"}],"conditions":[{"type":"Ready","status":%[2]q}]%[3]s}}`,
		s.podIP(), status, more))
}

func kubectl(t testing.TB, args ...string) {
	t.Helper()
	output, err := cp.Kubectl(context.WithoutCancel(t.Context()), args...).CombinedOutput()
	require.NoError(t, err, "kubectl %s: %s", strings.Join(args, " "), output)
}

// shell runs a line as an operator pastes it.
func shell(t testing.TB, line string) {
	t.Helper()
	kubectl := cp.Kubectl(context.WithoutCancel(t.Context()))
	command := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", line)
	command.Env = slices.Concat(kubectl.Env, []string{"PATH=" + filepath.Dir(kubectl.Path) + ":" + os.Getenv("PATH")})
	output, err := command.CombinedOutput()
	require.NoError(t, err, "%s: %s", line, output)
}
