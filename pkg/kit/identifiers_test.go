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

package kit

import (
	"cmp"
	"testing"

	"github.com/stretchr/testify/require"
)

// Fields of a struct are called in Go and in protobuf as closely to their names in JSON as both allow.
func TestFieldNames(t *testing.T) {
	t.Parallel()
	type names map[string]string
	for name, test := range map[string]struct {
		path             string
		inGo, inProtobuf names
	}{
		"plain":                    {inGo: names{"clusterIP": "ClusterIP", "foo1": "Foo1"}, inProtobuf: names{"clusterIP": "clusterIP", "foo1": "foo1"}},
		"a dash":                   {inGo: names{"auto-scaler": "AutoScaler"}, inProtobuf: names{"auto-scaler": "autoScaler"}},
		"an underscore":            {inGo: names{"foo_bar": "FooBar", "_internal": "Internal"}, inProtobuf: names{"foo_bar": "foo_bar", "_internal": "internal"}},
		"a domain":                 {inGo: names{"kubernetes.io/name": "KubernetesIoName"}, inProtobuf: names{"kubernetes.io/name": "kubernetesIoName"}},
		"a dollar":                 {inGo: names{"$ref": "Ref"}, inProtobuf: names{"$ref": "ref"}},
		"a digit at the beginning": {inGo: names{"2fa": "X2Fa"}, inProtobuf: names{"2fa": "x2Fa"}},
		"a letter after a digit":   {inGo: names{"v1beta2": "V1Beta2"}, inProtobuf: names{"v1beta2": "v1beta2"}},
		"letters beyond ASCII":     {inGo: names{"größe": "Größe", "ö": "Ö"}, inProtobuf: names{"größe": "gre", "ö": "x"}},
		"letters without capitals": {inGo: names{"名称": "X名称", "名": "X名"}, inProtobuf: names{"名称": "x2", "名": "x"}},
		"the same name in Go": {
			inGo: names{"foo-bar": "FooBar2", "fooBar": "FooBar", "foo_bar": "FooBar3"}, inProtobuf: names{"foo-bar": "fooBar2", "fooBar": "fooBar", "foo_bar": "foo_bar3"},
		},
		"the same name but for capitals": {inGo: names{"fooBar": "FooBar", "foobar": "Foobar"}, inProtobuf: names{"fooBar": "fooBar", "foobar": "foobar2"}},
		"methods": {
			inGo:       names{"descriptor": "DescriptorValue", "marshal": "MarshalValue", "reset": "ResetValue", "size": "SizeValue", "sizeValue": "SizeValue2", "string": "StringValue"},
			inProtobuf: names{"descriptor": "descriptor", "marshal": "marshal", "reset": "reset", "size": "size", "sizeValue": "sizeValue", "string": "string"},
		},
		"methods of apply configurations": {inGo: names{"foo": "Foo", "withFoo": "WithFoo2"}, inProtobuf: names{"foo": "foo", "withFoo": "withFoo"}},
		"metadata of a kind": {
			path:       "Bread",
			inGo:       names{"name": "NameValue", "objectMeta": "ObjectMetaValue", "withLabels": "WithLabels2", "spec": "Spec"},
			inProtobuf: names{"name": "name", "objectMeta": "objectMeta", "withLabels": "withLabels", "spec": "spec"},
		},
		"metadata of no kind": {inGo: names{"name": "Name", "labels": "Labels"}, inProtobuf: names{"name": "name", "labels": "labels"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := cmp.Or(test.path, "Bread.spec")
			var properties []string
			for property := range test.inGo {
				require.Regexp(t, propertyName, property)
				properties = append(properties, property)
			}
			inGo, inProtobuf := newIdentifiers([]Name{"Bread"}).fieldNames(path, properties)
			require.Equal(t, test.inGo, names(inGo))
			require.Equal(t, test.inProtobuf, names(inProtobuf))
		})
	}
}

// A field has the name in each version that it has in the first, whatever else the version has.
func TestFieldNamesOfVersions(t *testing.T) {
	t.Parallel()
	names := newIdentifiers([]Name{"Bread"})
	names.fieldNames("Bread.spec", []string{"foo_bar", "foo-bar"})
	inGo, inProtobuf := names.fieldNames("Bread.spec", []string{"fooBar", "foo_bar"})
	require.Equal(t, map[string]string{"fooBar": "FooBar3", "foo_bar": "FooBar2"}, inGo)
	require.Equal(t, map[string]string{"fooBar": "fooBar3", "foo_bar": "foo_bar2"}, inProtobuf)
	again, _ := names.fieldNames("Bread.spec", []string{"foo-bar", "foo_bar", "fooBar"})
	require.Equal(t, map[string]string{"foo-bar": "FooBar", "foo_bar": "FooBar2", "fooBar": "FooBar3"}, again)
	other, _ := names.fieldNames("Bread.status", []string{"foo_bar"})
	require.Equal(t, map[string]string{"foo_bar": "FooBar"}, other)
}

// Types and constants of all kinds of a group are in the same packages.
func TestTypeNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ path, wanted, want string }{
		"free":                       {"Bread.spec.flour", "BreadFlour", "BreadFlour"},
		"of the spec":                {"Bread.spec", "BreadSpec", "BreadSpec"},
		"as the spec":                {"Bread.spec.spec", "BreadSpec", "BreadSpec2"},
		"as the status":              {"Bread.spec.status", "BreadStatus", "BreadStatus2"},
		"as the list":                {"Bread.spec.list", "BreadList", "BreadList2"},
		"as another kind":            {"Bread.spec.recipe", "BreadRecipe", "BreadRecipe2"},
		"as a type of another kind":  {"Bread.spec.recipeSpec", "BreadRecipeSpec", "BreadRecipeSpec2"},
		"as what a person declared":  {"Bread.spec.crumb", "BreadCrumb", "BreadCrumb2"},
		"as that but for capitals":   {"Bread.spec.cRUMB", "BreadCRUMB", "BreadCRUMB2"},
		"as what each package has":   {"Scheme.spec.builder", "SchemeBuilder", "SchemeBuilder2"},
		"with a number at its end":   {"Bread.spec.crumb9", "BreadCrumb9", "BreadCrumb9"},
		"the same type of a version": {"Bread.status", "BreadStatus", "BreadStatus"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names := newIdentifiers([]Name{"Bread", "BreadRecipe", "Scheme"}, "BreadCrumb")
			require.Equal(t, test.want, names.typeName(test.path, test.wanted))
			require.Equal(t, test.want, names.typeName(test.path, test.wanted))
			require.NotEqual(t, test.want, names.typeName("another", test.wanted))
		})
	}
}

// Constants differ from each other and from types.
func TestConstantNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ values, want []string }{
		"words":                         {[]string{"Always", "if-not-present", "2fa"}, []string{"BreadModeAlways", "BreadModeIfNotPresent", "BreadMode2Fa"}},
		"nothing, and a word like it":   {[]string{"", "Empty"}, []string{"BreadModeEmpty", "BreadModeEmpty2"}},
		"a single letter":               {[]string{"x", "y", "X"}, []string{"BreadModeX", "BreadModeY", "BreadModeX2"}},
		"symbols":                       {[]string{"=", "!=", "=~"}, []string{"BreadModeSymbol", "BreadModeSymbol2", "BreadModeSymbol3"}},
		"numbers that look alike in Go": {[]string{"1", "1.0", "10", "X1"}, []string{"BreadMode1", "BreadMode10", "BreadMode2", "BreadModeX1"}},
		"a type":                        {[]string{"recipe"}, []string{"BreadModeRecipe2"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			names := newIdentifiers([]Name{"Bread"}, "BreadModeRecipe")
			mode := &goType{text: names.typeName("Bread.spec.mode", "BreadMode")}
			var got []string
			for _, value := range test.values {
				got = append(got, names.constantName(mode, value))
			}
			require.Equal(t, test.want, got)
		})
	}
}
