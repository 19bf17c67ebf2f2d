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
	"fmt"
	"path"
)

// wireSubresource adds the part to the kind's subresources, and its role to the manifests.
func (m *module) wireSubresource() error {
	file, err := m.fileWith("pkg/registry/"+m.Group.Package, string(m.Kind.Name))
	if err != nil {
		return err
	}
	field := fmt.Sprintf("map[string]registry.Subresource[*%s.%s]", m.Group.Package, m.Kind.Name)
	element := fmt.Sprintf("%q: %s()", m.Part.File(), m.Part.Var(m.Group.Package))
	if err := m.edit(file, editGo(
		func(s *source) error { return s.addToField(string(m.Kind.Name), "Subresources", field, element) },
	)); err != nil {
		return err
	}
	return m.wireRole()
}

func (m *module) wireRole() error {
	return m.edit(base+"kustomization.yaml", addLine("resources", m.Roles()+".yaml"))
}

// wireAction also adds a method to the clients of the kind.
func (m *module) wireAction() error {
	tag := fmt.Sprintf("+genclient:method=%s,verb=create,subresource=%s,input=%[1]s,result=%[1]s", m.Part, m.Part.File())
	for _, version := range m.Kind.Versions {
		dir, _ := m.versionPackage(version)
		if tagged, err := m.tagged(dir, string(m.Kind.Name), "genclient"); err != nil || !tagged {
			return cmp.Or(err, m.wireSubresource())
		}
		file, err := m.fileOfType(dir, string(m.Kind.Name))
		if err != nil {
			return err
		}
		if err := m.edit(file, editGo(func(s *source) error { return s.addTag(string(m.Kind.Name), tag) })); err != nil {
			return err
		}
	}
	return m.wireSubresource()
}

func (m *module) wirePlugin() error {
	file, err := m.fileWith("pkg/groups/"+m.Group.Package, "Group")
	if err != nil {
		return err
	}
	plugin := path.Join("pkg/admission/plugin", m.Group.Package, m.Part.File())
	return m.edit(file, editGo(
		func(s *source) error { return s.use("", library+"/pkg/admission") },
		func(s *source) error { return s.use("", m.packagePath(plugin)) },
		func(s *source) error {
			return s.addToField("Group", "Admission", "[]admission.Plugin", m.Part.File()+".Plugin()")
		},
	))
}

// wireController adds the controller to the group's Runtime, which the first controller
// creates.
func (m *module) wireController() error {
	m.Version = m.Kind.Preferred()
	if err := m.renderOnce("clients", &m.data); err != nil {
		return err
	}
	file, err := m.fileWith("pkg/groups/"+m.Group.Package, "Group")
	if err != nil {
		return err
	}
	runtime, err := m.fieldOf("pkg/groups/"+m.Group.Package, "Group", "Runtime")
	if err != nil {
		return err
	}
	if runtime == "" {
		runtime = "connect"
		if err := m.renderOnce("runtime", &m.data); err != nil {
			return err
		}
		if err := m.edit(file, editGo(func(s *source) error { return s.add(elements("Group"), "Runtime: connect", nil) })); err != nil {
			return err
		}
	}
	if file, err = m.fileWith("pkg/groups/"+m.Group.Package, runtime); err != nil {
		return err
	}
	return m.edit(file, editGo(
		func(s *source) error {
			return s.use("", m.packagePath(path.Join("pkg/controller", m.Group.Package, m.Part.File())))
		},
		func(s *source) error {
			return s.addToField(runtime, "Controllers", "[]registry.Controller", m.Part.File()+".New(client, informers)")
		},
	))
}

func (m *module) wireWebhook() error {
	if err := m.render("webhook-kind", &m.data); err != nil {
		return err
	}
	return m.edit("pkg/webhook/"+m.Group.Package+"/webhooks.go", editGo(
		func(s *source) error { return s.add(elements("validateObject"), "validate"+string(m.Kind.Name), nil) },
	))
}
