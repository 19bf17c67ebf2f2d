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
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// Names of fields are as close to their names in JSON as Go allows.
func TestFieldNames(t *testing.T) {
	t.Parallel()
	type names map[string]string
	for name, test := range map[string]struct {
		path string
		inGo names
	}{
		"plain":                    {inGo: names{"clusterIP": "ClusterIP", "foo1": "Foo1"}},
		"a dash":                   {inGo: names{"auto-scaler": "AutoScaler"}},
		"an underscore":            {inGo: names{"foo_bar": "FooBar", "_internal": "Internal"}},
		"a digit at the beginning": {inGo: names{"2fa": "X2fa"}},
		"a letter after a digit":   {inGo: names{"v1beta2": "V1beta2"}},
		"letters beyond ASCII":     {inGo: names{"größe": "Größe", "ö": "Ö"}},
		"letters without capitals": {inGo: names{"名称": "X名称", "名": "X名"}},
		"the same name in Go": {
			inGo: names{"foo-bar": "FooBar2", "fooBar": "FooBar", "foo_bar": "FooBar3"},
		},
		"the same name but for capitals": {inGo: names{"fooBar": "FooBar", "foobar": "Foobar"}},
		"methods": {
			inGo: names{"deepCopy": "DeepCopyValue", "deepCopyValue": "DeepCopyValue2", "marshal": "Marshal", "size": "Size", "swaggerDoc": "SwaggerDocValue"},
		},
		"methods of apply configurations": {inGo: names{"foo": "Foo", "withFoo": "WithFoo2"}},
		"types of apply configurations":   {path: "Bread", inGo: names{"typeMetaApplyConfiguration": "TypeMetaApplyConfiguration2"}},
		"metadata of a kind": {
			path: "Bread",
			inGo: names{"getKind": "GetKindValue", "name": "NameValue", "objectMeta": "ObjectMetaValue", "withLabels": "WithLabels2", "spec": "Spec"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := cmp.Or(test.path, "Bread.spec")
			var properties []string
			for property := range test.inGo {
				require.Regexp(t, propertyName, property)
				properties = append(properties, property)
			}
			require.Equal(t, test.inGo, names(newIdentifiers([]Name{"Bread"}).fieldNames(path, properties)))
		})
	}
}

// A field has the same name in all versions, whatever else a version has.
func TestFieldNamesOfVersions(t *testing.T) {
	t.Parallel()
	names := newIdentifiers([]Name{"Bread"})
	names.fieldNames("Bread.spec", []string{"foo_bar", "foo-bar"})
	require.Equal(t, map[string]string{"fooBar": "FooBar3", "foo_bar": "FooBar2"}, names.fieldNames("Bread.spec", []string{"fooBar", "foo_bar"}))
	again := names.fieldNames("Bread.spec", []string{"foo-bar", "foo_bar", "fooBar"})
	require.Equal(t, map[string]string{"foo-bar": "FooBar", "foo_bar": "FooBar2", "fooBar": "FooBar3"}, again)
	other := names.fieldNames("Bread.status", []string{"foo_bar"})
	require.Equal(t, map[string]string{"foo_bar": "FooBar"}, other)
}

// A property with a dot in its name is another one than a property of a property.
func TestDottedNames(t *testing.T) {
	t.Parallel()
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	schema := object(map[string]apiextensionsv1.JSONSchemaProps{
		"spec": object(map[string]apiextensionsv1.JSONSchemaProps{
			"flour": object(map[string]apiextensionsv1.JSONSchemaProps{"rye": object(nil)}), "flour.rye": object(nil),
		}),
	})
	reader := &schemaReader{kind: "Bread", names: newIdentifiers([]Name{"Bread"})}
	reader.readSchema(&schema, false)
	var names []string
	for _, made := range reader.structs {
		names = append(names, made.Name)
	}
	require.Equal(t, []string{"BreadSpec", "BreadFlour", "BreadFlourRye", "BreadFlourRye2"}, names)
}

// Types and constants of all kinds of a group are in the same packages.
func TestTypeNames(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ path, wanted, want string }{
		"of the spec":                {"Bread.spec", "BreadSpec", "BreadSpec"},
		"as the spec":                {"Bread.spec.spec", "BreadSpec", "BreadSpec2"},
		"as the status":              {"Bread.spec.status", "BreadStatus", "BreadStatus2"},
		"as the list":                {"Bread.spec.list", "BreadList", "BreadList2"},
		"as another kind":            {"Bread.spec.recipe", "BreadRecipe", "BreadRecipe2"},
		"as a type of another kind":  {"Bread.spec.recipeSpec", "BreadRecipeSpec", "BreadRecipeSpec2"},
		"as what a person declared":  {"Bread.spec.crumb", "BreadCrumb", "BreadCrumb2"},
		"as what each package has":   {"Scheme.spec.builder", "SchemeBuilder", "SchemeBuilder2"},
		"as an apply configuration":  {"Bread.spec.crumbApplyConfiguration", "BreadCrumbApplyConfiguration", "BreadCrumbApplyConfiguration2"},
		"with letters beyond ASCII":  {"Bread.spec.größe", "BreadGröße", "BreadGre"},
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
