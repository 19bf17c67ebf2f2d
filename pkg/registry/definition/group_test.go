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

package definition_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	runtimeschema "k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry/definition"
	registrytesting "restaurant.programming-kubernetes.info/apiserver/pkg/registry/testing"
	workshopkinds "restaurant.programming-kubernetes.info/apiserver/test/workshop"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop"
	workshopv1 "restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop/v1"
	"restaurant.programming-kubernetes.info/apiserver/test/workshop/generated/openapi"
)

// typedSites is a definition of what the workshop's type of sites can hold.
const typedSites = `
metadata: {name: sites.workshop.example.com}
spec:
  group: workshop.example.com
  scope: Cluster
  names: {kind: Site, plural: sites}
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            spec:
              type: object
              required: [capacity]
              properties:
                capacity: {type: integer, format: int32, minimum: 2, x-kubernetes-validations: [{rule: self != 7}]}
                size: {type: integer}
                region: {type: string, nullable: true, default: north, minLength: 2}
                parts: {type: array, items: {type: object, properties: {kind: {type: string, default: part}}}}
`

// group has sites with that definition.
func group() registry.Group {
	sites := workshopkinds.Site()
	sites.Definition = definition.New(typedSites)
	return registry.Group{
		Name: workshop.GroupName,
		Install: func(scheme *runtime.Scheme) {
			utilruntime.Must(workshop.AddToScheme(scheme))
			utilruntime.Must(workshopv1.AddToScheme(scheme))
			utilruntime.Must(scheme.SetVersionPriority(workshopv1.SchemeGroupVersion))
		},
		Kinds: []registry.Declaration{sites},
	}
}

// Bodies are decoded as for custom resources. Fields that Go would lose are validated before,
// all others later.
func TestDecode(t *testing.T) {
	const apiVersion, kind = `"apiVersion":"workshop.example.com/v1",`, `"kind":"Site",`
	for name, test := range map[string]struct {
		sent     string
		strict   bool
		capacity int32
		region   string
		err      string
	}{
		"defaults":             {sent: `{` + apiVersion + kind + `"spec":{"capacity":3}}`, capacity: 3, region: "north"},
		"integers":             {sent: `{` + apiVersion + kind + `"spec":{"size":3.0,"capacity":3}}`, capacity: 3, region: "north"},
		"rules for integers":   {sent: `{` + apiVersion + kind + `"spec":{"capacity":3.0}}`, err: `spec.capacity: Invalid value: "integer": invalid data, expected int, got float64 evaluating rule: self != 7`},
		"invalid, but kept":    {sent: `{` + apiVersion + kind + `"spec":{"capacity":1}}`, capacity: 1, region: "north"},
		"valid, but lost":      {sent: `{` + apiVersion + kind + `"spec":{"capacity":3,"region":null}}`, capacity: 3, region: "north"},
		"invalid, and lost":    {sent: `{` + apiVersion + kind + `"spec":{"capacity":3,"region":""}}`, err: `spec.region: Invalid value: "": spec.region in body should be at least 2 chars long`},
		"invalid, beside lost": {sent: `{` + apiVersion + kind + `"spec":{"capacity":1,"region":null}}`, capacity: 1, region: "north"},
		"missing, beside lost": {sent: `{` + apiVersion + kind + `"spec":{"region":null}}`, region: "north"},
		"unknown":              {sent: `{` + apiVersion + kind + `"spec":{"capacity":3,"other":1}}`, capacity: 3, region: "north"},
		"unknown and strict":   {sent: `{` + apiVersion + kind + `"spec":{"capacity":3,"capacity":3,"other":1}}`, strict: true, err: `strict decoding error: duplicate field "spec.capacity", unknown field "spec.other"`},
		"no kind":              {sent: `{` + apiVersion + `"spec":{"capacity":3}}`, err: `Object 'Kind' is missing in '{` + apiVersion + `"spec":{"capacity":3}}'`},
		"no version":           {sent: `{` + kind + `"spec":{"capacity":3}}`, err: `Object 'apiVersion' is missing in '{` + kind + `"spec":{"capacity":3}}'`},
		"too many defaults":    {sent: `{` + apiVersion + kind + `"spec":{"capacity":3,"parts":[` + strings.Repeat("{},", 20_000) + `{}]}}`, err: `the defaults of fields that are missing must not be more than 20000 values or 3145728 bytes together`},
		"another type":         {sent: `{` + apiVersion + kind + `"spec":{"capacity":"3"}}`, err: `json: cannot unmarshal string into Go struct field SiteSpec.spec.capacity of type int32`},
	} {
		t.Run(name, func(t *testing.T) {
			scheme := runtime.NewScheme()
			require.NoError(t, group().InstallTypes(scheme))
			codecs, err := group().Serializer(scheme, serializer.NewCodecFactory(scheme))
			require.NoError(t, err)
			info := codecs.SupportedMediaTypes()[0]
			decoder := info.Serializer
			if test.strict {
				decoder = info.StrictSerializer
			}
			site := workshopv1.SchemeGroupVersion.WithKind("Site")
			object, _, err := codecs.DecoderToVersion(decoder, runtimeschema.GroupVersion{Group: workshop.GroupName, Version: runtime.APIVersionInternal}).
				Decode([]byte(test.sent), &site, &workshop.Site{})
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			spec := object.(*workshop.Site).Spec
			require.Equal(t, test.capacity, spec.Capacity)
			require.Equal(t, test.region, spec.Region)
		})
	}
}

// The scheme fills in fields that no client has sent, as after a server-side apply.
func TestDefault(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, group().InstallTypes(scheme))
	site := &workshopv1.Site{}
	scheme.Default(site)
	require.Equal(t, "north", site.Spec.Region)
}

// A kind without columns of its own has the columns of its definition, for objects and lists.
func TestColumns(t *testing.T) {
	for name, test := range map[string]struct {
		own     []registry.Column[*workshop.Site]
		headers []string
		cells   []any
	}{
		"of the definition": {nil, []string{"Name", "Capacity"}, []any{"a", int64(3)}},
		"own":               {[]registry.Column[*workshop.Site]{registry.NameColumn[*workshop.Site]()}, []string{"Name"}, []any{"a"}},
	} {
		t.Run(name, func(t *testing.T) {
			sites := workshopkinds.Site()
			sites.Definition = definition.New(typedSites + "      additionalPrinterColumns: [{name: Capacity, type: integer, jsonPath: .spec.capacity}]\n")
			sites.Columns = test.own
			of := group()
			of.Kinds = []registry.Declaration{sites}
			storage := registrytesting.NewStorage(t, of)
			site := &workshop.Site{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: workshop.SiteSpec{Capacity: 3}}
			for _, object := range []runtime.Object{site, &workshop.SiteList{Items: []workshop.Site{*site}}} {
				table, err := storage.ByVersion["v1"]["sites"].(rest.TableConvertor).ConvertToTable(storage.Context(t.Context(), "v1", "sites", ""), object, nil)
				require.NoError(t, err)
				require.Equal(t, test.headers, headers(table))
				require.Len(t, table.Rows, 1)
				require.Equal(t, test.cells, table.Rows[0].Cells)
			}
		})
	}
}

// Null may not be one of the values, although the field may be null.
func TestNullBesideValues(t *testing.T) {
	sites := workshopkinds.Site()
	sites.Definition = definition.New(strings.Replace(typedSites, "default: north, minLength: 2", "enum: [north, south]", 1))
	of := group()
	of.Kinds = []registry.Declaration{sites}
	_, err := decode(t, of, "sites", `"kind":"Site","spec":{"capacity":3,"region":null}`)
	require.ErrorContains(t, err, `spec.region: Unsupported value: null: supported values: "north", "south"`)
}

// decode decodes a body for a resource.
func decode(t *testing.T, of registry.Group, resource, body string) (runtime.Object, error) {
	t.Helper()
	stored := registrytesting.NewStorage(t, of)
	codecs, err := of.Serializer(stored.Scheme, stored.Codecs)
	require.NoError(t, err)
	decoder := codecs.DecoderToVersion(codecs.SupportedMediaTypes()[0].Serializer, runtimeschema.GroupVersion{Group: workshop.GroupName, Version: runtime.APIVersionInternal})
	object, _, err := decoder.Decode([]byte(`{"apiVersion":"workshop.example.com/v1","metadata":{"name":"a"},`+body+`}`), nil, stored.ByVersion["v1"][resource].New())
	return object, err
}

// machinesWith returns a group with machines that have a status and these properties.
func machinesWith(properties string) registry.Group {
	machines := workshopkinds.Machine()
	machines.Subresources = nil
	machines.Definition = definition.New(`
metadata: {name: machines.workshop.example.com}
spec:
  group: workshop.example.com
  scope: Namespaced
  names: {kind: Machine, plural: machines}
  versions:
    - name: v1
      subresources: {status: {}}
      schema:
        openAPIV3Schema:
          type: object
          properties:` + properties)
	of := group()
	of.Kinds = []registry.Declaration{machines}
	return of
}

// Fields of a status that Go would lose are validated in a request for the status. Other requests do not write it.
func TestLostStatus(t *testing.T) {
	of := machinesWith(`
            spec: {type: object, minProperties: 1, x-kubernetes-preserve-unknown-fields: true}
            status: {type: object, properties: {replicas: {type: integer}, selector: {type: string, minLength: 1}}}`)
	for name, test := range map[string]struct{ resource, body, err string }{
		"of the object":     {"machines", `"kind":"Machine","spec":{"a":"b"},"status":{"selector":""}`, ""},
		"of the status":     {"machines/status", `"kind":"Machine","spec":{"a":"b"},"status":{"selector":""}`, `status.selector: Invalid value: "": status.selector in body should be at least 1 chars long`},
		"a valid status":    {"machines/status", `"kind":"Machine","spec":{"a":"b"},"status":{"selector":"c"}`, ""},
		"an invalid object": {"machines/status", `"kind":"Machine","spec":{},"status":{"selector":"c"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			object, err := decode(t, of, test.resource, test.body)
			if test.err != "" {
				require.EqualError(t, err, test.err)
				return
			}
			require.NoError(t, err)
			require.Empty(t, object.(*workshop.Machine).TypeMeta)
		})
	}
}

// An update that changes nothing writes nothing, though the status of a new object has defaults.
func TestUnchanged(t *testing.T) {
	of := machinesWith(`
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true}
            status: {type: object, default: {}, properties: {replicas: {type: integer}, selector: {type: string, default: none}}}`)
	stored := registrytesting.NewStorage(t, of)
	ctx, kind := stored.Context(t.Context(), "v1", "machines", "default"), stored.ByVersion["v1"]["machines"].(rest.StandardStorage)

	sent := &workshop.Machine{ObjectMeta: metav1.ObjectMeta{Name: "mill", Namespace: "default"}, Status: workshop.MachineStatus{Replicas: 3}}
	created, err := kind.Create(ctx, sent, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	require.NoError(t, err)
	require.Equal(t, workshop.MachineStatus{Selector: "none"}, created.(*workshop.Machine).Status)
	updated, _, err := kind.Update(ctx, "mill", rest.DefaultUpdatedObjectInfo(created), nil, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, created, updated)

	// An empty list is not the same as none.
	emptied := created.DeepCopyObject().(*workshop.Machine)
	emptied.Spec.Parts = []workshop.Part{}
	updated, _, err = kind.Update(ctx, "mill", rest.DefaultUpdatedObjectInfo(emptied), nil, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	require.NoError(t, err)
	require.EqualValues(t, 2, updated.(*workshop.Machine).Generation)
}

// Rules for new objects do not apply to updates with values that Go loses.
func TestRulesForNewObjects(t *testing.T) {
	sites := workshopkinds.Site()
	sites.Definition = definition.New(strings.Replace(typedSites, "          type: object\n",
		"          type: object\n          x-kubernetes-validations: [{rule: oldSelf.hasValue() || self.spec.capacity < 5, message: is too large at first, optionalOldSelf: true}]\n", 1))
	of := group()
	of.Kinds = []registry.Declaration{sites}
	stored := registrytesting.NewStorage(t, of)
	ctx, kind := stored.Context(t.Context(), "v1", "sites", ""), stored.ByVersion["v1"]["sites"].(rest.StandardStorage)
	codecs, err := of.Serializer(stored.Scheme, stored.Codecs)
	require.NoError(t, err)
	decoder := codecs.DecoderToVersion(codecs.SupportedMediaTypes()[0].Serializer, runtimeschema.GroupVersion{Group: workshop.GroupName, Version: runtime.APIVersionInternal})
	sent, _, err := decoder.Decode([]byte(`{"apiVersion":"workshop.example.com/v1","kind":"Site","metadata":{"name":"a"},"spec":{"capacity":6,"region":null}}`), nil, nil)
	require.NoError(t, err)
	large := sent.(*workshop.Site)
	_, err = kind.Create(ctx, large.DeepCopy(), rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	require.ErrorContains(t, err, "is too large at first")
	small := large.DeepCopy()
	small.Spec.Capacity = 3
	created, err := kind.Create(ctx, small, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	require.NoError(t, err)
	large.ResourceVersion = created.(*workshop.Site).ResourceVersion
	_, _, err = kind.Update(ctx, "a", rest.DefaultUpdatedObjectInfo(large), nil, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	require.NoError(t, err)
}

// Clients get all errors of a field.
func TestErrorsOfAField(t *testing.T) {
	sites := workshopkinds.Site()
	sites.Definition = definition.New(strings.Replace(typedSites, "rule: self != 7", "rule: self != 8, message: not eight}, {rule: self < 8, message: too large", 1))
	of := group()
	of.Kinds = []registry.Declaration{sites}
	stored := registrytesting.NewStorage(t, of)
	site := &workshop.Site{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: workshop.SiteSpec{Capacity: 8, Region: "north"}}
	_, err := stored.ByVersion["v1"]["sites"].(rest.Creater).Create(stored.Context(t.Context(), "v1", "sites", ""), site, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	require.EqualError(t, err, `Site.workshop.example.com "a" is invalid: [spec.capacity: Invalid value: 8: not eight, spec.capacity: Invalid value: 8: too large]`)
}

// The workshop's types have no messages.
func TestWithoutMessages(t *testing.T) {
	scheme := runtime.NewScheme()
	require.NoError(t, group().InstallTypes(scheme))
	resources, err := group().WithoutMessages(scheme)
	require.NoError(t, err)
	require.Equal(t, map[runtimeschema.GroupVersionResource]bool{{Group: workshop.GroupName, Version: "v1", Resource: "sites"}: true}, resources)
}

// Fields that only the type or only the definition has keep the server from starting.
func TestDifferentFields(t *testing.T) {
	for name, test := range map[string]struct{ spec, err string }{
		"the same":        {spec: `{capacity: {type: integer}, region: {type: string}}`},
		"added to a type": {spec: `{capacity: {type: integer}}`, err: "spec.region is only in the type: add it to the definition, or remove it there"},
		"added to a definition": {
			spec: `{capacity: {type: integer}, region: {type: string}, more: {type: string}, other: {type: object}}`,
			err:  "spec.more is only in the definition: add it to the type, or remove it there; spec.other is only in the definition: add it to the type, or remove it there",
		},
	} {
		t.Run(name, func(t *testing.T) {
			sites := workshopkinds.Site()
			sites.Definition = definition.New(`
metadata: {name: sites.workshop.example.com}
spec:
  group: workshop.example.com
  scope: Cluster
  names: {kind: Site, plural: sites}
  versions:
    - {name: v1, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: ` + test.spec + `}}}}}
`)
			of, scheme := group(), runtime.NewScheme()
			of.Kinds, of.OpenAPI = []registry.Declaration{sites}, openapi.GetOpenAPIDefinitions
			require.NoError(t, of.InstallTypes(scheme))
			_, err := of.Models(scheme)
			if test.err == "" {
				require.NoError(t, err)
				return
			}
			require.EqualError(t, err, "the Go type of workshop.example.com/v1, Kind=Site and its definition have different fields, which objects would lose: "+test.err)
		})
	}
}

// Objects with unknown fields, and types of other modules, may differ.
func TestFieldsThatMayDiffer(t *testing.T) {
	machines := workshopkinds.Machine()
	machines.Definition = definition.New(`
metadata: {name: machines.workshop.example.com}
spec:
  group: workshop.example.com
  scope: Namespaced
  names: {kind: Machine, plural: machines}
  versions:
    - name: v1
      schema:
        openAPIV3Schema:
          type: object
          properties:
            metadata: {type: object, properties: {name: {type: string}}}
            spec: {type: object, x-kubernetes-preserve-unknown-fields: true, properties: {parts: {type: array, items: {type: object, properties: {name: {type: string}}}}}}
`)
	of, scheme := group(), runtime.NewScheme()
	of.Kinds, of.OpenAPI = []registry.Declaration{machines}, openapi.GetOpenAPIDefinitions
	require.NoError(t, of.InstallTypes(scheme))
	_, err := of.Models(scheme)
	require.EqualError(t, err, "the Go type of workshop.example.com/v1, Kind=Machine and its definition have different fields, which objects would lose: "+
		"spec.parts[].count is only in the type: add it to the definition, or remove it there")
}

// A version that the definition lacks keeps the server from starting.
func TestMissingVersion(t *testing.T) {
	of := group()
	of.Install = workshopkinds.Install
	require.EqualError(t, of.InstallTypes(runtime.NewScheme()),
		"the definition of workshop.example.com/v1alpha1, Kind=Site: it has no version v1alpha1: add that to the CustomResourceDefinition")
}
