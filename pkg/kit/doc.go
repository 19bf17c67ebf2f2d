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

// Package kit writes the parts of an API server that don't depend on its author's ideas:
//
//   - a module with a server, its tests and its manifests (Init)
//   - other groups (CreateGroup)
//   - the files of a kind (CreateKind), and of another version of it (CreateVersion)
//   - subresources, reviews, admission plugins, controllers and webhooks (CreatePart)
//
// The directory templates has the files to write. Names in capitals stand for the names of the group,
// the kind and the version. PREFIX stands for the name of a group that Init has not written. The
// manifests are this repository's own, with other names.
//
// All commands can be repeated. Existing files are left alone, and reported if they differ from
// the ones that would be written. Lists in Go files, such as the kinds, are found in the
// syntax tree and get missing elements.
package kit
