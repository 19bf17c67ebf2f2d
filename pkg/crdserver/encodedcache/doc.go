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

// Package encodedcache is a watch cache of custom resources in JSON.
//
// k8s.io/apiextensions-apiserver keeps custom resources as maps, in one watch cache for each served version. A map takes
// several times the memory of its JSON, and is encoded again for each list. Here, an object is encoded once, when the
// cache gets it from etcd: after defaults, pruning and conversion, in the version that is served. The Cacher of
// k8s.io/apiserver is the same as for all other resources. It holds an object's JSON, its labels and its fields.
//
// From etcd to a client, objects pass:
//
//   - encodingStorage, from which the Cacher reads: maps to JSON.
//   - cacher.Cacher and cacher.CacheDelegator. What the delegator reads from etcd itself is not encoded.
//   - Storage: JSON to maps, for a client of the storage that asks for maps.
//   - Handler, which asks for JSON: it answers lists and watches in JSON by the handler of k8s.io/apiserver, with an
//     encoder that copies. All other requests pass to the handler of k8s.io/apiextensions-apiserver.
package encodedcache
