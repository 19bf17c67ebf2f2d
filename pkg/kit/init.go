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
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
)

// InitOptions are the options of Init.
type InitOptions struct {
	// Dir is the directory of the module. It is created if it does not exist.
	Dir string
	// Group is the name of the API group, such as bakery.example.com.
	Group string
	// Module is the path of the Go module.
	Module string
	// Name is the name of the group's packages, by default the first label of Group.
	Name string
	// Namespace is where the manifests install the server, by default <Name>-system.
	Namespace string
	// Owner is the copyright holder, for the licence header.
	Owner string
	// Replace is the directory of a checkout of the library, to use instead of a released
	// version.
	Replace string
}

// complete fills in defaults, and returns the group.
func (o *InitOptions) complete() (group apiGroup, err error) {
	if group, err = newGroup(o.Group, o.Name); err != nil {
		return group, err
	}
	o.Name = group.Package
	if o.Module == "" || !modulePath.MatchString(o.Module) {
		return group, fmt.Errorf("%q can't be the path of a Go module: name one by --module, such as example.com/bakery", o.Module)
	}
	o.Namespace = cmp.Or(o.Namespace, o.Name+"-system")
	if !regexp.MustCompile(`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`).MatchString(o.Namespace) {
		return group, fmt.Errorf("%q can't be a namespace: use small letters, digits and hyphens, at most 63", o.Namespace)
	}
	o.Owner = cmp.Or(o.Owner, "The "+title(o.Name)+" API Server Authors")
	o.Dir, err = filepath.Abs(o.Dir)
	return group, err
}

// Init writes a module with a server for an API group that has no kinds yet.
func Init(ctx context.Context, options InitOptions) (*Result, error) {
	group, err := options.complete()
	if err != nil {
		return nil, err
	}
	made := newWriter(ctx, options.Dir)
	w := &made
	if w.exists("go.mod") {
		goMod, err := w.goMod(ctx)
		if err != nil {
			return nil, err
		}
		if path := goMod.Module.Path; path != options.Module {
			return nil, fmt.Errorf("%s is the module %s already: pass --module=%[2]s, or choose another directory", options.Dir, path)
		}
	} else {
		w.writeGoMod(options)
	}
	d := &data{
		Owner: options.Owner, Library: library, Module: options.Module, LintVersion: lintVersion,
		Group: group, Groups: w.groupsWith(group), Server: group, Namespace: options.Namespace,
	}
	if !w.exists("hack/boilerplate.go.txt") {
		w.render("header", d)
	}
	d.setHeader(string(w.read("hack/boilerplate.go.txt")))
	// Other commands add to these files.
	w.lists = []string{"cmd/apiserver/main.go", base + "kustomization.yaml"}
	for _, group := range d.Groups {
		w.lists = append(w.lists, "pkg/apis/"+group.Package+"/register.go")
	}
	recorded := w.readSums()
	w.initial(d, func(name string, text []byte) {
		if !w.exists(name) {
			recorded[name] = sum(text)
		}
		w.create(name, text)
	})
	w.writeSums(recorded)
	if w.err == nil && w.changed() {
		if _, err := w.goCommand(ctx, "mod", "tidy"); err != nil {
			w.failf("the modules that the server needs can't be had: %w", err)
		}
	}
	w.Todo = append(w.Todo, `Create a kind: go tool kit create kind NAME --versions v1`)
	return w.finish()
}

// groupsWith returns the groups of the module, or only this one if it has none. A server
// that is named after another group is an error.
func (w *writer) groupsWith(group apiGroup) []apiGroup {
	groups := w.findGroups()
	if len(groups) == 0 {
		return []apiGroup{group}
	}
	if server := w.findServer(groups); !server.is(group) {
		w.failf("%s has a server for the group %s already: add another group by \"kit create group\"", w.Dir, server.Name)
	}
	return groups
}

// initial writes the files of a module without kinds.
func (w *writer) initial(d *data, write func(name string, text []byte)) {
	w.renderFiles("init", d, write)
	for _, group := range d.Groups {
		internal := *d
		internal.Group = group
		w.renderFiles("internal", &internal, write)
	}
	w.manifests(d, write)
}

// writeGoMod writes a go.mod that "go mod tidy" completes.
func (w *writer) writeGoMod(options InitOptions) {
	version := "v0.0.0"
	if options.Replace == "" {
		var err error
		version, err = released()
		w.fail(err)
	}
	text := fmt.Sprintf("module %s\n\ngo 1.26.0\n\ntool (\n\t%[2]s/cmd/kit\n\t%[2]s/test/controlplane/local\n)\n\nrequire %[2]s %[3]s\n", options.Module, library, version)
	if options.Replace != "" {
		replace, err := filepath.Abs(options.Replace)
		w.fail(err)
		goMod, _ := os.ReadFile(filepath.Join(replace, "go.mod"))
		if !strings.HasPrefix(string(goMod), "module "+library+"\n") {
			w.failf("%s is not a checkout of %s: name the directory of its go.mod by --replace", replace, library)
		}
		text += fmt.Sprintf("\nreplace %s => %s\n", library, replace)
		// "go mod tidy" removes the unneeded checksums, and looks up none of these.
		goSum, _ := os.ReadFile(filepath.Join(replace, "go.sum"))
		w.create("go.sum", goSum)
	}
	w.create("go.mod", []byte(text))
}

// released returns the version of the library that this program is built from.
func released() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, module := range append(info.Deps, &info.Main) {
			if module.Path == library && module.Replace == nil && strings.HasPrefix(module.Version, "v") && !strings.Contains(module.Version, "+dirty") {
				return module.Version, nil
			}
		}
	}
	return "", errors.New("this kit was built from a checkout, so there is no version of it to require: name the checkout by --replace")
}
