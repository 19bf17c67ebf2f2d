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

// Package registry turns the declaration of an API group into the REST storage that serves
// it.
//
// A Group names its versions and its kinds; a Kind says in typed functions what is special
// about one kind. The rest is shared: one strategy for validation, generation and
// server-side apply, and the status and scale subresources. Each kind has one store and one
// watch cache, for all of its versions. An Action and a Stream declare further subresources,
// and a Review a kind that is not stored. The package knows no kind in particular.
//
// A request passes these files: storage.go is called by the endpoint handlers, and
// strategy.go prepares and validates the object. Then errors.go gives every failure of etcd
// a metav1.Status, and table.go prints the answer. Objects of a kind with a Definition are
// first decoded by its schemas, in definition.go.
package registry
