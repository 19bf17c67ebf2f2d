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

package codegen

import (
	"fmt"
	"io/fs"
	"iter"
	"path"
	"regexp"
	"slices"
	"strings"

	apiversion "k8s.io/apimachinery/pkg/version"
	"k8s.io/kube-openapi/pkg/util"
)

// API is one directory "apis" of a module.
type API struct {
	// Dir is its path in the module, with slashes.
	Dir string
	// Groups are those in the directory.
	Groups []Group
}

// Group is an API group in a directory "apis".
type Group struct {
	// Name is the name of the directory, such as "restaurant".
	Name string
	// Domain is the group's name in apiVersion, from the tag +groupName of one of its
	// packages.
	Domain string
	// GoName is the group's name in clients, from the tag +groupGoName, or empty.
	GoName string
	// Internal is true if the directory has internal types, besides the types of versions.
	Internal bool
	// Versions are the versions of the group, the preferred one first.
	Versions []Version
}

// Version is a version of a Group.
type Version struct {
	// Name is the name of the directory, such as "v1beta1".
	Name string
	// ModelPackage is the prefix of the types in OpenAPI documents, by the tag
	// k8s:openapi-model-package. It is empty if the prefix follows from the import path.
	ModelPackage string
	// Protobuf, OpenAPI and Clients are true if tags of the package ask for them.
	Protobuf, OpenAPI, Clients bool
}

// generated returns the directory of the code for all groups of the API that is not beside
// the types.
func (a API) generated() string { return path.Join(path.Dir(a.Dir), "generated") }

// versions yields the directory of each version of each API, with slashes.
func versions(apis ...API) iter.Seq2[string, Version] {
	return func(yield func(string, Version) bool) {
		for _, api := range apis {
			for _, group := range api.Groups {
				for _, version := range group.Versions {
					if !yield(path.Join(api.Dir, group.Name, version.Name), version) {
						return
					}
				}
			}
		}
	}
}

// versionName matches the names of versions in Kubernetes.
var versionName = regexp.MustCompile(`^v[1-9]\d*((alpha|beta)[1-9]\d*)?$`)

// Find returns the APIs of a module. Like Go, it leaves out other modules, and directories
// named testdata or vendor, or with a name that begins with a dot or an underscore.
func Find(module fs.FS) ([]API, error) {
	var found []API
	err := fs.WalkDir(module, ".", func(dir string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !entry.IsDir() || dir == ".":
			return nil
		case ignored(module, dir):
			return fs.SkipDir
		case entry.Name() != "apis":
			return nil
		}
		groups, err := findGroups(module, dir)
		if err != nil {
			return err
		}
		if len(groups) > 0 {
			found = append(found, API{Dir: dir, Groups: groups})
		}
		return fs.SkipDir
	})
	return found, err
}

func ignored(module fs.FS, dir string) bool {
	name := path.Base(dir)
	if name == "testdata" || name == "vendor" || strings.ContainsAny(name[:1], "._") {
		return true
	}
	_, err := fs.Stat(module, path.Join(dir, "go.mod"))
	return err == nil
}

func findGroups(module fs.FS, apis string) (groups []Group, err error) {
	dirs, err := subdirectories(module, apis)
	if err != nil {
		return nil, err
	}
	for _, name := range dirs {
		dir := path.Join(apis, name)
		internal, err := fs.Glob(module, path.Join(dir, "*.go"))
		if err != nil {
			return nil, err
		}
		tags, err := readTags(module, dir)
		if err != nil {
			return nil, err
		}
		group := Group{Name: name, Internal: len(internal) > 0}
		names, err := subdirectories(module, dir)
		if err != nil {
			return nil, err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return !versionName.MatchString(name) })
		slices.SortFunc(names, func(a, b string) int { return apiversion.CompareKubeAwareVersionStrings(b, a) })
		for _, name := range names {
			ofVersion, err := readTags(module, path.Join(dir, name))
			if err != nil {
				return nil, err
			}
			group.Versions = append(group.Versions, newVersion(name, ofVersion))
			tags = append(tags, ofVersion...)
		}
		// One package with the tag is enough.
		group.Domain, group.GoName = valueOf(tags, "groupName"), valueOf(tags, "groupGoName")
		switch {
		case group.Domain == "" && len(group.Versions) == 0:
			continue
		case group.Domain == "":
			return nil, fmt.Errorf("%s has no name: write the comment // +groupName=<name of the API group> above the package clause of its types", dir)
		}
		groups = append(groups, group)
	}
	return groups, nil
}

// valueOf returns the value of the first tag with a name.
func valueOf(tags []string, name string) string {
	for _, tag := range tags {
		if value, found := strings.CutPrefix(tag, name+"="); found {
			return value
		}
	}
	return ""
}

func subdirectories(module fs.FS, dir string) (names []string, err error) {
	entries, err := fs.ReadDir(module, dir)
	for _, entry := range entries {
		if entry.IsDir() {
			names = append(names, entry.Name())
		}
	}
	return names, err
}

// newVersion returns a version whose package has these tags.
func newVersion(name string, tags []string) Version {
	version := Version{Name: name}
	for _, tag := range tags {
		switch name, value, _ := strings.Cut(tag, "="); name {
		case "k8s:openapi-model-package":
			version.ModelPackage = value
		case "k8s:openapi-gen":
			version.OpenAPI = value == "true"
		case "k8s:protobuf-gen":
			version.Protobuf = value == "package"
		case "genclient":
			version.Clients = true
		}
	}
	return version
}

// tagLine is a comment that is a tag.
var tagLine = regexp.MustCompile(`(?m)^\s*// ?\+(\S+)`)

// readTags returns the tags of a package without "+", in the order of its files.
func readTags(module fs.FS, dir string) ([]string, error) {
	files, err := fs.Glob(module, path.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	var tags []string
	for _, file := range slices.Sorted(slices.Values(files)) {
		text, err := fs.ReadFile(module, file)
		if err != nil {
			return nil, fmt.Errorf("looking for tags: %w", err)
		}
		for _, match := range tagLine.FindAllSubmatch(text, -1) {
			tags = append(tags, string(match[1]))
		}
	}
	return tags, nil
}

// modelNames returns the prefixes of the version's types in OpenAPI documents, and in
// generators. The latter follows from the import path.
func (v Version) modelNames(importPath string) (model, byPath string) {
	byPath = util.ToRESTFriendlyName(importPath) + "."
	if v.ModelPackage == "" {
		return byPath, byPath
	}
	return v.ModelPackage + ".", byPath
}
