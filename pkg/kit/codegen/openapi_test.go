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

package codegen

import (
	"go/format"
	"testing"

	"github.com/stretchr/testify/require"
)

// generatedDefinitions are like those that openapi-gen makes of types that contain each other.
const generatedDefinitions = `package openapi

import (
	v1 "example.com/bakery/v1"
	corev1 "k8s.io/api/core/v1"
	resource "k8s.io/apimachinery/pkg/api/resource"
	common "k8s.io/kube-openapi/pkg/common"
)

func GetOpenAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	return map[string]common.OpenAPIDefinition{
		"example.com/bakery/v1.Bread":        schema_Bread(ref),
		v1.Oven{}.OpenAPIModelName():         schema_Oven(ref),
		corev1.Container{}.OpenAPIModelName():       schema_Container(ref),
		corev1.Node{}.OpenAPIModelName():            schema_Node(ref),
		corev1.PodSpec{}.OpenAPIModelName():         schema_PodSpec(ref),
		resource.Quantity{}.OpenAPIModelName():  schema_Quantity(ref),
	}
}

func schema_Bread(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return schema(ref(corev1.PodSpec{}.OpenAPIModelName()))
}

func schema_Oven(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return schema(ref("example.com/bakery/v1.Bread"))
}

func schema_Container(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return schema(ref(resource.Quantity{}.OpenAPIModelName()))
}

func schema_Node(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return schema(nil)
}

func schema_PodSpec(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return schema(ref(corev1.Container{}.OpenAPIModelName()))
}

func schema_Quantity(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return schema(nil)
}
`

const prunedDefinitions = `package openapi

import (
	v1 "example.com/bakery/v1"
	corev1 "k8s.io/api/core/v1"
	resource "k8s.io/apimachinery/pkg/api/resource"
	common "k8s.io/kube-openapi/pkg/common"
)

func GetOpenAPIDefinitions(ref common.ReferenceCallback) map[string]common.OpenAPIDefinition {
	return map[string]common.OpenAPIDefinition{
		"example.com/bakery/v1.Bread":         schema_Bread(ref),
		v1.Oven{}.OpenAPIModelName():          schema_Oven(ref),
		corev1.Container{}.OpenAPIModelName(): schema_Container(ref),
		corev1.PodSpec{}.OpenAPIModelName():   schema_PodSpec(ref),
	}
}

func schema_Bread(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return schema(ref(corev1.PodSpec{}.OpenAPIModelName()))
}

func schema_Oven(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return schema(ref("example.com/bakery/v1.Bread"))
}

func schema_Container(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return schema(ref(resource.Quantity{}.OpenAPIModelName()))
}

func schema_PodSpec(ref common.ReferenceCallback) common.OpenAPIDefinition {
	return schema(ref(corev1.Container{}.OpenAPIModelName()))
}
`

// Unused imports are left to goimports.
func TestPrune(t *testing.T) {
	pruned, err := format.Source(prune([]byte(generatedDefinitions), []string{"example.com/bakery/v1"}))
	require.NoError(t, err)
	require.Equal(t, prunedDefinitions, string(pruned))
}
