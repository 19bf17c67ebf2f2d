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

package registry

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Object is an internal type with metadata.
type Object interface {
	runtime.Object
	metav1.Object
}

// Kind declares one kind of a Group by its internal type O, a pointer to a struct. An omitted field means
// that the kind does not have the feature.
type Kind[O Object] struct {
	// New and NewList return an empty object and an empty list of them.
	New     func() O
	NewList func() runtime.Object

	// Resource is the plural name in paths, Singular the one for people.
	Resource, Singular string
	// StorageVersion is the version of objects in etcd, such as "v1". The default is the first version in
	// the scheme's order of priority that has the kind. Objects in other versions are still read, and the
	// next update writes them in this one. Every server that may read the objects must know the version,
	// also the previous release during an upgrade or a rollback.
	StorageVersion string
	// Namespaced is false for kinds of the whole cluster.
	Namespaced bool
	// ShortNames and Categories are further names that kubectl accepts.
	ShortNames, Categories []string

	// Columns are the cells of a row in the output of "kubectl get". The default is the columns of the
	// Definition.
	Columns []Column[O]
	// Fields are selectable by field selectors, besides metadata.name and
	// metadata.namespace. They are computed for every object of every event,
	// so they must be cheap.
	Fields map[string]func(O) string
	// Indexes are field selectors that may have several values for each object. For example,
	// "spec.toppings=tomato" selects the pizzas that have tomato among their toppings. The cost of a list
	// by index depends only on the size of the result, since the watch cache keeps an index of the values.
	//
	// Such a list is as consistent as any list. Without a resourceVersion, the cache first waits until it
	// has all writes before the request. So admission plugins and controllers read an index as clients,
	// like everything else. No value may contain a NUL character. The functions are called as often as
	// those of Fields.
	Indexes map[string]func(O) []string
	// References say which other objects of the group have to exist, and are kept while they are named.
	References []Reference[O]

	// Spec returns the desired state. Its changes increase metadata.generation.
	Spec func(O) any
	// KeepStatus overwrites the status of the new object with the old one's, and KeepSpec the spec. They
	// are set together, and give the kind a /status. The kind itself uses the first, /status the second.
	KeepStatus, KeepSpec func(to, from O)

	// The functions below get the object that is written, and the stored one, which is
	// nil on a create. An update of /status calls Validate and ValidationOptions only.

	// Prepare changes an object before it is validated. For example, it sorts unordered lists, or drops
	// fields whose feature gate is disabled, unless the stored object has them. It must not hide errors of
	// the client. It is the PrepareForCreate and PrepareForUpdate of rest.RESTCreateStrategy and
	// rest.RESTUpdateStrategy. It runs after the status has been reset or kept, and before the generation
	// is computed.
	Prepare func(ctx context.Context, o, old O)
	// Validate checks rules that declarative validation tags can't express. An update without a change of the
	// spec is not refused for errors that the stored object has, too (ratcheting). To go as far as declarative
	// validation, skip values that are equal in both objects.
	Validate func(ctx context.Context, o, old O) field.ErrorList
	// ValidationOptions enables or disables the options that declarative validation
	// tags name, such as +k8s:ifEnabled(Option). An option that a tag names and the map
	// does not is an internal error. See rest.DeclarativeValidationConfig.
	ValidationOptions func(ctx context.Context, o, old O) map[string]bool
	// Warnings returns warnings for the client of a valid write, about deprecated or ineffective fields.
	// Each is sent in a Warning header. They should be shorter than 120 characters and begin with the
	// field, as in "spec.site: no such site". See rest.RESTCreateStrategy.
	Warnings func(ctx context.Context, o, old O) []string

	// Definition, unless nil, decides about unknown fields, defaults and validity, as a
	// CustomResourceDefinition does. Tags and Validate may refuse more. OpenAPI documents, and so
	// server-side apply, have its schemas.
	Definition Definition

	// ValidateName returns the errors of metadata.name, or of metadata.generateName if prefix is true. By
	// default, names are DNS subdomains (RFC 1123). See
	// k8s.io/apimachinery/pkg/api/validation.ValidateNameFunc.
	ValidateName func(name string, prefix bool) []string
	// AllowCreateOnUpdate lets a PUT create an object that does not exist. Server-side
	// apply always does.
	AllowCreateOnUpdate bool
	// CheckGracefulDelete may set options.GracePeriodSeconds, and reports whether the object is deleted
	// gracefully. It then stays, with a metadata.deletionTimestamp, until a client deletes it with a grace
	// period of 0, as kubelets do with pods. By default, objects without finalizers are deleted at once.
	// See rest.RESTGracefulDeleteStrategy.
	CheckGracefulDelete func(ctx context.Context, o O, options *metav1.DeleteOptions) bool

	// Scale is set for kinds with /scale. The default is the scale of the Definition.
	Scale *Scale[O]
	// Subresources are the kind's own, by name.
	Subresources map[string]Subresource[O]
}

// Scale says where a kind keeps the fields of an autoscaling/v1 Scale. In every version the number of
// replicas must be at spec.replicas.
type Scale[O Object] struct {
	// Replicas points to the desired number.
	Replicas func(O) *int32
	// StatusReplicas returns the observed number.
	StatusReplicas func(O) int32
	// Selector returns the serialized label selector of the counted objects.
	Selector func(O) string
}

// Column is a column of the table that kubectl prints.
type Column[O Object] struct {
	metav1.TableColumnDefinition
	// Cell returns a string, a bool or a number.
	Cell func(O) any
}
