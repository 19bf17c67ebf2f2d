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
package keys

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

func TestVersionOf(t *testing.T) {
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "example.com/v1alpha1", Kind: "Thing"}}
	encoded, err := unknown.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		data, want string
		fails      bool
	}{
		"JSON":              {`{"apiVersion": "example.com/v1beta1", "kind": "Thing"}`, "v1beta1", false},
		"the core group":    {`{"apiVersion": "v1", "kind": "Pod"}`, "v1", false},
		"protobuf":          {"k8s\x00" + string(encoded), "v1alpha1", false},
		"broken protobuf":   {"k8s\x00\xff", "", true},
		"no version":        {`{}`, "", true},
		"what is encrypted": {"k8s:enc:aescbc:v1:key:", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := VersionOf([]byte(test.data))
			if got != test.want || (err != nil) != test.fails {
				t.Errorf("got %q and the error %v, want %q", got, err, test.want)
			}
		})
	}
}
