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

// +k8s:openapi-gen=true
// +k8s:openapi-model-package=com.example.workshop.v1alpha1
// +k8s:deepcopy-gen=package
// +k8s:conversion-gen=restaurant.programming-kubernetes.info/apiserver/test/workshop/apis/workshop
// +k8s:defaulter-gen=TypeMeta
// +groupName=workshop.example.com

// Package v1alpha1 is version v1alpha1 of workshop.example.com: an older form of
// machines, and a kind of its own.
package v1alpha1
