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
	"slices"
	"strings"
)

// PartOptions are the options of CreatePart.
type PartOptions struct {
	// Type is action, stream, review, plugin, controller or webhook.
	Type string
	// Name is the part's name in Go, such as Bake. A webhook has the name of its kind.
	Name Name
	// Kind is the kind that the part belongs to. A review is a kind of its own.
	Kind Name
	// Versions are the versions of a review, by default the group's preferred one.
	// Namespaced says whether a review is about a namespace.
	Versions   []string
	Namespaced bool
}

// part is a type of parts.
type part struct {
	// wire adds the part to lists.
	wire func(*module) error
	// check returns an error if a kind can't have the part.
	check func(*module) error
	// types is the suffix of the part's types, and versioned is true if it has any.
	types     string
	versioned bool
	// todo says what to fill in.
	todo string
}

func parts() map[string]part {
	return map[string]part{
		"action": {
			versioned: true, wire: (*module).wireAction,
			todo: "Say what the action is in pkg/apis/%[1]s/%[2]s_types.go and in each version, then: make generate. Do it in pkg/registry/%[1]s/%[2]s.go",
		},
		"stream": {
			versioned: true, types: "Options", wire: (*module).wireSubresource,
			todo: "Say in a line what there is to know, in pkg/registry/%[1]s/%[2]s.go",
		},
		"review": {
			versioned: true, wire: (*module).listKind,
			todo: "Say what is asked in pkg/apis/%[1]s/%[2]s_types.go and in each version, then: make generate. Answer it in pkg/registry/%[1]s/%[2]s.go",
		},
		"plugin": {
			check: (*module).checkPackage, wire: (*module).wirePlugin,
			todo: "Write what is refused, or changed, in pkg/admission/plugin/%[1]s/%[2]s/admission.go",
		},
		"controller": {
			check: (*module).checkController, wire: (*module).wireController,
			todo: "Write what the controller does in pkg/controller/%[1]s/%[2]s/controller.go",
		},
		"webhook": {
			wire: (*module).wireWebhook,
			todo: "Call what admission plugins do in pkg/webhook/%[1]s/webhooks.go",
		},
	}
}

// CreatePart writes an action, a stream, a review, an admission plugin, a controller or a
// webhook of a group.
func CreatePart(ctx context.Context, target Target, options PartOptions) (result *Result, err error) {
	part, known := parts()[options.Type]
	if !known {
		return nil, fmt.Errorf("the kit writes no %s", options.Type)
	}
	if !kindName.MatchString(string(options.Name)) {
		return nil, fmt.Errorf("%q can't be the name of %s: use letters and digits, beginning with a capital", options.Name, withArticle(options.Type))
	}
	if namesInCode()["Test"+string(options.Name)] {
		return nil, fmt.Errorf("the name %s means something else in the tests: choose another", options.Name)
	}
	m, err := open(ctx, target)
	if err != nil {
		return nil, err
	}
	defer func() { err = m.takeBack(err) }()
	m.Part = options.Name
	m.lists = []string{"pkg/webhook/" + m.Group.Package + "/webhooks.go"}
	if err := m.readKind(options); err != nil {
		return nil, err
	}
	if part.check != nil {
		if err := part.check(m); err != nil {
			return nil, err
		}
	}
	if part.versioned {
		if err := m.writePartTypes(options.Type, part); err != nil {
			return nil, err
		}
	}
	if err := m.render(options.Type, &m.data); err != nil {
		return nil, err
	}
	if m.exists("test/e2e/" + m.Prefix() + m.Part.File() + "_test.go") {
		if err := m.renderOnce("e2e", &m.data); err != nil {
			return nil, err
		}
	}
	if err := part.wire(m); err != nil {
		return nil, err
	}
	if m.changed() {
		m.Todo = append(m.Todo, fmt.Sprintf(part.todo, m.Group.Package, m.Part.File()))
	}
	return &m.Result, nil
}

// writePartTypes writes the types of the part in each version of the kind, and the
// internal type, which it also lists.
func (m *module) writePartTypes(kind string, part part) error {
	name := string(m.Part)
	if part.types != "" {
		name = string(m.Kind.Name+m.Part) + part.types
	}
	internal := m.apis + "/" + m.Group.Package
	if declared, err := m.declares(internal, name); err != nil {
		return err
	} else if file := internal + "/" + m.Part.File() + "_types.go"; declared && !m.exists(file) {
		return fmt.Errorf("%s has a type %s already, which is not in %s: choose another name", internal, name, file)
	}
	for _, version := range m.Kind.Versions {
		m.Version = version
		if err := m.renderOnce("version", &m.data); err != nil {
			return err
		}
		if err := m.render(kind+"-types", &m.data); err != nil {
			return err
		}
	}
	m.Version = ""
	return m.edit(internal+"/register.go", editGo(
		func(s *source) error { return s.add(arguments("AddKnownTypes"), "&"+name+"{}", nil) },
	))
}

// readKind reads the kind that a part belongs to.
func (m *module) readKind(options PartOptions) error {
	if options.Type == "review" {
		if len(m.served) == 0 {
			return errors.New("the group has no version yet: create a kind first, by \"kit create kind\"")
		}
		m.Kind = KindOptions{Name: options.Name, Namespaced: options.Namespaced, Versions: options.Versions}
		if len(m.Kind.Versions) == 0 {
			// An existing review stays in its versions.
			if err := m.findVersions(); err != nil {
				m.Kind.Versions = m.served[:1]
			}
		}
		if unknown := slices.IndexFunc(m.Kind.Versions, func(v string) bool { return !slices.Contains(m.served, v) }); unknown >= 0 {
			return fmt.Errorf("the group has no version %s, but %s", m.Kind.Versions[unknown], strings.Join(m.served, ", "))
		}
		return m.Kind.complete()
	}
	m.Kind.Name = options.Kind
	if options.Type == "webhook" {
		m.Kind.Name = options.Name
	}
	if err := m.findVersions(); err != nil {
		return err
	}
	var namespaced string
	for key, value := range map[string]*string{"Resource": &m.Kind.Resource, "Namespaced": &namespaced} {
		var err error
		if *value, err = m.declared(key); err != nil {
			return err
		}
	}
	m.Kind.Namespaced = namespaced == "true"
	m.Kind.Resource = cmp.Or(strings.Trim(m.Kind.Resource, `"`), m.Kind.Name.Plural())
	internal := m.apis + "/" + m.Group.Package
	for _, field := range []struct {
		of   Name
		name string
		has  *bool
	}{
		{m.Kind.Name, "Status", &m.Kind.Status},
		{m.Kind.Name + "Status", "Conditions", &m.Conditions},
		{m.Kind.Name + "Status", "ObservedGeneration", &m.ObservedGeneration},
		{m.Kind.Name + "Spec", "Description", &m.Described},
	} {
		var err error
		if *field.has, err = m.hasField(internal, string(field.of), field.name); err != nil {
			return err
		}
	}
	return nil
}

// findVersions finds the versions that have the kind.
func (m *module) findVersions() error {
	var err error
	if m.Kind.Versions, err = m.versionsWith(m.Kind.Name); err != nil {
		return err
	}
	if len(m.Kind.Versions) == 0 {
		return fmt.Errorf("there is no kind %s: create it by \"kit create kind %[1]s --versions v1\"", m.Kind.Name)
	}
	return nil
}

func (m *module) checkPackage() error {
	if m.Part.File() == m.Group.Package || checkName(m.Part.File()) != nil {
		return fmt.Errorf("the name %s means something else in the code: choose another", m.Part)
	}
	return nil
}

func (m *module) checkController() error {
	if !m.Conditions {
		return fmt.Errorf("the kind %s has no conditions in its status, which a controller would write: add them, as \"kit create kind --status\" does", m.Kind.Name)
	}
	dir, _ := m.versionPackage(m.Kind.Preferred())
	if tagged, err := m.tagged(dir, string(m.Kind.Name), "genclient"); err != nil || !tagged {
		return cmp.Or(err, fmt.Errorf("the kind %s has no Go clients: add the tag +genclient to its type in %s, and run \"kit generate\"", m.Kind.Name, dir))
	}
	return m.checkPackage()
}
