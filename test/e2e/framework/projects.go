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
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// Project is a module of hack/definitions.
type Project struct {
	// Groups are the groups of its definitions.
	Groups []string

	module string
	// files are patterns of the names of files with definitions.
	files []string
}

// Projects returns projects whose definitions many clusters have.
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

// Name returns the last part of the module's name.
func (p Project) Name() string { return filepath.Base(p.module) }

// Directory returns the directory of the module, and downloads it if needed.
func (p Project) Directory(t testing.TB) string {
	t.Helper()
	dir, err := p.download(t.Context())
	require.NoError(t, err)
	return dir
}

func (p Project) download(ctx context.Context) (string, error) {
	// "go list" knows no directory of a module that is not downloaded yet.
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", p.module)
	command.Dir = filepath.Join("..", "..", "..", "hack", "definitions")
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	var downloaded struct{ Dir string }
	if err := json.Unmarshal(output, &downloaded); err != nil || downloaded.Dir == "" {
		return "", fmt.Errorf("the directory of %s is not known: %w: %s", p.module, err, output)
	}
	return downloaded.Dir, nil
}

// Definitions returns the definitions of the project.
func (p Project) Definitions(t testing.TB) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definitions, err := p.ReadDefinitions(t.Context())
	require.NoError(t, err)
	return definitions
}

// ReadDefinitions returns the definitions of the project, without a test.
func (p Project) ReadDefinitions(ctx context.Context) ([]*apiextensionsv1.CustomResourceDefinition, error) {
	dir, err := p.download(ctx)
	if err != nil {
		return nil, err
	}
	var definitions []*apiextensionsv1.CustomResourceDefinition
	for _, pattern := range p.files {
		paths, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil || len(paths) == 0 {
			return nil, fmt.Errorf("no file of %s is like %s: %w", dir, pattern, err)
		}
		for _, path := range paths {
			content, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			definition := &apiextensionsv1.CustomResourceDefinition{}
			if err := yaml.Unmarshal(content, definition); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			if !slices.Contains(p.Groups, definition.Spec.Group) {
				return nil, fmt.Errorf("%s: the group %s is not among %v", path, definition.Spec.Group, p.Groups)
			}
			definitions = append(definitions, definition)
		}
	}
	return definitions, nil
}
