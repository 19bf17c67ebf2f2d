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
	"cmp"
	"context"
	"fmt"
	"path"
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
	wire func(*module)
	// check refuses the part for kinds that can't have it.
	check func(*module)
	// types is the suffix of the part's types, and versioned is true if it has any.
	types     string
	versioned bool
	// todo says what to fill in.
	todo string
}

func parts() map[string]part {
	return map[string]part{
		"action": {
			check: (*module).checkAction, versioned: true, wire: (*module).wireAction,
			todo: "Say what the action is in pkg/apis/%[1]s/%[2]s_types.go and in each version, then: make generate. Do it in pkg/registry/%[1]s/%[2]s.go",
		},
		"stream": {
			check: (*module).checkStream, versioned: true, types: "Options", wire: (*module).wireSubresource,
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
func CreatePart(ctx context.Context, target Target, options PartOptions) (*Result, error) {
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
	m.Part, m.Verb = options.Name, options.Name
	m.lists = []string{"pkg/webhook/" + m.Group.Package + "/webhooks.go"}
	m.readKind(options)
	if m.err != nil {
		return nil, m.err
	}
	if part.check != nil {
		part.check(m)
	}
	if part.versioned {
		m.writePartTypes(options.Type, part)
	}
	m.render(options.Type, &m.data)
	if m.exists("test/e2e/" + m.Prefix() + m.Part.File() + "_test.go") {
		m.renderOnce("e2e", &m.data)
	}
	part.wire(m)
	if m.changed() {
		m.Todo = append(m.Todo, fmt.Sprintf(part.todo, m.Group.Package, m.Part.File()))
	}
	return m.finish()
}

// writePartTypes writes the types of the part in each version of the kind, and the
// internal type, which it also lists.
func (m *module) writePartTypes(kind string, part part) {
	name := string(m.Part)
	if part.types != "" {
		name = string(m.Kind.Name+m.Part) + part.types
	}
	if file := m.internal() + "/" + m.Part.File() + "_types.go"; !m.exists(file) && m.declares(m.internal(), name) {
		m.failf("%s has a type %s already, which is not in %s: choose another name", m.internal(), name, file)
	}
	for _, version := range m.Kind.Versions {
		m.Version = version
		m.renderOnce("version", &m.data)
		m.render(kind+"-types", &m.data)
	}
	m.Version = ""
	m.edit(m.internal()+"/register.go", editGo(func(s *source) { s.add(arguments("AddKnownTypes"), "&"+name+"{}", nil) }))
}

// readKind reads the kind that a part belongs to.
func (m *module) readKind(options PartOptions) {
	if options.Type == "review" {
		m.readReview(options)
		return
	}
	m.Kind.Name = options.Kind
	if options.Type == "webhook" {
		m.Kind.Name = options.Name
	}
	if m.Kind.Versions = m.versionsWith(m.Kind.Name); len(m.Kind.Versions) == 0 {
		m.failf("there is no kind %s: create it by \"kit create kind %[1]s --versions v1\"", m.Kind.Name)
		return
	}
	m.Kind.Namespaced = textOf(m.declared("Namespaced")) == "true"
	m.Kind.Resource = cmp.Or(textOf(m.declared("Resource")), m.Kind.Name.Plural())
	m.Kind.Status = m.hasField(m.internal(), string(m.Kind.Name), "Status")
	m.Conditions = m.hasField(m.internal(), string(m.Kind.Name+"Status"), "Conditions")
	m.ObservedGeneration = m.hasField(m.internal(), string(m.Kind.Name+"Status"), "ObservedGeneration")
	m.Described = m.hasField(m.internal(), string(m.Kind.Name+"Spec"), "Description")
}

// readReview returns the kind of a review, which may not exist yet.
func (m *module) readReview(options PartOptions) {
	if len(m.served) == 0 {
		m.failf("the group has no version yet: create a kind first, by \"kit create kind\"")
		return
	}
	m.Kind = KindOptions{Name: options.Name, Namespaced: options.Namespaced, Versions: options.Versions}
	if len(m.Kind.Versions) == 0 {
		// An existing review stays in its versions.
		m.Kind.Versions = m.versionsWith(options.Name)
	}
	if len(m.Kind.Versions) == 0 {
		m.Kind.Versions = m.served[:1]
	}
	if unknown := slices.IndexFunc(m.Kind.Versions, func(v string) bool { return !slices.Contains(m.served, v) }); unknown >= 0 {
		m.failf("the group has no version %s, but %s", m.Kind.Versions[unknown], strings.Join(m.served, ", "))
	}
	m.fail(m.Kind.complete())
}

// checkSubresource refuses the names of Kubernetes' own subresources.
func (m *module) checkSubresource() {
	if slices.Contains([]string{"status", "scale"}, m.Verb.File()) {
		m.failf("the name %s is for /%s, as Kubernetes defines it: choose another", m.Verb, m.Verb.File())
	}
}

// checkStream also refuses the name of another kind's part.
func (m *module) checkStream() {
	m.checkSubresource()
	if file := m.ofAnother(); file != "" {
		m.failf("%s is not about %s: choose another name, such as %s%s", file, m.Kind.Name, m.Part, m.Kind.Name)
	}
}

// checkAction gives the type of an action its kind's name if another kind has an action of the same name.
func (m *module) checkAction() {
	m.checkSubresource()
	if m.ofAnother() != "" {
		m.Part = m.Kind.Name + m.Verb
	}
}

// ofAnother returns the file of the part if it is about another kind.
func (m *module) ofAnother() string {
	file := fmt.Sprintf("pkg/registry/%s/%s.go", m.Group.Package, m.Part.File())
	if text := m.read(file); len(text) > 0 && !bytes.Contains(text, []byte(fmt.Sprintf("*%s.%s,", m.Group.Package, m.Kind.Name))) {
		return file
	}
	return ""
}

func (m *module) checkPackage() {
	if m.Part.File() == m.Group.Package || checkName(m.Part.File()) != nil {
		m.failf("the name %s means something else in the code: choose another", m.Part)
	}
}

func (m *module) checkController() {
	if !m.Conditions {
		m.failf("the kind %s has no conditions in its status, which a controller would write: add them, as \"kit create kind --status\" does", m.Kind.Name)
	}
	if dir, _ := m.versionPackage(m.Kind.Preferred()); !m.tagged(dir, string(m.Kind.Name), "genclient") {
		m.failf("the kind %s has no Go clients: add the tag +genclient to its type in %s, and run \"kit generate\"", m.Kind.Name, dir)
	}
	m.checkPackage()
}

// wireSubresource adds the part to the kind's subresources, and its role to the manifests.
func (m *module) wireSubresource() {
	field := fmt.Sprintf("map[string]registry.Subresource[*%s.%s]", m.Group.Package, m.Kind.Name)
	element := fmt.Sprintf("%q: %s()", m.Verb.File(), m.Part.Var(m.Group.Package))
	m.edit(m.fileWith("pkg/registry/"+m.Group.Package, string(m.Kind.Name)), editGo(func(s *source) {
		s.addToField(string(m.Kind.Name), "Subresources", field, element)
	}))
	m.wireRole()
}

func (m *module) wireRole() {
	m.edit(base+"kustomization.yaml", addLine("resources", m.Roles()+".yaml"))
}

// wireAction also adds a method to the clients of the kind.
func (m *module) wireAction() {
	tag := fmt.Sprintf("+genclient:method=%s,verb=create,subresource=%s,input=%[3]s,result=%[3]s", m.Verb, m.Verb.File(), m.Part)
	for _, version := range m.Kind.Versions {
		if dir, _ := m.versionPackage(version); m.tagged(dir, string(m.Kind.Name), "genclient") {
			m.edit(m.fileOfType(dir, string(m.Kind.Name)), editGo(func(s *source) { s.addTag(string(m.Kind.Name), tag) }))
		}
	}
	m.wireSubresource()
}

func (m *module) wirePlugin() {
	m.edit(m.fileWith("pkg/groups/"+m.Group.Package, "Group"), editGo(func(s *source) {
		s.use("", library+"/pkg/admission")
		s.use("", m.packagePath(path.Join("pkg/admission/plugin", m.Group.Package, m.Part.File())))
		s.addToField("Group", "Admission", "[]admission.Plugin", m.Part.File()+".Plugin()")
	}))
}

// wireController adds the controller to the group's Runtime, which the first controller
// creates.
func (m *module) wireController() {
	m.Version = m.Kind.Preferred()
	m.renderOnce("clients", &m.data)
	dir := "pkg/groups/" + m.Group.Package
	file := m.fileWith(dir, "Group")
	runtime := textOf(m.fieldOf(dir, "Group", "Runtime"))
	if runtime == "" {
		runtime = "connect"
		m.renderOnce("runtime", &m.data)
		m.edit(file, editGo(func(s *source) { s.add(elements("Group"), "Runtime: connect", nil) }))
	}
	m.edit(m.fileWith(dir, runtime), editGo(func(s *source) {
		s.use("", m.packagePath(path.Join("pkg/controller", m.Group.Package, m.Part.File())))
		s.addToField(runtime, "Controllers", "[]registry.Controller", m.Part.File()+".New(client, informers)")
	}))
}

func (m *module) wireWebhook() {
	m.render("webhook-kind", &m.data)
	m.edit("pkg/webhook/"+m.Group.Package+"/webhooks.go", editGo(func(s *source) {
		s.add(elements("validateObject"), "validate"+string(m.Kind.Name), nil)
	}))
}
