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
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/server"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry/definition"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
	workshopapi "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop"
	workshopv1 "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop/generated/openapi"
)

// sites is the definition of a kind whose types the workshop has.
const sites = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sites.workshop.example.com}
spec:
  group: workshop.example.com
  scope: Cluster
  names: {kind: Site, plural: sites, singular: site, listKind: SiteList}
  versions:
    - name: v1
      served: true
      storage: true
      subresources: {scale: {specReplicasPath: .spec.capacity, statusReplicasPath: .status.replicas}}
      schema:
        openAPIV3Schema:
          type: object
          required: [spec]
          properties:
            spec:
              type: object
              required: [capacity]
              properties:
                capacity: {type: integer, format: int32, minimum: 1, multipleOf: 2, x-kubernetes-validations: [{rule: "self >= oldSelf", message: must not shrink}]}
                region: {type: string, default: north, minLength: 2, pattern: "^[a-z]+$"}
              x-kubernetes-validations: [{rule: "self.region != 'south' || self.capacity > 4"}]
`

// TestRequests asks kube-apiserver with a definition, and a server of types with the same definition, in all ways
// in which objects are written.
func TestRequests(t *testing.T) {
	cp := controlplane.ForTest(t, controlplane.Config{
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
	})
	defined, err := rest.HTTPClientFor(cp.RESTConfig())
	require.NoError(t, err)
	definitions, err := decode(strings.NewReader(sites))
	require.NoError(t, err)
	_, err = clientset.NewForConfigOrDie(cp.RESTConfig()).ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), definitions[0], metav1.CreateOptions{})
	require.NoError(t, err)
	typedServer, err := cp.NewAPIServer("typed", controlplane.ServerConfig{Kubeconfig: cp.Kubeconfig(), Run: func(ctx context.Context, flags []string) error {
		cmd := server.NewCommand(ctx, "typed", definedGroup())
		cmd.SetArgs(flags)
		return cmd.ExecuteContext(ctx)
	}})
	require.NoError(t, err)
	require.NoError(t, typedServer.Start(t.Context()))
	typed, err := rest.HTTPClientFor(cp.RESTConfig())
	require.NoError(t, err)

	const path = "/apis/workshop.example.com/v1/sites"
	const site = `{"apiVersion":"workshop.example.com/v1","kind":"Site",`
	both := func(t *testing.T, method, name, query, contentType, body string) (definedAnswer, typedAnswer answer) {
		t.Helper()
		definedAnswer, err := ask(t, defined, method, cp.RESTConfig().Host+path+name+query, contentType, []byte(body))
		require.NoError(t, err)
		typedAnswer, err = ask(t, typed, method, typedServer.URL()+path+name+query, contentType, []byte(body))
		require.NoError(t, err)
		return definedAnswer, typedAnswer
	}
	controlplane.Eventually(t, func() error {
		_, err := ask(t, defined, http.MethodPost, cp.RESTConfig().Host+path+"?dryRun=All", "application/json", []byte(site+`"metadata":{"name":"a"},"spec":{"capacity":2}}`))
		return err
	})
	a, b := both(t, http.MethodPost, "", "", "application/json", site+`"metadata":{"name":"stored"},"spec":{"capacity":4}}`)
	require.Empty(t, compareAnswers(a, b))

	const apply, merge, json = string(types.ApplyPatchType), string(types.MergePatchType), string(types.JSONPatchType)
	for name, test := range map[string]struct {
		// method and its content type; a POST is of JSON.
		contentType string
		body        string
		strict      bool
		code        int
	}{
		"create":                          {"", `"spec":{"capacity":2}}`, false, 201},
		"create without what is required": {"", `"spec":{}}`, false, 422},
		"create without a spec":           {"", `"metadata":{"name":"tried"}}`, false, 422},
		"create with null":                {"", `"spec":{"capacity":2,"region":null}}`, false, 201},
		"create with an empty string":     {"", `"spec":{"capacity":2,"region":""}}`, false, 422},
		"create with an unknown field":    {"", `"spec":{"capacity":2,"other":1}}`, false, 201},
		"create strictly":                 {"", `"spec":{"capacity":2,"other":1}}`, true, 400},
		"create what a pattern refuses":   {"", `"spec":{"capacity":2,"region":"North"}}`, false, 422},
		"create what a rule refuses":      {"", `"spec":{"capacity":2,"region":"south"}}`, false, 422},
		"create another type":             {"", `"spec":{"capacity":"2"}}`, false, 422},
		"create an integer as 2.0":        {"", `"spec":{"capacity":2.0}}`, false, 422},
		"create an integer as 1e1":        {"", `"spec":{"capacity":1e1}}`, false, 422},
		"create a fraction":               {"", `"spec":{"capacity":2.5}}`, false, 422},
		"create an odd one":               {"", `"spec":{"capacity":3}}`, false, 422},
		"merge":                           {merge, `{"spec":{"capacity":6}}`, false, 200},
		"merge null":                      {merge, `{"spec":{"region":null}}`, false, 200},
		"merge null in what is required":  {merge, `{"spec":{"capacity":null}}`, false, 422},
		"merge what a transition refuses": {merge, `{"spec":{"capacity":2}}`, false, 422},
		"merge an unknown field strictly": {merge, `{"spec":{"other":2}}`, true, 422},
		"patch":                           {json, `[{"op":"replace","path":"/spec/region","value":"west"}]`, false, 200},
		"patch away what is required":     {json, `[{"op":"remove","path":"/spec/capacity"}]`, false, 422},
		"patch another type":              {json, `[{"op":"replace","path":"/spec/region","value":1}]`, false, 422},
		"apply":                           {apply, site + `"metadata":{"name":"stored"},"spec":{"region":"east"}}`, false, 200},
		"apply an integer as 6.0":         {apply, site + `"metadata":{"name":"stored"},"spec":{"capacity":6.0}}`, false, 200},
		"apply an invalid one":            {apply, site + `"metadata":{"name":"stored"},"spec":{"region":"East"}}`, false, 422},
		"apply what a transition refuses": {apply, site + `"metadata":{"name":"stored"},"spec":{"capacity":2}}`, false, 422},
	} {
		t.Run(name, func(t *testing.T) {
			method, at, query, body, contentType := http.MethodPost, "", "?dryRun=All", test.body, "application/json"
			if test.contentType != "" {
				method, at, contentType = http.MethodPatch, "/stored", test.contentType
			} else if body = site + body; !strings.Contains(body, "metadata") {
				body = site + `"metadata":{"name":"tried"},` + test.body
			}
			if test.contentType == apply {
				query += "&fieldManager=test&force=true"
			}
			if test.strict {
				query += "&fieldValidation=Strict"
			}
			a, b := both(t, method, at, query, contentType, body)
			require.Equal(t, test.code, a.code, "%s", a.raw)
			require.Empty(t, compareAnswers(a, b), "defined %s\ntyped %s", a.raw, b.raw)
		})
	}

	for _, test := range []struct {
		replicas string
		code     int
	}{{`6`, 200}, {`7`, 422}, {`2`, 422}, {`-2`, 422}, {`null`, 422}, {`"6"`, 422}} {
		t.Run("scale to "+test.replicas, func(t *testing.T) {
			a, b := both(t, http.MethodPatch, "/stored/scale", "", merge, `{"spec":{"replicas":`+test.replicas+`}}`)
			require.Equal(t, test.code, a.code, "%s", a.raw)
			require.Empty(t, compareAnswers(a, b), "defined %s\ntyped %s", a.raw, b.raw)
		})
	}
	a, b = both(t, http.MethodGet, "/stored/scale", "", json, "")
	require.Empty(t, compareAnswers(a, b), "defined %s\ntyped %s", a.raw, b.raw)
	a, b = both(t, http.MethodGet, "/stored", "", json, "")
	require.Empty(t, compareAnswers(a, b), "defined %s\ntyped %s", a.raw, b.raw)
	for _, a := range []answer{a, b} {
		var object metav1.PartialObjectMetadata
		require.NoError(t, yaml.Unmarshal(a.raw, &object))
		require.True(t, slices.ContainsFunc(object.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return entry.Subresource == "scale" && entry.FieldsV1.String() == `{"f:spec":{"f:capacity":{}}}`
		}), "%s", a.raw)
	}
}

// definedGroup has sites with the definition.
func definedGroup() registry.Group {
	kind := workshop.Site()
	kind.Definition = definition.New(sites)
	return registry.Group{
		Name: workshopapi.GroupName,
		Install: func(scheme *runtime.Scheme) {
			utilruntime.Must(workshopapi.AddToScheme(scheme))
			utilruntime.Must(workshopv1.AddToScheme(scheme))
			utilruntime.Must(scheme.SetVersionPriority(workshopv1.SchemeGroupVersion))
		},
		OpenAPI: openapi.GetOpenAPIDefinitions,
		Kinds:   []registry.Declaration{kind},
	}
}
