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

	// Columns are the cells of a row in the answer to "kubectl get".
	Columns []Column[O]
	// Fields are selectable by field selectors, besides metadata.name and
	// metadata.namespace. They are computed for every object of every event,
	// so they must be cheap.
	Fields map[string]func(O) string

	// Spec returns the desired state; metadata.generation moves when it changes.
	Spec func(O) any
	// KeepStatus overwrites the status of the new object with the old one's, and
	// KeepSpec the spec. They are set together: the first guards the kind
	// itself, the second its /status, which exists if they are set.
	KeepStatus, KeepSpec func(to, from O)

	// Validate says what declarative validation tags can't. It checks each object
	// that is written, and on an update compares it with the stored one, which is
	// nil on a create. To tolerate in the stored object what is no longer allowed in
	// a new one (ratcheting), it skips what is equal in both, as declarative
	// validation does by itself.
	Validate func(ctx context.Context, o, old O) field.ErrorList
	// ValidationOptions enables or disables the options that declarative validation
	// tags name, such as +k8s:ifEnabled(Option). The stored object is nil on a
	// create. An option that a tag names and the map does not is an internal error.
	// See rest.DeclarativeValidationConfig.
	ValidationOptions func(ctx context.Context, o, old O) map[string]bool

	// Scale is set for kinds with /scale.
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
