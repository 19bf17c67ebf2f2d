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

package definitions

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/conformance"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// The server has the documents of kube-apiserver for each definition, and conformance finds nothing with the projects'
// own examples that it does not find in kube-apiserver.
func TestDefinitions(t *testing.T) {
	kinds := load(t)
	install(t, kinds)
	accept(t, kinds, framework.Namespace(t, cp))
	documents := documentsOf(t, kinds, "")
	differences := map[string][]string{}
	for _, kind := range kinds {
		differences[kind.definition.Name] = examine(t, kind)
	}

	require.NoError(t, framework.RegisterCRDServer(t.Context(), cp, server, groups()...))
	// Its watches of the definitions' objects in kube-apiserver would go on.
	require.NoError(t, cp.ControllerManager.Restart(t.Context()))
	for path, document := range documentsOf(t, kinds, server.URL()) {
		t.Run("same"+path, func(t *testing.T) { require.Empty(t, cmp.Diff(documents[path], document)) })
	}
	for _, project := range framework.Projects() {
		i := slices.IndexFunc(kinds, func(kind *kind) bool { return kind.definition.Spec.Group == project.Groups[0] })
		spec := kinds[i].definition.Spec
		output, err := cp.Kubectl(t.Context(), "explain", spec.Names.Plural+"."+spec.Group, "--recursive").CombinedOutput()
		require.NoError(t, err, "%s", output)
		require.Contains(t, string(output), "KIND:       "+spec.Names.Kind)
		require.Contains(t, string(output), "finalizers\t<[]string>")
	}
	for _, kind := range kinds {
		t.Run("conformance/"+kind.definition.Name, func(t *testing.T) {
			require.Subset(t, differences[kind.definition.Name], examine(t, kind))
		})
	}
}

// examine returns the checks of conformance that fail in one version of a kind. kube-apiserver fails some, too: it
// writes defaults of a status later, and examples are valid in one version only.
func examine(t *testing.T, kind *kind) (failed []string) {
	t.Helper()
	spec := kind.definition.Spec
	options := conformance.Options{
		Level: conformance.Hostile, WebhookAddress: "127.0.0.1:0", Resources: []string{spec.Names.Plural},
		GroupVersions: []schema.GroupVersion{{Group: spec.Group, Version: kind.served[0]}},
	}
	for _, example := range kind.accepted {
		if example.GroupVersionKind().Version == kind.served[0] && len(options.Examples) < 2 {
			options.Examples = append(options.Examples, example)
		}
	}
	report, err := conformance.Run(t.Context(), cp.RESTConfig(), options)
	require.NoError(t, err)
	failed = []string{}
	for _, result := range report.Having(conformance.Failed) {
		t.Logf("%s: %s", result.Check, result.Finding)
		failed = append(failed, result.Check)
	}
	return failed
}

// install creates the definitions, and returns when kube-apiserver serves them.
func install(t *testing.T, kinds []*kind) {
	t.Helper()
	definitions := clientset.NewForConfigOrDie(framework.Config(cp)).ApiextensionsV1().CustomResourceDefinitions()
	admin := client(t, "")
	for _, kind := range kinds {
		_, err := definitions.Create(t.Context(), kind.definition, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, kind := range kinds {
		controlplane.Eventually(t, func() error {
			current, err := definitions.Get(t.Context(), kind.definition.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(current.Status.Conditions, func(condition apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue
			}) {
				return fmt.Errorf("%s is not established: %v", kind.definition.Name, current.Status.Conditions)
			}
			for _, version := range kind.served {
				path := fmt.Sprintf("/apis/%s/%s/%s", kind.definition.Spec.Group, version, kind.definition.Spec.Names.Plural)
				if err := admin.Get().AbsPath(path).Do(t.Context()).Error(); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

// accept keeps the examples that kube-apiserver accepts.
func accept(t *testing.T, kinds []*kind, namespace string) {
	t.Helper()
	for _, kind := range kinds {
		spec := kind.definition.Spec
		for _, example := range kind.examples {
			resource := framework.Dynamic(cp).Resource(example.GroupVersionKind().GroupVersion().WithResource(spec.Names.Plural))
			objects := dynamic.ResourceInterface(resource)
			if spec.Scope == apiextensionsv1.NamespaceScoped {
				objects = resource.Namespace(namespace)
			}
			if _, err := objects.Create(t.Context(), example, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
				kind.accepted = append(kind.accepted, example)
			}
		}
		require.NotEmpty(t, kind.accepted, "kube-apiserver accepts none of the %d examples of %s", len(kind.examples), kind.definition.Name)
	}
}

// documentsOf returns the OpenAPI documents of all versions, by path.
func documentsOf(t *testing.T, kinds []*kind, host string) map[string]any {
	t.Helper()
	admin := client(t, host)
	documents := map[string]any{}
	for _, kind := range kinds {
		for _, version := range kind.served {
			path := fmt.Sprintf("/openapi/v3/apis/%s/%s", kind.definition.Spec.Group, version)
			controlplane.Eventually(t, func() (err error) {
				documents[path], err = document(t, admin, path, kind.definition.Spec.Names.Plural)
				return err
			})
		}
	}
	return documents
}

// document returns what an OpenAPI document says about the API, if it has a resource already.
func document(t *testing.T, client rest.Interface, path, resource string) (any, error) {
	t.Helper()
	content, err := client.Get().AbsPath(path).DoRaw(t.Context())
	if err != nil {
		return nil, err
	}
	var document struct {
		Paths, Components map[string]any
	}
	require.NoError(t, json.Unmarshal(content, &document))
	for path := range document.Paths {
		if slices.Contains(strings.Split(path, "/"), resource) {
			return document, nil
		}
	}
	return nil, errors.New(path + " lacks " + resource)
}
