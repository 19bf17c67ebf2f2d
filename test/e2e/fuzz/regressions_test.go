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

package fuzz

import "net/http"

// regressions are requests that were answered with a fault once.
var regressions = map[string]request{
	// To kube-apiserver it is an internal error.
	"a path that names no resource": {Method: "GET", Path: "/apis/" + group + "/v1/proxy"},
	// It was written out with all of its digits, which takes minutes and gigabytes.
	"a number of many digits with a large exponent": {
		Method: "POST", Path: "/apis/" + group + "/v1/toppings", Query: "dryRun=All", Header: http.Header{"Content-Type": {"application/json"}},
		Body: []byte(`{"kind":"Topping","apiVersion":"` + group + `/v1","metadata":{"name":"x"},"spec":{"cost":"1000000000000000000e999999999"}}`),
	},
}
