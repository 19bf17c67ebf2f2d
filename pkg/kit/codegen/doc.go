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

// Package codegen generates the code of API groups with the generators of Kubernetes. It
// finds the groups of a module by their directories:
//
//	…/apis/<group>            internal types
//	…/apis/<group>/<version>  types of a version, such as v1 or v1beta1
//	…/generated               clients, listers, informers, apply configurations and
//	                          OpenAPI of all groups in the directory apis beside it
//
// Tags in the file doc.go of a package ask for generated code, as everywhere in
// Kubernetes: +k8s:deepcopy-gen, +k8s:conversion-gen, +k8s:defaulter-gen,
// +k8s:validation-gen, +k8s:protobuf-gen, +k8s:openapi-gen, and +genclient at a type. A
// package without that file gets one that asks for everything. Then only +groupName is
// needed, in one file of the group. A version without a file register.go gets one, too.
package codegen
