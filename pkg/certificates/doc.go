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

// Package certificates gives the replicas of a server certificates that kube-apiserver trusts,
// and renews them in time. It needs no other program. The replicas share a certificate
// authority in a Secret, and each issues a certificate for itself. All of them make the
// server's APIServices trust the certificate authority.
//
// A certificate authority is renewed in steps, so that at each moment kube-apiserver trusts
// all certificates in use. After two thirds of its life the next certificate authority is made
// and trusted, but issues nothing. When kube-apiserver has had time to learn that, it takes
// over, and the previous one stays trusted until it expires. Any replica takes any step; the
// resourceVersion of the Secret decides which replica was first.
//
// The same steps serve an Issuer, which keeps the certificates of others: of an etcd
// and its clients, for instance.
package certificates
