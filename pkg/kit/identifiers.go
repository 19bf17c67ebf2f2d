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
	"fmt"
	"go/ast"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// propertyName matches the JSON names that fit into tags and can become Go names. encoding/json ignores a tag with
// other numbers than digits, such as m².
var propertyName = regexp.MustCompile(`^[\pL\p{Nd}_$./-]*[\pL\p{Nd}][\pL\p{Nd}_$./-]*$`)

// camel joins the words of a name, each with a capital first letter.
func camel(name string) string {
	var b strings.Builder
	upper := true
	for _, c := range name {
		switch {
		case !unicode.IsLetter(c) && !unicode.IsDigit(c):
			upper = true
		case upper:
			b.WriteRune(unicode.ToUpper(c))
			upper = false
		default:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// goName returns the exported identifier for a name: ClusterIP for clusterIP.
func goName(name string) string {
	if name := camel(name); ast.IsExported(name) {
		return name
	}
	return "X" + camel(name)
}

// scope has a set of distinct names.
type scope struct {
	// same maps a name to the form that must be unique.
	same func(string) string
	// taken has the owner of each name, by that form.
	taken map[string]string
}

func newScope(same func(string) string) *scope {
	return &scope{same: same, taken: map[string]string{}}
}

// reserve makes names unavailable to other owners.
func (s *scope) reserve(owner string, names ...string) {
	for _, name := range names {
		s.taken[s.same(name)] = owner
	}
}

// name returns a free name for an owner, like the wanted one. It is the same each time, so that the types of
// all versions agree.
func (s *scope) name(owner, wanted string) string {
	name := wanted
	for i := 2; s.isTaken(name, owner); i++ {
		name = fmt.Sprintf("%s%d", strings.TrimRight(wanted, "0123456789"), i)
	}
	s.reserve(owner, name)
	return name
}

// isTaken reports whether a name is unavailable to an owner. Apply configurations have a method With… for each
// field, and a type …ApplyConfiguration for each type.
func (s *scope) isTaken(name, owner string) bool {
	const with, configuration = "With", "ApplyConfiguration"
	for _, other := range []string{name, with + name, strings.TrimPrefix(name, with), name + configuration, strings.TrimSuffix(name, configuration)} {
		if by, taken := s.taken[s.same(other)]; taken && by != owner {
			return true
		}
	}
	return false
}

// identifiers are the names in the packages of a group.
type identifiers struct {
	// types has the names of types and constants. Each type has files with its name in lower case.
	types *scope
	// fields has the names of fields, by the path of their struct.
	fields map[string]*scope
}

// newIdentifiers returns the names in a group that has kinds and other declared names.
func newIdentifiers(kinds []Name, declared ...string) *identifiers {
	names := &identifiers{types: newScope(strings.ToLower), fields: map[string]*scope{}}
	names.types.reserve("the package", slices.Concat(declared, generatedNames(), []string{"Kind", "Kinds"})...)
	for _, kind := range kinds {
		names.types.reserve("kinds", string(kind), string(kind)+"List")
	}
	for _, kind := range kinds {
		names.typeName(string(kind)+".spec", string(kind)+"Spec")
		names.typeName(string(kind)+".status", string(kind)+"Status")
	}
	return names
}

// typeName returns the name of the type of a field. Generators find no type by a name with letters beyond ASCII.
func (n *identifiers) typeName(path, wanted string) string {
	return n.types.name(path, strings.Map(func(c rune) rune {
		if c > unicode.MaxASCII {
			return -1
		}
		return c
	}, wanted))
}

// methods owns the names that no field can have. No property can have this name.
const methods = "generated methods"

// fieldNames returns the Go names of the fields of a struct, by their JSON names.
func (n *identifiers) fieldNames(path string, properties []string) map[string]string {
	fields := n.fields[path]
	if fields == nil {
		fields = newScope(strings.Clone)
		fields.reserve(methods, "DeepCopy", "DeepCopyInto", "IsApplyConfiguration", "OpenAPIModelName", "SwaggerDoc")
		if !strings.Contains(path, ".") {
			fields.reserve(methods, promoted()...)
		}
		n.fields[path] = fields
	}
	names := map[string]string{}
	// Conventional names are first, so that they get the Go names that resemble them.
	for _, fine := range []bool{true, false} {
		for _, property := range slices.Sorted(slices.Values(properties)) {
			if fieldName.MatchString(property) == fine {
				names[property] = fields.name(property, fieldIdentifier(fields, property))
			}
		}
	}
	return names
}

// fieldIdentifier returns the wanted name of a field, with a suffix if a method has that name.
func fieldIdentifier(fields *scope, property string) string {
	name := goName(property)
	if fields.taken[name] == methods {
		return name + "Value"
	}
	return name
}

// promoted returns the fields and methods that each kind gets from its embedded metadata.
func promoted() []string {
	// Apply configurations have the two getters.
	names := []string{"DeepCopyObject", "GetAPIVersion", "GetKind"}
	for _, embedded := range []reflect.Type{reflect.TypeFor[metav1.TypeMeta](), reflect.TypeFor[metav1.ObjectMeta]()} {
		names = append(names, embedded.Name())
		for _, field := range reflect.VisibleFields(embedded) {
			names = append(names, field.Name)
		}
		for method := range reflect.PointerTo(embedded).Methods() {
			names = append(names, method.Name)
		}
	}
	return names
}
