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

package migrate

import (
	"testing"

	"k8s.io/client-go/rest"
)

func TestWithHost(t *testing.T) {
	for name, test := range map[string]struct{ address, cluster, want string }{
		"a host":                {"10.1.2.3:9443", "https://127.0.0.1:6443", "10.1.2.3:9443"},
		"none":                  {":9443", "https://127.0.0.1:6443", "127.0.0.1:9443"},
		"none, version 6":       {":9443", "https://[::1]", "[::1]:9443"},
		"none, by a default":    {":9443", "127.0.0.1", "127.0.0.1:9443"},
		"nobody is to be asked": {"", "https://127.0.0.1:6443", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := withHost(test.address, &rest.Config{Host: test.cluster})
			if err != nil || got != test.want {
				t.Errorf("got %q and the error %v, want %q", got, err, test.want)
			}
		})
	}
}
