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

package framework

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Project is a module of hack/definitions.
type Project struct {
	// Groups are what its definitions are of.
	Groups []string

	module string
	// files are patterns of the names of files with definitions.
	files []string
}

// Projects are those whose definitions many clusters have.
func Projects() []Project {
	return []Project{
		{[]string{"acme.cert-manager.io", "cert-manager.io"}, "github.com/cert-manager/cert-manager", []string{"deploy/crds/*.yaml"}},
		{[]string{"monitoring.coreos.com"}, "github.com/prometheus-operator/prometheus-operator", []string{"example/prometheus-operator-crd/*.yaml"}},
		{
			[]string{
				"addons.cluster.x-k8s.io", "bootstrap.cluster.x-k8s.io", "cluster.x-k8s.io", "clusterctl.cluster.x-k8s.io",
				"controlplane.cluster.x-k8s.io", "ipam.cluster.x-k8s.io", "runtime.cluster.x-k8s.io",
			},
			"sigs.k8s.io/cluster-api",
			[]string{"core/config/crd/bases/*.yaml", "bootstrap/kubeadm/config/crd/bases/*.yaml", "controlplane/kubeadm/config/crd/bases/*.yaml", "cmd/clusterctl/config/crd/bases/*.yaml"},
		},
		{[]string{"gateway.networking.k8s.io", "gateway.networking.x-k8s.io"}, "sigs.k8s.io/gateway-api", []string{"config/crd/experimental/*io_[^v]*.yaml"}},
		{[]string{"jobset.x-k8s.io"}, "sigs.k8s.io/jobset", []string{"config/components/crd/bases/*.yaml"}},
	}
}

// Name is the last part of the name of the module.
func (p Project) Name() string { return filepath.Base(p.module) }

// Directory is where the module is, which is downloaded if it is not there.
func (p Project) Directory(t testing.TB) string {
	t.Helper()
	// "go list" knows no directory of a module that nobody has downloaded yet.
	command := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", p.module)
	command.Dir = filepath.Join("..", "..", "..", "hack", "definitions")
	output, err := command.Output()
	require.NoError(t, err, "%s", output)
	var downloaded struct{ Dir string }
	require.NoError(t, json.Unmarshal(output, &downloaded))
	require.NotEmpty(t, downloaded.Dir, "%s", output)
	return downloaded.Dir
}

// Definitions are those of the project.
func (p Project) Definitions(t testing.TB) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, pattern := range p.files {
		paths, err := filepath.Glob(filepath.Join(p.Directory(t), pattern))
		require.NoError(t, err)
		require.NotEmpty(t, paths, pattern)
		for _, path := range paths {
			content, err := os.ReadFile(path)
			require.NoError(t, err)
			definition := &apiextensionsv1.CustomResourceDefinition{}
			require.NoError(t, yaml.Unmarshal(content, definition), path)
			require.Contains(t, p.Groups, definition.Spec.Group, path)
			definitions = append(definitions, definition)
		}
	}
	return definitions
}
