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

package controlplane

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadManifests(t *testing.T) {
	m, err := readManifests("../../artifacts/deploy/base")
	require.NoError(t, err)
	require.Len(t, m.apiServices, 3)
	require.NotEmpty(t, m.objects)
	user, groups := m.identity()
	require.Equal(t, "system:serviceaccount:restaurant-system:apiserver", user)
	require.Equal(t, []string{"system:serviceaccounts", "system:serviceaccounts:restaurant-system"}, groups)
	require.Equal(t, "apiserver.restaurant-system.svc", m.serviceHost())
}

func TestManifestsThatDoNotRegister(t *testing.T) {
	const (
		account    = "{apiVersion: v1, kind: ServiceAccount, metadata: {name: a, namespace: ns}}\n"
		service    = "---\n{apiVersion: v1, kind: Service, metadata: {name: s, namespace: ns}}\n"
		apiService = "---\n{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.g}, spec: {service: {name: s, namespace: ns}}}\n"
		foreign    = "---\n{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.g}, spec: {service: {name: t, namespace: ns}}}\n"
		list       = "resources: [all.yaml]\n"
	)
	for name, test := range map[string]struct {
		kustomization, objects, want string
	}{
		"good":              {list, account + service + apiService, ""},
		"only a comment":    {list, "# nothing\n---\n" + account + service + apiService, ""},
		"more of kustomize": {list + "namePrefix: x-\n", account + service + apiService, `unknown field "namePrefix"`},
		"missing file":      {"resources: [other.yaml]\n", "", "other.yaml: no such file"},
		"not YAML":          {list, "{", "all.yaml"},
		"not an object":     {list, "a: b\n", "all.yaml: Object 'Kind' is missing"},
		"no account":        {list, service + apiService, "hold 0 ServiceAccounts, 1 Services and 1 APIServices"},
		"no service":        {list, account + apiService, "hold 1 ServiceAccounts, 0 Services and 1 APIServices"},
		"no APIService":     {list, account + service, "hold 1 ServiceAccounts, 1 Services and 0 APIServices"},
		"another's Service": {list, account + service + foreign, "the APIService v1.g names the Service ns/t, which is not among them"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(test.kustomization), 0o600))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(test.objects), 0o600))
			_, err := readManifests(dir)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.want)
			}
		})
	}
	_, err := readManifests(t.TempDir())
	require.ErrorContains(t, err, "the manifests that register the API server cannot be read")
}
