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

// Package cluster has the common code of this module's programs as clients of a cluster. It loads
// the configuration of clients of kube-apiserver, finds the namespace, waits for missing
// components, and describes the permissions that a server needs.
//
// It also tells which server answers requests for a version of an API group: kube-apiserver itself,
// or a server that an APIService names. The APIService alone does not say so. After a change,
// kube-apiserver takes a moment, and on a busy machine half a minute, to send requests elsewhere.
// The condition Available speaks of the new server already.
package cluster
