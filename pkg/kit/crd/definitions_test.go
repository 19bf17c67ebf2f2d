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

package crd

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry/definition"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
)

// machines is the definition of a kind without its schemas. kube-apiserver would move selectable
// fields that are equal in all versions to the definition.
const machines = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: machines.workshop.example.com
spec:
  conversion:
    strategy: Webhook
    webhook:
      clientConfig:
        service:
          name: webhook
          namespace: workshop-system
          path: /convert
      conversionReviewVersions:
      - v1
  group: workshop.example.com
  names:
    categories:
    - all
    kind: Machine
    listKind: MachineList
    plural: machines
    shortNames:
    - mc
    singular: machine
  scope: Namespaced
  versions:
  - additionalPrinterColumns:
    - description: When the object was created.
      jsonPath: .metadata.creationTimestamp
      name: Age
      type: date
    name: v1
    selectableFields:
    - jsonPath: .spec.site
    - jsonPath: .status.replicas
    served: true
    storage: true
    subresources:
      scale:
        labelSelectorPath: .status.selector
        specReplicasPath: .spec.replicas
        statusReplicasPath: .status.replicas
      status: {}
  - additionalPrinterColumns:
    - description: When the object was created.
      jsonPath: .metadata.creationTimestamp
      name: Age
      type: date
    name: v1alpha1
    selectableFields:
    - jsonPath: .status.replicas
    - jsonPath: .spec.site
    served: true
    storage: false
    subresources:
      scale:
        labelSelectorPath: .status.selector
        specReplicasPath: .spec.replicas
        statusReplicasPath: .status.replicas
      status: {}
`

// prototypes is the definition of a kind in one version.
const prototypes = `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: prototypes.workshop.example.com
spec:
  conversion:
    strategy: None
  group: workshop.example.com
  names:
    kind: Prototype
    listKind: PrototypeList
    plural: prototypes
    singular: prototype
  scope: Namespaced
  versions:
  - additionalPrinterColumns:
    - description: When the object was created.
      jsonPath: .metadata.creationTimestamp
      name: Age
      type: date
    name: v1alpha1
    served: true
    storage: true
`

// TestForGroup exports kinds with several versions, columns, selectable fields and subresources.
func TestForGroup(t *testing.T) {
	t.Parallel()
	crds, findings, err := ForGroup(workshop.Group(), Options{Sources: os.DirFS("../../../test/workshop/apis/workshop"), Namespace: "workshop-system"})
	require.NoError(t, err)
	var names []string
	texts := map[string]string{}
	for _, crd := range crds {
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Schema = nil
		}
		text, err := toYAML(crd)
		require.NoError(t, err)
		names = append(names, crd.Name)
		texts[crd.Name] = string(text)
	}
	require.Equal(t, []string{"machines.workshop.example.com", "sites.workshop.example.com", "prototypes.workshop.example.com"}, names)
	require.Equal(t, machines, texts[names[0]])
	require.Equal(t, prototypes, texts[names[2]])
	require.Equal(t, []string{
		"v1 Machine: the column Replicas is more than one field as it is: write a column with a JSON path",
		"v1 Machine: the column Parts is more than one field as it is: write a column with a JSON path",
		"v1alpha1 Machine: the column Replicas is more than one field as it is: write a column with a JSON path",
		"v1alpha1 Machine: the column Parts is more than one field as it is: write a column with a JSON path",
		"machines: the types of its versions differ, so that a webhook has to convert them, as \"kit create webhook Machine\" writes it; the definition names the Service workshop-system/webhook, and needs the caBundle",
		"machines: a custom resource can't have the subresources progress, run",
		"machines: the rules in Go, of the function Validate, are not exported: write them as rules in CEL, or call them by a webhook",
		"v1 Site.spec.region: the tag +k8s:ifEnabled(ShortRegions)=+k8s:maxLength=4 is not exported",
		"v1alpha1 Site.spec.region: the tag +k8s:ifEnabled(ShortRegions)=+k8s:maxLength=4 is not exported",
		"estimates: only kinds that are stored can be custom resources",
	}, findings)
}

// A kind with a definition has its schemas and columns.
func TestKeptDefinition(t *testing.T) {
	t.Parallel()
	const kept = `{type: object, properties: {spec: {type: object, properties: {region: {type: string, pattern: "^[a-z]+$"}}, oneOf: [{required: [region]}]}}}`
	group := workshop.Group()
	sites := workshop.Site()
	sites.Columns = nil
	sites.Definition = definition.New(`{spec: {group: workshop.example.com, scope: Cluster, names: {kind: Site, plural: sites}, ` +
		`versions: [{name: v1, schema: {openAPIV3Schema: ` + kept + `}, additionalPrinterColumns: [{name: First, type: string, jsonPath: ".spec.list[0]"}]}, {name: v1alpha1, schema: {openAPIV3Schema: ` + kept + `}}]}}`)
	group.Kinds = []registry.Declaration{sites}
	crds, findings, err := ForGroup(group, Options{Sources: os.DirFS("../../../test/workshop/apis/workshop")})
	require.NoError(t, err)
	require.Empty(t, findings)
	want := read[props](t, kept)
	for _, version := range crds[0].Spec.Versions {
		require.Equal(t, &want, version.Schema.OpenAPIV3Schema)
	}
	require.Equal(t, []apiextensionsv1.CustomResourceColumnDefinition{{Name: "First", Type: "string", JSONPath: ".spec.list[0]"}}, crds[0].Spec.Versions[0].AdditionalPrinterColumns)
	require.Empty(t, crds[0].Spec.Versions[1].AdditionalPrinterColumns)
}

// TestSelectable has a field of each type. A definition can select some of them.
func TestSelectable(t *testing.T) {
	t.Parallel()
	root := read[props](t, `{properties: {spec: {properties: {text: {type: string}, count: {type: integer}, whether: {type: boolean}, ratio: {type: number}, size: {x-kubernetes-int-or-string: true}, list: {type: array}}}}}`)
	features := &registry.Features{Fields: map[string]func(runtime.Object) string{}}
	for _, name := range []string{"spec.text", "spec.count", "spec.whether", "spec.ratio", "spec.size", "spec.list", "spec.other", "other.text"} {
		features.Fields[name] = nil
	}
	p := &prober{exporter: &exporter{}, gvk: schema.GroupVersionKind{Version: "v1", Kind: "Thing"}, features: features, schema: &root}
	require.Equal(t, []apiextensionsv1.SelectableField{{JSONPath: ".spec.count"}, {JSONPath: ".spec.text"}, {JSONPath: ".spec.whether"}}, p.selectable())
	var want []string
	for _, name := range []string{"other.text", "spec.list", "spec.other", "spec.ratio", "spec.size"} {
		want = append(want, "v1 Thing: the field "+name+" can't be selected, as it is no string, integer or boolean")
	}
	require.Equal(t, want, p.findings)
}
