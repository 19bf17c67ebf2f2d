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

// Package webhook is a server for the webhooks of an API group, over HTTPS:
//
//	/admit     fills in what an object leaves out (mutating admission)
//	/validate  refuses what must not be stored (validating admission)
//	/convert   converts custom resources between their versions
//	/livez     reports whether the process works
//	/readyz    reports whether admission can judge, and names what is missing
//
// The first three are below a path that only kube-apiserver knows, if there is one.
//
// It knows nothing of any group. Webhooks declares how to fill in and refuse objects, and a
// scheme declares versions and conversions.
//
// Until its informers have synced, the server is not ready. It answers /validate with 503
// and the request to try again a second later. /convert has to work at once: the informers
// may read custom resources that are stored in another version, and kube-apiserver has
// those converted here. So pods must be reached before they are ready: their readiness
// probe should exclude the checks "informer-…".
package webhook
