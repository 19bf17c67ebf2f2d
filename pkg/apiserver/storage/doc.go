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

// Package storage stores the objects of a server in etcd.
//
// An object passes these decorators on its way to etcd. All but two are built by decorator, one per
// line. Package registry adds the first, and the configuration of etcd has the last.
//
//   - statusErrorStorage of package registry explains the errors of etcd to clients.
//   - boundedStorage takes memory of the gate for lists and large objects.
//   - currentStorage waits for a watch cache that is new, and ends watches from before the objects were moved to this etcd,
//     or of another etcd.
//   - Cacher is k8s.io/apiserver's watch cache, for resources that have one.
//   - historicStorage begins that cache with the past, so that watches resume after a restart.
//   - writingStorage writes by a client whose transactions have the conditions of references.
//   - checksumTransformer adds a checksum to each value, outside of encryption.
package storage
