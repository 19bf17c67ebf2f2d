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

package crdserver

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		groups []string
		want   []string
	}{
		"none":     {nil, []string{"--groups is not set: name the API groups to serve, such as argoproj.io"}},
		"two":      {[]string{"argoproj.io", "gateway.networking.k8s.io"}, nil},
		"built in": {[]string{"apps"}, []string{`--groups: "apps" is a group of Kubernetes itself, not of CustomResourceDefinitions`}},
		"the definitions": {[]string{"apiextensions.k8s.io"}, []string{
			`--groups: "apiextensions.k8s.io" is a group of Kubernetes itself, not of CustomResourceDefinitions`,
		}},
		"no name": {[]string{"A.b"}, []string{
			`--groups: "A.b" can't be an API group: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			for _, err := range (&Options{Groups: test.groups}).Validate() {
				got = append(got, err.Error())
			}
			require.Equal(t, test.want, got)
		})
	}
}
