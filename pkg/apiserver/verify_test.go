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

package apiserver

import (
	"fmt"
	"testing"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// Of snapshots of custom resources, no object had been looked at.
func TestVerifyCustomResources(t *testing.T) {
	const key = "/registry/example.com/things/default/a"
	thing := func(apiVersion, namespace, name string) string {
		return fmt.Sprintf(`{"apiVersion":%q,"kind":"Thing","metadata":{"namespace":%q,"name":%q}}`, apiVersion, namespace, name)
	}
	for name, test := range map[string]struct {
		key, content, resource, err string
		withoutBase                 bool
	}{
		"an object":             {key: key, content: thing("example.com/v1", "default", "a"), resource: "things.example.com"},
		"without a namespace":   {key: "/registry/example.com/things/a", content: thing("example.com/v1", "", "a"), resource: "things.example.com"},
		"of another group":      {key: key, content: thing("other.example.com/v1", "default", "a"), resource: "things.example.com", err: `it is an object of the group "other.example.com"`},
		"of another name":       {key: key, content: thing("example.com/v1", "default", "b"), resource: "things.example.com", err: "it is the object default/b"},
		"of another namespace":  {key: key, content: thing("example.com/v1", "other", "a"), resource: "things.example.com", err: "it is the object other/a"},
		"no object":             {key: key, content: "{", resource: "things.example.com", err: "it can't be decoded: unexpected end of JSON input"},
		"what is encrypted":     {key: key, content: "k8s:enc:secretbox:v1:key:x", resource: "things.example.com", err: "it can't be decrypted, see --encryption-provider-config: identity transformer tried to read encrypted data"},
		"the server's own":      {key: "/registry/migrations/example.com", content: "{"},
		"another one":           {key: "/registry/uses/example.com/things/a", content: ""},
		"another prefix":        {key: "/elsewhere/example.com/things/default/a", content: "{"},
		"a server without base": {key: key, content: "{", withoutBase: true},
	} {
		t.Run(name, func(t *testing.T) {
			options := parse(t)
			if !test.withoutBase {
				options.Base = &Base{}
			}
			verify, err := options.NewStoredVerifier(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			resource, err := verify(test.key, etcd.SealValue(test.key, []byte(test.content)))
			if resource != test.resource {
				t.Errorf("got the resource %q, want %q", resource, test.resource)
			}
			if message := fmt.Sprint(err); err != nil && message != test.err || (err == nil) != (test.err == "") {
				t.Errorf("got the error %v, want %q", err, test.err)
			}
		})
	}
}
