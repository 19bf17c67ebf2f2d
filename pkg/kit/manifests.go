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
	"bytes"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"restaurant.programming-kubernetes.info/apiserver/artifacts"
)

// names of this repository's own server, in its manifests.
const (
	ownGroup     = "restaurant.programming-kubernetes.info"
	ownName      = "restaurant"
	ownNamespace = "restaurant-system"
)

// manifests writes the manifests of this repository's own server, with the names of another. Manifests
// of versions and kinds are added with these.
func (w *writer) manifests(d *data, write func(name string, text []byte)) {
	w.fail(fs.WalkDir(artifacts.Deploy, "deploy", func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(file, "deploy/")
		leftOut := slices.Contains(artifacts.Restaurant(), name)
		switch {
		case entry.IsDir() && leftOut:
			return fs.SkipDir
		case entry.IsDir(), leftOut:
			return nil
		}
		text, err := artifacts.Deploy.ReadFile(file)
		if err != nil {
			return err
		}
		adapted := d.rename(withoutLeftOut(name, strings.TrimPrefix(string(text), ownHeader())))
		if !strings.HasSuffix(name, ".json") {
			adapted = d.HashHeader + adapted
		}
		write(d.rename("artifacts/deploy/"+name), []byte(adapted))
		return nil
	}))
}

// withoutLeftOut returns a kustomization without the files that are left out.
func withoutLeftOut(name, text string) string {
	for _, leftOut := range artifacts.Restaurant() {
		if dir, file := path.Split(leftOut); path.Join(dir, "kustomization.yaml") == name {
			text = strings.Replace(text, "  - "+file+"\n", "", 1)
		}
	}
	return text
}

// ownHeader returns the header of all manifests of this repository.
func ownHeader() string {
	text, _ := artifacts.Deploy.ReadFile("deploy/base/namespace.yaml")
	header, _, _ := strings.Cut(string(text), "\n\n")
	return header + "\n"
}

// rename replaces the names of this repository's server.
func (d *data) rename(text string) string {
	inPattern := func(name string) string { return strings.ReplaceAll(name, ".", "[.]") }
	patterns := make([]string, len(d.Groups))
	for i, group := range d.Groups {
		patterns[i] = inPattern(group.Name)
	}
	anyGroup := strings.Join(patterns, "|")
	if len(patterns) > 1 {
		anyGroup = "(" + anyGroup + ")"
	}
	// Generic alerts link to the runbooks of this repository.
	const pages, runbooks = "https://" + library + "/blob/", "/docs/operations/runbooks.md"
	version, _ := released()
	return strings.NewReplacer(
		pages+"main"+runbooks, pages+tagOf(version)+runbooks,
		ownGroup, d.Group.Name,
		inPattern(ownGroup), anyGroup,
		ownNamespace, d.Namespace,
		ownName, d.Server.Package,
		title(ownName), d.Server.Title(),
	).Replace(text)
}

var releases = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9a-z.]+)?$`)

// tagOf returns the tag of a release, and main for a pseudo-version or none.
func tagOf(version string) string {
	if releases.MatchString(version) {
		return version
	}
	return "main"
}

// addVersion adds the APIService of a version, and lists it in the kustomization. The server
// gets the permission to change it, to set its own certificate authority.
func (m *module) addVersion() {
	m.renderOnce("apiservices", &m.data)
	apiService := m.Version + "." + m.Group.Name
	m.renderFiles("apiservice", &m.data, func(name string, document []byte) {
		m.edit(name, func(text []byte) ([]byte, error) {
			switch {
			case bytes.Contains(text, []byte("name: "+apiService+"\n")):
				return text, nil
			case bytes.Contains(text, []byte("apiVersion:")):
				return slices.Concat(bytes.TrimRight(text, "\n"), []byte("\n---\n"), document), nil
			default:
				return slices.Concat(text, document), nil
			}
		})
	})
	m.edit(base+"rbac-apiservices.yaml", addLine("resourceNames", apiService))
	for _, resource := range []string{"rbac-apiservices.yaml", "apiservices.yaml"} {
		m.edit(base+"kustomization.yaml", addLine("resources", resource))
	}
}

// readNamespace reads the server's namespace from the manifests.
func (m *module) readNamespace() {
	_, rest, _ := strings.Cut(string(m.read(base+"namespace.yaml")), "\nmetadata:\n  name: ")
	m.Namespace, _, _ = strings.Cut(rest, "\n")
	if m.Namespace == "" {
		m.failf("%snamespace.yaml does not say in which namespace the server is installed", base)
	}
}
