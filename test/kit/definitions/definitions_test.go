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

// Package definitions imports CustomResourceDefinitions with the kit, and compares the verdicts of kube-apiserver with
// the definitions and of a server with the results, on the same objects.
package definitions

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// corpus are definitions that belong together.
type corpus struct {
	name        string
	definitions []*apiextensionsv1.CustomResourceDefinition
}

const (
	// variable names the environment variable that has a regular expression for the names of
	// definitions.
	variable   = "DEFINITIONS"
	everything = "."
)

// objectCount is how many objects of each version are compared.
const objectCount = 500

// TestDefinitions has all differences between definitions and what the kit makes of them, but for
// those that testdata/explained.yaml explains.
func TestDefinitions(t *testing.T) {
	pattern := os.Getenv(variable)
	if pattern == "" {
		t.Skip("long: modules are generated and built for the definitions of many projects, by make nightly SUITE=definitions")
	}
	explanations, kit := readExplanations(t), buildKit(t)
	corpora := corpora(t, regexp.MustCompile(pattern))
	require.NotEmpty(t, corpora, "no definition has a name that matches %s", pattern)
	compared := 0
	for _, corpus := range corpora {
		t.Run(corpus.name, func(t *testing.T) {
			compared++
			all := differences{}
			for i, definitions := range modules(corpus.definitions, explanations) {
				// A control plane prints its logs if its own test fails: it is not to blame for a difference.
				t.Run(fmt.Sprint(i), func(t *testing.T) { compare(t, kit, definitions, all) })
			}
			explained, unexplained := explain(all, explanations)
			for _, d := range unexplained {
				assert.Failf(t, "unexplained difference", "%d × %s\n\t%s", all[d].count, d, all[d].example)
			}
			t.Logf("%d differences are explained, and %d are not", explained, len(unexplained))
		})
	}
	for _, explanation := range explanations {
		t.Logf("%d × %s", explanation.count, explanation.Reason)
	}
	if pattern != everything || compared < len(corpora) {
		return
	}
	for _, explanation := range explanations {
		assert.NotZero(t, explanation.count, "nothing differs any more as testdata/explained.yaml says: %+v", *explanation)
	}
}

// modules are the definitions that one module each serves. Definitions that can't be served have
// modules of their own. So have versions of one definition, and groups that the kit can't tell
// apart by their first labels.
func modules(definitions []*apiextensionsv1.CustomResourceDefinition, explanations []*explanation) (all [][]*apiextensionsv1.CustomResourceDefinition) {
	together, labels, versions := map[string]int{}, map[string]string{}, map[string]int{}
	for _, definition := range definitions {
		group := definition.Spec.Group
		label, _, _ := strings.Cut(group, ".")
		if labels[label] == "" {
			labels[label] = group
		}
		place := fmt.Sprint(versions[definition.Name])
		versions[definition.Name]++
		if labels[label] != group {
			place += group
		}
		broken := slices.ContainsFunc(explanations, func(e *explanation) bool { return e.isBroken(definition.Name) })
		if i, found := together[place]; found && !broken {
			all[i] = append(all[i], definition)
			continue
		}
		if !broken {
			together[place] = len(all)
		}
		all = append(all, []*apiextensionsv1.CustomResourceDefinition{definition})
	}
	return all
}

// corpora are the small definitions of this package, and those of projects, whose names match.
func corpora(t *testing.T, names *regexp.Regexp) (all []corpus) {
	t.Helper()
	all = append(all, corpus{"small", small(t)})
	for _, project := range framework.Projects() {
		definitions := project.Definitions(t)
		for _, definition := range definitions {
			// The kit writes no groups of the Kubernetes project.
			if group, found := strings.CutSuffix(definition.Spec.Group, ".k8s.io"); found {
				definition.Spec.Group = group + ".example.com"
				definition.Name = definition.Spec.Names.Plural + "." + definition.Spec.Group
			}
		}
		all = append(all, corpus{project.Name(), apart(definitions)})
	}
	for i := range all {
		all[i].definitions = slices.DeleteFunc(all[i].definitions, func(definition *apiextensionsv1.CustomResourceDefinition) bool {
			return !names.MatchString(definition.Name)
		})
	}
	return slices.DeleteFunc(all, func(corpus corpus) bool { return len(corpus.definitions) == 0 })
}

// apart are definitions of one version for each one with several that differ: people write the
// conversions between those.
func apart(definitions []*apiextensionsv1.CustomResourceDefinition) (all []*apiextensionsv1.CustomResourceDefinition) {
	for _, definition := range definitions {
		versions := definition.Spec.Versions
		if !slices.ContainsFunc(versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return !reflect.DeepEqual(version.Schema, versions[0].Schema)
		}) {
			all = append(all, definition)
			continue
		}
		for _, version := range versions {
			if version.Served {
				of := definition.DeepCopy()
				version.Storage = true
				of.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{version}
				all = append(all, of)
			}
		}
	}
	return all
}

// small are definitions of a line each of what definitions may have.
func small(t *testing.T) (definitions []*apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "small", "*.yaml"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.Open(file)
		require.NoError(t, err)
		defer text.Close()
		read, err := decode(text)
		require.NoError(t, err, file)
		definitions = append(definitions, read...)
	}
	return definitions
}

// decode reads definitions in YAML.
func decode(text io.Reader) (definitions []*apiextensionsv1.CustomResourceDefinition, err error) {
	documents := utilyaml.NewYAMLOrJSONDecoder(text, 4096)
	for {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := documents.Decode(definition); errors.Is(err, io.EOF) {
			return definitions, nil
		} else if err != nil {
			return nil, err
		}
		definitions = append(definitions, definition)
	}
}

// compare adds the differences of definitions that one module serves.
func compare(t *testing.T, kit string, definitions []*apiextensionsv1.CustomResourceDefinition, all differences) {
	t.Helper()
	fails := func(stage string, err error) bool {
		if err != nil {
			all.add(difference{definitions[0].Name, "", stage, err.Error()}, "")
		}
		return err != nil
	}
	module := &module{dir: t.TempDir(), kit: kit}
	if fails("import", module.importAll(t, definitions)) || fails("generate", module.run(t, "generate")) || fails("build", module.build(t)) {
		return
	}
	servers, err := serve(t, module, definitions)
	if fails("serve", err) {
		return
	}
	for _, definition := range definitions {
		fails("export", module.run(t, "export", "crd", "--group="+definition.Spec.Group, "--file="+filepath.Join(t.TempDir(), "exported.yaml")))
		for _, served := range definition.Spec.Versions {
			if served.Served {
				version := &version{servers, definition, served}
				version.compareObjects(t, all, objectCount)
			}
		}
	}
}

// serve starts kube-apiserver with the definitions, and the module's server beside it.
func serve(t *testing.T, module *module, definitions []*apiextensionsv1.CustomResourceDefinition) (*servers, error) {
	t.Helper()
	cp := controlplane.ForTest(t, controlplane.Config{
		Manifests:         filepath.Join(module.dir, "artifacts", "deploy", "base"),
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true, Binary: module.server()}},
	})
	require.NoError(t, cp.Install(t.Context()))
	if err := cp.APIServer.Start(t.Context()); err != nil {
		return nil, err
	}
	config := cp.RESTConfig()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	servers := &servers{client: client, defined: config.Host, typed: cp.APIServer.URL()}

	crds := clientset.NewForConfigOrDie(config).ApiextensionsV1().CustomResourceDefinitions()
	for _, definition := range definitions {
		_, err := crds.Create(t.Context(), definition, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	for _, definition := range definitions {
		for _, served := range definition.Spec.Versions {
			if !served.Served {
				continue
			}
			version := &version{servers, definition, served}
			controlplane.Eventually(t, func() error {
				_, err := version.create(t, servers.defined, "?dryRun=All", nil)
				return err
			})
		}
	}
	return servers, nil
}
