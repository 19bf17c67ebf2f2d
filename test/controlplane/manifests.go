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
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/yaml"
)

// manifests are the objects that register an API server in a cluster.
type manifests struct {
	// objects are all but the two below, in the order of the kustomization.
	objects     []*unstructured.Unstructured
	apiServices []*unstructured.Unstructured
	// service is the Service in the APIServices.
	service *unstructured.Unstructured
	// account is the server's service account.
	account types.NamespacedName
}

// kustomization has the supported fields of a kustomization.yaml. Any other field in the
// file is an error.
type kustomization struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Resources  []string `json:"resources"`
}

// defaultManifests is the default directory of a module's manifests.
const defaultManifests = "artifacts/deploy/base"

// readManifests reads the manifests. They are optional without a server to register.
func (c *Config) readManifests() (*manifests, error) {
	if c.Manifests != "" {
		return readManifests(c.Manifests)
	}
	root, err := moduleRoot()
	if err == nil {
		c.Manifests = filepath.Join(root, filepath.FromSlash(defaultManifests))
		if _, err = os.Stat(c.Manifests); err == nil {
			return readManifests(c.Manifests)
		}
	}
	if c.APIServer.Off {
		return &manifests{}, nil
	}
	return nil, fmt.Errorf("there are no manifests that register the API server: set Config.Manifests to a directory with a kustomization.yaml (%w)", err)
}

// complete returns an error if there are no manifests.
func (m *manifests) complete() error {
	if m.service == nil {
		return errors.New("there are no manifests that register an API server: set Config.Manifests")
	}
	return nil
}

// readManifests reads the kustomization in a directory.
func readManifests(dir string) (*manifests, error) {
	objects, err := readKustomization(dir)
	if err != nil {
		return nil, fmt.Errorf("the manifests that register the API server cannot be read: %w", err)
	}
	m := manifests{objects: objects}
	if err := m.sort(); err != nil {
		return nil, fmt.Errorf("the manifests in %s do not register an API server: %w", dir, err)
	}
	return &m, nil
}

// kustomizationFile is the name of a kustomization in its directory.
const kustomizationFile = "kustomization.yaml"

func readKustomization(dir string) ([]*unstructured.Unstructured, error) {
	path := filepath.Join(dir, kustomizationFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var k kustomization
	if err := yaml.UnmarshalStrict(data, &k); err != nil {
		return nil, fmt.Errorf("%s uses more of kustomize than a list of resources: %w; put that into an overlay", path, err)
	}
	var all []*unstructured.Unstructured
	for _, resource := range k.Resources {
		objects, err := readObjects(filepath.Join(dir, resource))
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	return all, nil
}

// readPath reads a file, a directory with a kustomization, or all YAML and JSON files of a
// directory in the order of their names.
func readPath(path string) ([]*unstructured.Unstructured, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return readObjects(path)
	}
	if _, err := os.Stat(filepath.Join(path, kustomizationFile)); err == nil {
		return readKustomization(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var all []*unstructured.Unstructured
	for _, entry := range entries {
		if entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(entry.Name())) {
			continue
		}
		objects, err := readObjects(filepath.Join(path, entry.Name()))
		if err != nil {
			return nil, err
		}
		all = append(all, objects...)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no objects in the YAML and JSON files of %s", path)
	}
	return all, nil
}

func readObjects(path string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), len(data)+1)
	var objects []*unstructured.Unstructured
	for {
		var document runtime.RawExtension
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if len(document.Raw) == 0 || string(document.Raw) == "null" {
			continue // The document has only comments.
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(document.Raw); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		objects = append(objects, object)
	}
}

// sort finds the Service, the APIServices and the service account among the objects.
func (m *manifests) sort() error {
	all := m.objects
	m.objects = nil
	var accounts, services []*unstructured.Unstructured
	for _, object := range all {
		switch object.GroupVersionKind().GroupKind() {
		case apiregistrationv1.SchemeGroupVersion.WithKind("APIService").GroupKind():
			m.apiServices = append(m.apiServices, object)
			continue
		case corev1.SchemeGroupVersion.WithKind("Service").GroupKind():
			services = append(services, object)
			continue
		case corev1.SchemeGroupVersion.WithKind("ServiceAccount").GroupKind():
			accounts = append(accounts, object)
		}
		m.objects = append(m.objects, object)
	}
	if len(accounts) != 1 || len(services) != 1 || len(m.apiServices) == 0 {
		return fmt.Errorf("they hold %d ServiceAccounts, %d Services and %d APIServices, but one, one and at least one are needed",
			len(accounts), len(services), len(m.apiServices))
	}
	m.account = types.NamespacedName{Namespace: accounts[0].GetNamespace(), Name: accounts[0].GetName()}
	m.service = services[0]
	for _, apiService := range m.apiServices {
		namespace, _, _ := unstructured.NestedString(apiService.Object, "spec", "service", "namespace")
		name, _, _ := unstructured.NestedString(apiService.Object, "spec", "service", "name")
		if namespace != m.service.GetNamespace() || name != m.service.GetName() {
			return fmt.Errorf("the APIService %s names the Service %s/%s, which is not among them", apiService.GetName(), namespace, name)
		}
	}
	return nil
}

// identity returns the user and groups of the server's service account.
func (m *manifests) identity() (user string, groups []string) {
	return serviceaccount.MakeUsername(m.account.Namespace, m.account.Name), serviceaccount.MakeGroupNames(m.account.Namespace)
}

// serviceHost returns the name that kube-apiserver expects in the server's certificate.
func (m *manifests) serviceHost() string {
	return m.service.GetName() + "." + m.service.GetNamespace() + ".svc"
}
