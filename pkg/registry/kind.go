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

// Kind declares one kind of a Group by its internal type O, a pointer to a
// struct. Fields that are left out mean that the kind does not have the feature.
type Kind[O Object] struct {
	// New and NewList return an empty object and an empty list of them.
	New     func() O
	NewList func() runtime.Object

	// Resource is the plural name in paths, Singular the one for people.
	Resource, Singular string
	// StorageVersion is the version in which objects are written to etcd, such as
	// "v1". Left out, it is the first in the scheme's order of priority that has the
	// kind. What is stored in another version is still read, and is written in this
	// one by the next update. It must be a version that every server which may have to
	// read it knows: in an upgrade or a rollback the one before, too.
	StorageVersion string
	// Namespaced is false for kinds of the whole cluster.
	Namespaced bool
	// ShortNames and Categories are what kubectl accepts besides the names.
	ShortNames, Categories []string

	// Columns are the cells of a row in the answer to "kubectl get". Left out, they are those of the
	// Definition.
	Columns []Column[O]
	// Fields are selectable by field selectors, besides metadata.name and
	// metadata.namespace. They are computed for every object of every event,
	// so they must be cheap.
	Fields map[string]func(O) string
	// Indexes are selectable by field selectors, too, and may have several values for
	// each object, of which a selector names one: "spec.toppings=tomato" selects the
	// pizzas that have tomato among their toppings. A list of what has a value costs as
	// much as it returns, however many objects are stored, since the watch cache keeps
	// an index of the values. It is as consistent as any list: without a
	// resourceVersion, the cache first waits until it has all that was written before
	// the request. So admission plugins and controllers read an index as clients, as
	// they read everything else. No value may contain a NUL character. The functions
	// are called as often as those of Fields.
	Indexes map[string]func(O) []string

	// Spec returns the desired state; metadata.generation moves when it changes.
	Spec func(O) any
	// KeepStatus overwrites the status of the new object with the old one's, and
	// KeepSpec the spec. They are set together: the first guards the kind
	// itself, the second its /status, which exists if they are set.
	KeepStatus, KeepSpec func(to, from O)

	// The functions below get the object that is written, and the stored one, which is
	// nil on a create. An update of /status calls Validate and ValidationOptions only.

	// Prepare changes an object before it is validated: it drops fields whose feature
	// gate is disabled, unless the stored object has them, or sorts what has no order.
	// It must not drop what is an error of the client. It is the PrepareForCreate and
	// PrepareForUpdate of rest.RESTCreateStrategy and rest.RESTUpdateStrategy, after the
	// status has been reset or kept and before the generation is computed.
	Prepare func(ctx context.Context, o, old O)
	// Validate says what declarative validation tags can't. To tolerate in the stored
	// object what is no longer allowed in a new one (ratcheting), it skips what is equal
	// in both, as declarative validation does by itself.
	Validate func(ctx context.Context, o, old O) field.ErrorList
	// ValidationOptions enables or disables the options that declarative validation
	// tags name, such as +k8s:ifEnabled(Option). An option that a tag names and the map
	// does not is an internal error. See rest.DeclarativeValidationConfig.
	ValidationOptions func(ctx context.Context, o, old O) map[string]bool
	// Warnings are for the client of a valid write, in a Warning header each: what is
	// deprecated, or has no effect. They should be shorter than 120 characters and begin
	// with the field, as in "spec.site: no such site". See rest.RESTCreateStrategy.
	Warnings func(ctx context.Context, o, old O) []string

	// Definition, unless nil, decides what objects may be, as that of a custom resource does: what is
	// unknown, what is missing, and what is valid. Tags and Validate may refuse more. Documents of OpenAPI,
	// and so server-side apply, have its schemas.
	Definition Definition

	// ValidateName returns what is wrong with metadata.name, or with metadata.generateName
	// if prefix is true. Left out, names are DNS subdomains (RFC 1123). See
	// k8s.io/apimachinery/pkg/api/validation.ValidateNameFunc.
	ValidateName func(name string, prefix bool) []string
	// AllowCreateOnUpdate lets a PUT create an object that does not exist. Server-side
	// apply always does.
	AllowCreateOnUpdate bool
	// CheckGracefulDelete may set options.GracePeriodSeconds, and says whether the object
	// is deleted gracefully: it then stays for that time, with a metadata.deletionTimestamp,
	// until somebody deletes it with a grace period of 0, as kubelets do with pods. Left
	// out, objects without finalizers are deleted at once. See
	// rest.RESTGracefulDeleteStrategy.
	CheckGracefulDelete func(ctx context.Context, o O, options *metav1.DeleteOptions) bool

	// Scale is set for kinds with /scale. Left out, the kind has the one of its Definition.
	Scale *Scale[O]
	// Subresources are those of the kind's own, by name.
	Subresources map[string]Subresource[O]
}

// Scale tells where a kind keeps what an autoscaling/v1 Scale shows. In every
// version the number of replicas must be at spec.replicas.
type Scale[O Object] struct {
	// Replicas points to the desired number.
	Replicas func(O) *int32
	// StatusReplicas returns the observed number.
	StatusReplicas func(O) int32
	// Selector returns the serialized label selector of what is counted.
	Selector func(O) string
}

// Column is a column of the table that kubectl prints.
type Column[O Object] struct {
	metav1.TableColumnDefinition
	// Cell returns a string, a bool or a number.
	Cell func(O) any
}
