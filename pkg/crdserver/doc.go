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

// Package crdserver serves API groups that CustomResourceDefinitions define, from an etcd
// other than the cluster's.
//
// The definitions stay in kube-apiserver, where clients read and change them. This package
// keeps copies of the chosen groups' definitions in the server's own etcd.
// k8s.io/apiextensions-apiserver serves the copies, as it does inside kube-apiserver.
// Objects are stored under the same keys and in the same form as there.
//
// When a definition with objects is deleted in the cluster, its copy stays, and the
// objects are still served. Uninstalling a chart must not destroy them.
//
// # A request
//
// Behind the handlers of package apiserver, a request passes these:
//
//   - inside answers the server's own requests for copies of definitions.
//   - withoutProtobuf refuses custom resources in protobuf, since apiextensions-apiserver's decoder would panic.
//   - encodedcache.Handler answers lists and watches from a watch cache of objects in JSON.
package crdserver
