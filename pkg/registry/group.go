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
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/common"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
)

// Group declares an API group.
type Group struct {
	// Name is the group's name, a DNS domain.
	Name string
	// Install registers the group's types, conversions, defaults and the
	// priority of its versions.
	Install func(*runtime.Scheme)
	// OpenAPI returns the generated definitions of the group's types. Those of the types of Kubernetes that
	// all groups have are added.
	OpenAPI common.GetOpenAPIDefinitions
	// Kinds are the resources of the group. Each is served in every version that has
	// its type.
	Kinds []Declaration
	// Admission are the group's own admission plugins, in the order of execution.
	Admission []admission.Plugin
	// Runtime returns the parts of the server that use the group's API. Without it, the group is only an API.
	Runtime func(Clients) (Runtime, error)
}

// Declaration declares one resource of a group. A Kind, a Review and a Custom are
// declarations, and so is any other type with these methods.
type Declaration interface {
	// Describe describes the resource for the group.
	Describe() Description
	// Storage returns the REST storage of the resource by path: the resource itself,
	// then "resource/subresource". It is called once for all versions.
	Storage(Installation) (map[string]rest.Storage, error)
}

// Description has the facts about a resource that a Group needs before the resource is served.
type Description struct {
	// Resource is the plural name in paths.
	Resource string
	// New returns an empty internal object. The resource is served in the versions that
	// have its kind.
	New func() runtime.Object
	// FieldLabels are the field selectors that requests may use.
	FieldLabels []string
	// LongRunning has the subresources, by path, with requests that are exempt from the request timeout.
	LongRunning map[string]LongRunning
	// Stored is true if there are objects in etcd. They are written in StorageVersion if that is set. Keys of
	// Namespaced objects have the namespace.
	Stored         bool
	StorageVersion string
	Namespaced     bool
	// Validate returns the errors of an object that is to be created in a version of the scheme. It is nil if nothing
	// is Stored.
	Validate func(context.Context, *runtime.Scheme, schema.GroupVersion, runtime.Object) field.ErrorList
	// Features are the features of a Kind, and nil for other declarations.
	Features *Features
}

// Features describe the visible features of a Kind of any internal type. The functions get an internal object.
type Features struct {
	// Singular, ShortNames and Categories are as in the Kind.
	Singular               string
	ShortNames, Categories []string
	// Columns are the columns of the table, and Cells returns a row.
	Columns []metav1.TableColumnDefinition
	Cells   func(runtime.Object) []any
	// Fields are the field selectors that have one value for each object, besides the selectors of the
	// metadata.
	Fields map[string]func(runtime.Object) string
	// Validates is true if there are rules in Go.
	Validates bool
	// Status is true if the Kind has /status.
	Status bool
	// StatusReplicas and Selector are for /scale. They are nil without it.
	StatusReplicas func(runtime.Object) int32
	Selector       func(runtime.Object) string
	// Subresources are the Kind's own, by name.
	Subresources []string
	// Definition is as in the Kind.
	Definition Definition
}

// Installation has the parts of the server that a resource needs to be served.
type Installation struct {
	// Group is the name of the group.
	Group string
	// Scheme has the types of the group.
	Scheme *runtime.Scheme
	// Versions are the versions of the group, the preferred one first.
	Versions []schema.GroupVersion
	// Options makes the options of stores in the server's etcd.
	Options generic.RESTOptionsGetter
	// Runtime is the group's Runtime, or empty if the group has none.
	Runtime Runtime
}

// InstallTypes registers the types of the group, the field selectors of its kinds, and
// the defaults of their definitions, in a scheme.
func (g Group) InstallTypes(scheme *runtime.Scheme) error {
	g.Install(scheme)
	for _, kind := range g.Kinds {
		if err := installFieldLabels(scheme, kind); err != nil {
			return fmt.Errorf("registering the field selectors of %s.%s: %w", kind.Describe().Resource, g.Name, err)
		}
	}
	return g.installDefaults(scheme)
}

func installFieldLabels(scheme *runtime.Scheme, kind Declaration) error {
	gvk, err := internalKind(scheme, kind)
	if err != nil {
		return err
	}
	allowed := kind.Describe().FieldLabels
	convert := func(label, value string) (string, string, error) {
		if !slices.Contains(allowed, label) {
			return "", "", fmt.Errorf("%q is not a known field selector: only %q", label, allowed)
		}
		return label, value, nil
	}
	for _, version := range scheme.PrioritizedVersionsForGroup(gvk.Group) {
		if err := scheme.AddFieldLabelConversionFunc(version.WithKind(gvk.Kind), convert); err != nil {
			return err
		}
	}
	return nil
}

// Storage returns the REST storage of the group by version and path. The scheme must have the group's types. The
// options make one store for each kind. The runtime is the result of the group's Runtime function, or empty if it has
// none.
func (g Group) Storage(scheme *runtime.Scheme, options generic.RESTOptionsGetter, runtime Runtime) (map[string]map[string]rest.Storage, error) {
	if err := g.checkRuntime(runtime); err != nil {
		return nil, err
	}
	if err := g.checkNames(scheme); err != nil {
		return nil, err
	}
	in := Installation{Group: g.Name, Scheme: scheme, Versions: scheme.PrioritizedVersionsForGroup(g.Name), Options: options, Runtime: runtime}
	byVersion, byResource := map[string]map[string]rest.Storage{}, map[string]rest.Storage{}
	for _, kind := range g.Kinds {
		gvk, err := internalKind(scheme, kind)
		if err != nil {
			destroy(byVersion)
			return nil, err
		}
		storage, err := kind.Storage(in)
		if err != nil {
			destroy(byVersion)
			return nil, fmt.Errorf("creating the storage of %s.%s: %w", kind.Describe().Resource, g.Name, err)
		}
		byResource[kind.Describe().Resource] = storage[kind.Describe().Resource]
		for _, version := range in.Versions {
			if !scheme.Recognizes(version.WithKind(gvk.Kind)) {
				continue
			}
			if byVersion[version.Version] == nil {
				byVersion[version.Version] = map[string]rest.Storage{}
			}
			maps.Copy(byVersion[version.Version], storage)
		}
	}
	if err := g.link(byResource); err != nil {
		destroy(byVersion)
		return nil, err
	}
	return byVersion, nil
}

// checkNames returns an error if clients could not tell two resources of the group apart.
func (g Group) checkNames(scheme *runtime.Scheme) error {
	names, kinds := map[string]string{}, map[string]string{}
	for _, kind := range g.Kinds {
		described := kind.Describe()
		resource := described.Resource
		gvk, err := internalKind(scheme, kind)
		if err != nil {
			return err
		}
		if other, taken := kinds[gvk.Kind]; taken {
			return fmt.Errorf("the resources %s and %s of %s have the same kind %s: give each its own type", other, resource, g.Name, gvk.Kind)
		}
		kinds[gvk.Kind] = resource
		own := sets.New(resource)
		if features := described.Features; features != nil {
			own.Insert(features.ShortNames...)
			own.Insert(features.Singular)
		}
		for name := range own.Delete("") {
			if other, taken := names[name]; taken {
				return fmt.Errorf("%q is a name of the kinds %s and %s of %s: change Resource, Singular or ShortNames of one of them", name, other, gvk.Kind, g.Name)
			}
			names[name] = gvk.Kind
		}
	}
	return nil
}

// destroy stops the background work of the storage, such as watch caches. It is called for each version, which the
// library allows.
func destroy(byVersion map[string]map[string]rest.Storage) {
	for _, paths := range byVersion {
		for _, storage := range paths {
			storage.Destroy()
		}
	}
}

// checkRuntime returns an error if the runtime serves resources that the group does not have.
func (g Group) checkRuntime(runtime Runtime) error {
	declared := map[string]bool{}
	for _, kind := range g.Kinds {
		described := kind.Describe()
		declared[described.Resource] = true
		for path := range described.LongRunning {
			declared[path] = true
		}
	}
	for _, path := range slices.Concat(slices.Sorted(maps.Keys(runtime.Answers)), slices.Sorted(maps.Keys(runtime.Serve)), slices.Sorted(maps.Keys(runtime.Handlers))) {
		if !declared[path] {
			return fmt.Errorf("the Runtime of %s serves %q, which is not a resource of the group: declare it in Kinds", g.Name, path)
		}
	}
	return nil
}

// internalKind is the group, version and kind of a declared kind's objects in memory.
func internalKind(scheme *runtime.Scheme, kind Declaration) (schema.GroupVersionKind, error) {
	gvks, _, err := scheme.ObjectKinds(kind.Describe().New())
	if err != nil {
		return schema.GroupVersionKind{}, err
	}
	return gvks[0], nil
}

// StoragePrefixes returns the path of each resource below the etcd prefix.
func (g Group) StoragePrefixes() map[schema.GroupResource]string {
	prefixes := map[schema.GroupResource]string{}
	for _, kind := range g.Kinds {
		if described := kind.Describe(); described.Stored {
			prefixes[schema.GroupResource{Group: g.Name, Resource: described.Resource}] = g.Name + "/" + described.Resource
		}
	}
	return prefixes
}

// StorageVersions returns the version in etcd of each resource's objects. It is Kind.StorageVersion, or else the
// first version in the scheme's order of priority that has the kind. The scheme must have the group's types.
func (g Group) StorageVersions(scheme *runtime.Scheme) (map[schema.GroupResource]schema.GroupVersion, error) {
	versions := map[schema.GroupResource]schema.GroupVersion{}
	for _, kind := range g.Kinds {
		described := kind.Describe()
		if !described.Stored {
			continue
		}
		resource := schema.GroupResource{Group: g.Name, Resource: described.Resource}
		gvk, err := internalKind(scheme, kind)
		if err != nil {
			return nil, fmt.Errorf("choosing the version in which %s are stored: %w", resource, err)
		}
		if versions[resource], err = storageVersion(scheme, gvk.GroupKind(), described.StorageVersion); err != nil {
			return nil, fmt.Errorf("%s can't be stored: %w", resource, err)
		}
	}
	return versions, nil
}

// WithoutMessages returns the resources whose types have no protobuf messages. Their objects are stored, and sent, as
// JSON. The scheme must have the group's types.
func (g Group) WithoutMessages(scheme *runtime.Scheme) (map[schema.GroupVersionResource]bool, error) {
	resources := map[schema.GroupVersionResource]bool{}
	for _, kind := range g.Kinds {
		gvk, err := internalKind(scheme, kind)
		if err != nil {
			return nil, err
		}
		for _, version := range scheme.PrioritizedVersionsForGroup(g.Name) {
			if !scheme.Recognizes(version.WithKind(gvk.Kind)) {
				continue
			}
			object, err := scheme.New(version.WithKind(gvk.Kind))
			if err != nil {
				return nil, err
			}
			if _, has := object.(runtime.ProtobufMarshaller); !has {
				resources[version.WithResource(kind.Describe().Resource)] = true
			}
		}
	}
	return resources, nil
}

func storageVersion(scheme *runtime.Scheme, kind schema.GroupKind, chosen string) (schema.GroupVersion, error) {
	for _, version := range scheme.PrioritizedVersionsForGroup(kind.Group) {
		if (chosen == "" || chosen == version.Version) && scheme.Recognizes(version.WithKind(kind.Kind)) {
			return version, nil
		}
	}
	if chosen != "" {
		return schema.GroupVersion{}, fmt.Errorf("its StorageVersion is %s, which has no kind %s: choose a version that has, or none", chosen, kind.Kind)
	}
	return schema.GroupVersion{}, fmt.Errorf("no version of the group has the kind %s: register its type in one in Install", kind.Kind)
}

// Resources returns the resources of the group's kinds, stored or not.
func (g Group) Resources() []schema.GroupResource {
	var resources []schema.GroupResource
	for _, kind := range g.Kinds {
		resources = append(resources, schema.GroupResource{Group: g.Name, Resource: kind.Describe().Resource})
	}
	return resources
}

// LongRunning returns the subresources, such as "pizzas/track", with requests that are exempt from the request
// timeout.
func (g Group) LongRunning() map[schema.GroupResource]LongRunning {
	resources := map[schema.GroupResource]LongRunning{}
	for _, kind := range g.Kinds {
		for path, which := range kind.Describe().LongRunning {
			if which != NeverLongRunning {
				resources[schema.GroupResource{Group: g.Name, Resource: path}] = which
			}
		}
	}
	return resources
}

// InstallMeta registers the types that every group needs: meta/v1 without a group, and autoscaling/v1 Scale.
// Scale is its own internal type.
func InstallMeta(scheme *runtime.Scheme) {
	unversioned := schema.GroupVersion{Version: "v1"}
	metav1.AddToGroupVersion(scheme, unversioned)
	scheme.AddUnversionedTypes(unversioned,
		&metav1.Status{}, &metav1.APIVersions{}, &metav1.APIGroupList{}, &metav1.APIGroup{}, &metav1.APIResourceList{})
	installScale(scheme)
}
