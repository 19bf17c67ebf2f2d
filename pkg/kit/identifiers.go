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
	"go/ast"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// propertyName is what a name in JSON may be, so that tags can hold it and Go can name it.
var propertyName = regexp.MustCompile(`^[\pL\pN_$./-]*[\pL\p{Nd}][\pL\pN_$./-]*$`)

// camel joins the words of a name, each with a capital at its beginning. A word begins after a digit, too:
// protobuf makes V1Beta2 of v1beta2.
func camel(name string) string {
	var b strings.Builder
	upper := true
	for _, c := range name {
		switch {
		case !unicode.IsLetter(c) && !unicode.IsDigit(c):
			upper = true
		case upper:
			b.WriteRune(unicode.ToUpper(c))
			upper = unicode.IsDigit(c)
		default:
			b.WriteRune(c)
			upper = unicode.IsDigit(c)
		}
	}
	return b.String()
}

// goName is the exported identifier that resembles a name: ClusterIP for clusterIP.
func goName(name string) string {
	if name := camel(name); ast.IsExported(name) {
		return name
	}
	return "X" + camel(name)
}

var protoIdentifier = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]*$`)

// protoName is the identifier that resembles a name in protobuf, which has ASCII letters only: the
// name itself if it can be.
func protoName(name string) string {
	if protoIdentifier.MatchString(name) {
		return name
	}
	ascii := regexp.MustCompile(`[^A-Za-z0-9]`).ReplaceAllString(goName(name), "")
	if !protoIdentifier.MatchString(ascii) {
		ascii = "X" + ascii
	}
	return lowerFirst(ascii)
}

// valueName is the end of the name of a constant.
func valueName(value string) string {
	if value == "" {
		return "Empty"
	}
	return cmp.Or(camel(value), "Symbol")
}

// scope has names that differ from each other.
type scope struct {
	// same are the names that may not be used twice in the same form.
	same func(string) string
	// taken are the owners of names.
	taken map[string]string
}

func newScope(same func(string) string) *scope {
	return &scope{same: same, taken: map[string]string{}}
}

// reserve keeps names from being given away.
func (s *scope) reserve(owner string, names ...string) {
	for _, name := range names {
		s.taken[s.same(name)] = owner
	}
}

// name returns the name of an owner, which resembles what is wanted. It is the same each time, so
// that the types of all versions agree.
func (s *scope) name(owner, wanted string) string {
	name := wanted
	for i := 2; s.isTaken(name, owner); i++ {
		name = fmt.Sprintf("%s%d", strings.TrimRight(wanted, "0123456789"), i)
	}
	s.reserve(owner, name)
	return name
}

// isTaken is true if a name can't be an owner's. Apply configurations have a method With… for each field.
func (s *scope) isTaken(name, owner string) bool {
	for _, other := range []string{name, "With" + name, strings.TrimPrefix(name, "With")} {
		if by, taken := s.taken[s.same(other)]; taken && by != owner {
			return true
		}
	}
	return false
}

// identifiers are the names in the packages of a group.
type identifiers struct {
	// types are those of types and constants. Each type has files that are called like it in small letters.
	types *scope
	// fields and messages are the names of fields in Go and in protobuf, by the path of their struct.
	fields, messages map[string]*scope
}

// newIdentifiers returns the names in a group that has kinds, and in which other names are declared already.
func newIdentifiers(kinds []Name, declared ...string) *identifiers {
	names := &identifiers{types: newScope(strings.ToLower), fields: map[string]*scope{}, messages: map[string]*scope{}}
	names.types.reserve("the package", append(declared,
		"AddToScheme", "GroupName", "Kind", "Kinds", "RegisterConversions", "RegisterDefaults", "RegisterValidations", "Resource", "SchemeBuilder", "SchemeGroupVersion")...)
	for _, kind := range kinds {
		names.types.reserve("kinds", string(kind), string(kind)+"List")
	}
	for _, kind := range kinds {
		names.typeName(string(kind)+".spec", string(kind)+"Spec")
		names.typeName(string(kind)+".status", string(kind)+"Status")
	}
	return names
}

// typeName is the name of the type of a field.
func (n *identifiers) typeName(path, wanted string) string { return n.types.name(path, wanted) }

// constantName is the name of a constant of a type.
func (n *identifiers) constantName(of *goType, value string) string {
	return n.types.name(of.text+" = "+value, of.text+valueName(value))
}

// methods owns the names that no field can have. It is no name of a property.
const methods = "generated methods"

// fieldNames are the names of the fields of a struct in Go and in protobuf, by those in JSON.
func (n *identifiers) fieldNames(path string, properties []string) (inGo, inProtobuf map[string]string) {
	fields, messages := n.fields[path], n.messages[path]
	if fields == nil {
		fields = newScope(strings.Clone)
		messages = newScope(func(name string) string { return strings.ToLower(strings.ReplaceAll(name, "_", "")) })
		fields.reserve(methods, "DeepCopy", "DeepCopyInto", "Descriptor", "IsApplyConfiguration", "Marshal", "MarshalTo", "MarshalToSizedBuffer",
			"OpenAPIModelName", "ProtoMessage", "Reset", "Size", "String", "SwaggerDoc", "Unmarshal")
		if !strings.Contains(path, ".") {
			fields.reserve(methods, promoted()...)
			messages.reserve(methods, "metadata")
		}
		n.fields[path], n.messages[path] = fields, messages
	}
	inGo, inProtobuf = map[string]string{}, map[string]string{}
	// A name that is fine gets what resembles it before one that is not.
	for _, fine := range []bool{true, false} {
		for _, property := range slices.Sorted(slices.Values(properties)) {
			if fieldName.MatchString(property) == fine {
				inGo[property] = fields.name(property, fieldIdentifier(fields, property))
				inProtobuf[property] = messages.name(property, protoName(property))
			}
		}
	}
	return inGo, inProtobuf
}

// fieldIdentifier is the wanted name of a field. One that is a method already gets an end that says so.
func fieldIdentifier(fields *scope, property string) string {
	name := goName(property)
	if fields.taken[name] == methods {
		return name + "Value"
	}
	return name
}

// promoted are the fields and methods that each kind has, as it embeds its metadata.
func promoted() []string {
	names := []string{"DeepCopyObject"}
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
