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

package conformance

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"

	"restaurant.programming-kubernetes.info/apiserver/pkg/conformance"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestKinds examines all kinds of kube-apiserver beside running controllers. What they fail is in documented.
func TestKinds(t *testing.T) {
	framework.Long(t, "kube-apiserver is not ours")
	examine := func(t *testing.T, resource schema.GroupVersionResource) {
		t.Helper()
		report := examineKind(t, resource, conformance.Options{Level: conformance.Hostile, WebhookAddress: "127.0.0.1:0"})
		var differs []string
		for _, result := range slices.Concat(report.Having(conformance.Failed), report.Having(conformance.NotChecked)) {
			if !slices.Contains(documented()[resource.Resource], result.Check) && !slices.Contains(documented()[resource.Resource], "*") {
				differs = append(differs, result.Check)
				t.Logf("%s: %s %s", result.Check, result.Reason, result.Finding)
			}
		}
		require.Empty(t, differs)
		require.Empty(t, report.Left)
	}
	// Objects of these kinds keep others from working: no ServiceCIDR is ready, and the namespaces wait for each other.
	alone := []string{"servicecidrs", "namespaces"}
	resources := builtIn(t)
	t.Run("together", func(t *testing.T) {
		for _, resource := range resources {
			if !slices.Contains(alone, resource.Resource) {
				t.Run(resource.Resource+"."+resource.Group, func(t *testing.T) {
					t.Parallel()
					examine(t, resource)
				})
			}
		}
	})
	for _, name := range alone {
		i := slices.IndexFunc(resources, func(resource schema.GroupVersionResource) bool { return resource.Resource == name })
		t.Run(name, func(t *testing.T) { examine(t, resources[i]) })
	}
}

// TestDocumented requires that the page has a row for all that kinds of kube-apiserver fail.
func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/conformance.md")
	require.NoError(t, err)
	for resource, checks := range documented() {
		for _, check := range checks {
			require.True(t, slices.ContainsFunc(bytes.Split(page, []byte("\n")), func(line []byte) bool {
				return bytes.Contains(line, []byte("`"+resource+"`")) && (check == "*" || bytes.Contains(line, []byte("`"+check+"`")))
			}), "%s %s", resource, check)
		}
	}
}

// examineKind examines a resource of kube-apiserver.
func examineKind(t *testing.T, resource schema.GroupVersionResource, options conformance.Options) *conformance.Report {
	t.Helper()
	examples, err := conformance.ReadExamples("testdata/kinds.yaml")
	require.NoError(t, err)
	bundle := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "spec": map[string]any{"trustBundle": string(cp.PKI.ServingCA.CertPEM())},
	}}
	for _, example := range append(examples, signingRequest(t), bundle) {
		if example.GroupVersionKind().GroupVersion() == resource.GroupVersion() {
			options.Examples = append(options.Examples, example)
		}
	}
	options.GroupVersions, options.Resources = []schema.GroupVersion{resource.GroupVersion()}, []string{resource.Resource}
	report, err := conformance.Run(t.Context(), cp.RESTConfig(), options)
	require.NoError(t, err)
	return report
}

// signingRequest returns an example of a CertificateSigningRequest.
func signingRequest(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	request, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{}, key)
	require.NoError(t, err)
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "spec": map[string]any{
			"signerName": "none.example.com/none", "usages": []any{"client auth"}, "request": base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: request})),
		},
	}}
}

// builtIn returns the resources that kube-apiserver serves itself, in their preferred versions.
func builtIn(t *testing.T) []schema.GroupVersionResource {
	t.Helper()
	foreign := map[string]bool{}
	services, err := aggregator.NewForConfigOrDie(framework.Config(cp)).ApiregistrationV1().APIServices().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, service := range services.Items {
		foreign[service.Spec.Group] = foreign[service.Spec.Group] || service.Spec.Service != nil
	}
	definitions, err := apiextensions.NewForConfigOrDie(framework.Config(cp)).ApiextensionsV1().CustomResourceDefinitions().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, definition := range definitions.Items {
		foreign[definition.Spec.Group] = true
	}
	lists, err := framework.Kube(cp).Discovery().ServerPreferredResources()
	require.NoError(t, err)
	var resources []schema.GroupVersionResource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, entry := range list.APIResources {
			if !foreign[version.Group] {
				resources = append(resources, version.WithResource(entry.Name))
			}
		}
	}
	require.Greater(t, len(resources), 50)
	return resources
}

// documented are checks that resources of kube-apiserver fail, or all checks of resources that the run can't make objects
// of. docs/conformance.md says why.
func documented() map[string][]string {
	return map[string][]string{
		"apiservices":                {"*"},
		"bindings":                   {"*"},
		"certificatesigningrequests": {"apply/ownership", "apply/status", "security/one-verb"},
		"clusterrolebindings":        {"security/apply-creates"},
		"clustertrustbundles":        {"security/denied-account", "security/one-name", "security/one-verb"},
		"componentstatuses":          {"verbs/get-missing"},
		"customresourcedefinitions":  {"*"},
		"daemonsets":                 {"forms/metadata", "watch/initial-events"},
		"endpointslices":             {"writes/generation"},
		"events":                     {"*"},
		"horizontalpodautoscalers":   {"versions/one-object"},
		"ipaddresses":                {"*"},
		"limitranges":                {"verbs/names"},
		"localsubjectaccessreviews":  {"*"},
		"namespaces": {"verbs/delete", "resourceVersion/consistent", "watch/order", "watch/resume", "writes/finalizers", "writes/garbage-absent",
			"writes/garbage-background", "writes/garbage-foreground", "writes/garbage-orphan"},
		"nodes":                    {"*"},
		"persistentvolumeclaims":   {"apply/create", "forms/protobuf", "writes/no-op", "writes/status"},
		"persistentvolumes":        {"apply/status"},
		"podcertificaterequests":   {"*"},
		"pods":                     {"security/one-verb", "security/validating-policy", "security/validating-webhook"},
		"priorityclasses":          {"writes/generation"},
		"rolebindings":             {"security/apply-creates"},
		"selfsubjectaccessreviews": {"*"},
		"selfsubjectrulesreviews":  {"*"},
		"services":                 {"verbs/names"},
		"storageversionmigrations": {"forms/table"},
		"subjectaccessreviews":     {"*"},
	}
}
