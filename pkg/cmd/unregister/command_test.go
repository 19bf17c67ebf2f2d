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

package unregister

import "testing"

func TestService(t *testing.T) {
	for value, want := range map[string]string{
		"restaurant-system/apiserver": "restaurant-system/apiserver",
		"apiserver":                   "",
		"/apiserver":                  "",
		"restaurant-system/":          "",
	} {
		var service Service
		if err := service.Set(value); (err == nil) != (want != "") {
			t.Errorf("%q: %v", value, err)
		}
		if got := service.String(); got != want {
			t.Errorf("%q is %q, not %q", value, got, want)
		}
	}
}
