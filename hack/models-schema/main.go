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

// Command models-schema prints the OpenAPI definitions of the API's types as
// one Swagger document: what applyconfiguration-gen needs to know about lists
// that are maps.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/openapi"
)

func main() {
	if err := json.NewEncoder(os.Stdout).Encode(document()); err != nil {
		fmt.Fprintf(os.Stderr, "models-schema: cannot print the OpenAPI definitions: %v\n", err)
		os.Exit(1)
	}
}

func document() *spec.Swagger {
	definitions := spec.Definitions{}
	for name, definition := range openapi.GetOpenAPIDefinitions(reference) {
		definitions[name] = schemaV2(definition.Schema)
	}
	return &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:     "2.0",
		Info:        &spec.Info{InfoProps: spec.InfoProps{Title: "Restaurant", Version: "unversioned"}},
		Definitions: definitions,
	}}
}

func reference(name string) spec.Ref {
	return spec.MustCreateRef("#/definitions/" + name)
}

// schemaV2 returns the schema in the form of OpenAPI v2. A type that looks
// different there carries that form with it.
func schemaV2(schema spec.Schema) spec.Schema {
	if v2, found := schema.Extensions[common.ExtensionV2Schema].(spec.Schema); found {
		return v2
	}
	return schema
}
