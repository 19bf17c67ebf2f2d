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

package kit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"

	"restaurant.programming-kubernetes.info/apiserver/artifacts"
)

// names of this repository's own server, in its manifests.
const (
	ownGroup     = "restaurant.programming-kubernetes.info"
	ownName      = "restaurant"
	ownNamespace = "restaurant-system"
)

// manifests are those of this repository's own server, with the names of another. What depends
// on the versions and kinds of a group is added when there are some.
func (*writer) manifests(d *data, write func(name string, text []byte) error) error {
	header, err := ownHeader()
	if err != nil {
		return err
	}
	return fs.WalkDir(artifacts.Deploy, "deploy", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(file, "deploy/")
		if entry.IsDir() {
			// One is an example, the other runs the restaurant's own webhook.
			if name == "components/second-scheduler" || name == "components/webhook" {
				return fs.SkipDir
			}
			return nil
		}
		text, err := artifacts.Deploy.ReadFile(file)
		if err != nil {
			return err
		}
		adapted, err := adapt(name, string(text))
		if err != nil || adapted == "" {
			return err
		}
		adapted = d.HashHeader + d.rename(strings.TrimPrefix(adapted, header))
		if strings.HasSuffix(name, ".json") {
			adapted = d.rename(adapted[len(d.HashHeader):])
		}
		return write(d.rename("artifacts/deploy/"+name), []byte(adapted))
	})
}

// ownHeader is what all manifests of this repository begin with.
func ownHeader() (string, error) {
	text, err := artifacts.Deploy.ReadFile("deploy/base/namespace.yaml")
	if err != nil {
		return "", err
	}
	header, _, found := strings.Cut(string(text), "\n\n")
	if !found {
		return "", errors.New("the manifests have no header")
	}
	return header + "\n", nil
}

// rename replaces the names of this repository's server.
func (d *data) rename(text string) string {
	inPattern := func(name string) string { return strings.ReplaceAll(name, ".", "[.]") }
	patterns := make([]string, len(d.Groups))
	for i, group := range d.Groups {
		patterns[i] = inPattern(group.Group)
	}
	anyGroup := strings.Join(patterns, "|")
	if len(patterns) > 1 {
		anyGroup = "(" + anyGroup + ")"
	}
	const runbooks = "docs/operations.md#" + ownName
	return strings.NewReplacer(
		runbooks, library+"/"+runbooks,
		ownGroup, d.Group,
		inPattern(ownGroup), anyGroup,
		ownNamespace, d.Namespace,
		ownName, d.Server.Name,
		title(ownName), d.Server.Title(),
	).Replace(text)
}

// adapt removes from a manifest what is about the restaurant's kinds and versions. It returns
// nothing for a manifest that is about nothing else.
func adapt(name, text string) (string, error) {
	switch name {
	case "base/apiservices.yaml", "base/rbac-apiservices.yaml", "base/rbac-users.yaml":
		return "", nil
	case "base/kustomization.yaml":
		return without(text, "  - rbac-users.yaml\n", "  - rbac-apiservices.yaml\n", "  - apiservices.yaml\n")
	case "base/rbac-policy-parameters.yaml":
		return withoutDocument(text, "name: restaurant-apiserver:policy-parameters:restaurant\n")
	case "components/monitoring/prometheusrule.yaml":
		alert, rest, found := strings.Cut(text, "        - alert: RestaurantPricesLate\n")
		_, next, more := strings.Cut(rest, "        - alert: ")
		if !found || !more {
			return "", fmt.Errorf("%s has no alert RestaurantPricesLate before another", name)
		}
		return alert + "        - alert: " + next, nil
	}
	return text, nil
}

// without removes parts of a text that it must have.
func without(text string, parts ...string) (string, error) {
	for _, part := range parts {
		before, after, found := strings.Cut(text, part)
		if !found {
			return "", fmt.Errorf("%q is not there", part)
		}
		text = before + after
	}
	return text, nil
}

func withoutDocument(text, containing string) (string, error) {
	documents := strings.Split(text, "\n---\n")
	for i, document := range documents {
		if strings.Contains(document, containing) {
			return strings.Join(append(documents[:i:i], documents[i+1:]...), "\n---\n"), nil
		}
	}
	return "", fmt.Errorf("no document has %q", containing)
}

// addVersion adds the APIService of a version, and what names it.
func (m *module) addVersion(version string) error {
	header, err := ownHeader()
	if err != nil {
		return err
	}
	own, err := artifacts.Deploy.ReadFile("deploy/base/apiservices.yaml")
	if err != nil {
		return err
	}
	comment, document, _ := strings.Cut(strings.TrimPrefix(string(own), header), "apiVersion:")
	document, _, _ = strings.Cut("apiVersion:"+document, "\n---\n")
	document = strings.NewReplacer("name: v1.", "name: "+version+".", "version: v1\n", "version: "+version+"\n",
		"versionPriority: 30\n", fmt.Sprintf("versionPriority: %d\n", versionPriority(version))).Replace(document) + "\n"
	document = m.rename(document)

	const services = base + "apiservices.yaml"
	apiService := version + "." + m.Group
	if !m.exists(services) {
		if err := m.create(services, []byte(m.HashHeader+m.rename(comment)+document)); err != nil {
			return err
		}
	} else if err := m.edit(services, func(text []byte) ([]byte, error) {
		if strings.Contains(string(text), "name: "+apiService+"\n") {
			return text, nil
		}
		return []byte(strings.TrimRight(string(text), "\n") + "\n---\n" + document), nil
	}); err != nil {
		return err
	}
	if err := m.addAPIServicePermission(header, apiService); err != nil {
		return err
	}
	for _, resource := range []string{"rbac-apiservices.yaml", "apiservices.yaml"} {
		if err := m.edit(base+"kustomization.yaml", addLine("resources", resource)); err != nil {
			return err
		}
	}
	return nil
}

// addAPIServicePermission lets the server change an APIService, which has to trust its
// certificate.
func (m *module) addAPIServicePermission(header, apiService string) error {
	const name = "rbac-apiservices.yaml"
	if !m.exists(base + name) {
		own, err := artifacts.Deploy.ReadFile(path.Join("deploy/base", name))
		if err != nil {
			return err
		}
		var text strings.Builder
		for line := range strings.Lines(strings.TrimPrefix(string(own), header)) {
			if strings.HasPrefix(strings.TrimSpace(line), "- v") {
				if strings.HasPrefix(strings.TrimSpace(line), "- v1.") {
					text.WriteString("      - " + apiService + "\n")
				}
				continue
			}
			text.WriteString(line)
		}
		return m.create(base+name, []byte(m.HashHeader+m.rename(text.String())))
	}
	return m.edit(base+name, addLine("resourceNames", apiService))
}

// readNamespace finds out where the manifests install the server.
func (m *module) readNamespace() error {
	text, err := os.ReadFile(m.file(base + "namespace.yaml"))
	if err != nil {
		return fmt.Errorf("the manifests do not say where the server is installed: %w", err)
	}
	_, rest, _ := strings.Cut(string(text), "\nmetadata:\n  name: ")
	m.Namespace, _, _ = strings.Cut(rest, "\n")
	if m.Namespace == "" {
		return fmt.Errorf("%snamespace.yaml has no namespace", base)
	}
	return nil
}
