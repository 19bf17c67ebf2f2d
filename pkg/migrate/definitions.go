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

package migrate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// pageSize is how many objects are read at a time.
const pageSize = 500

// definitionClient reads and writes the CustomResourceDefinitions themselves.
func (m *Migration) definitionClient() dynamic.ResourceInterface {
	return m.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
}

// definition is a CustomResourceDefinition, and the object that it was read from.
type definition struct {
	apiextensionsv1.CustomResourceDefinition
	object *unstructured.Unstructured
}

// converts reports whether a webhook converts between the versions.
func (d definition) converts() bool { return byWebhook(d.Spec.Conversion) }

// byWebhook reports whether a webhook does a conversion.
func byWebhook(conversion *apiextensionsv1.CustomResourceConversion) bool {
	return conversion != nil && conversion.Strategy == apiextensionsv1.WebhookConverter
}

// served returns the names of the versions that clients have, see cluster.ServedAnnotation.
func (d definition) served() []string { return cluster.ServedVersions(&d, d.servedByKube()...) }

// servedByKube returns those that kube-apiserver itself serves.
func (d definition) servedByKube() (names []string) {
	for _, version := range d.Spec.Versions {
		if version.Served && version.Name != BypassVersion {
			names = append(names, version.Name)
		}
	}
	return names
}

// hidden reports whether kube-apiserver serves none of the versions that clients have.
func (d definition) hidden() bool { return len(d.servedByKube()) == 0 }

// has reports whether there is a version, served or not.
func (d definition) has(name string) bool {
	return slices.ContainsFunc(d.Spec.Versions, func(version apiextensionsv1.CustomResourceDefinitionVersion) bool { return version.Name == name })
}

// stored returns the resource in its storage version.
func (d definition) stored() schema.GroupVersionResource {
	resource := schema.GroupVersionResource{Group: d.Spec.Group, Resource: d.Spec.Names.Plural}
	for _, version := range d.Spec.Versions {
		if version.Storage {
			resource.Version = version.Name
		}
	}
	return resource
}

// definitions returns the CustomResourceDefinitions of the group.
func (m *Migration) definitions(ctx context.Context) ([]definition, error) {
	list, err := m.definitionClient().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the CustomResourceDefinitions: %w", err)
	}
	var found []definition
	for _, item := range list.Items {
		d := definition{object: &item}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object, &d.CustomResourceDefinition); err != nil {
			return nil, fmt.Errorf("the CustomResourceDefinition %s can't be read: %w", item.GetName(), err)
		}
		if d.Spec.Group == m.config.Group {
			found = append(found, d)
		}
	}
	return found, nil
}

// moves returns the defined resources, each with its store and its storage version.
func (m *Migration) moves(ctx context.Context) ([]move, error) {
	found, err := m.definitions(ctx)
	if err != nil {
		return nil, err
	}
	var moves []move
	for _, d := range found {
		store := m.storeOf(d)
		if store == nil {
			return nil, fmt.Errorf("the server does not store %s: use a release of it that does", d.Name)
		}
		moves = append(moves, move{store, d.stored(), d.hidden()})
	}
	return moves, nil
}

// storeOf returns the server's store for a definition's resource, or nil.
func (m *Migration) storeOf(d definition) *keys.Objects {
	i := slices.IndexFunc(m.config.Stores, func(store keys.Objects) bool { return store.Resource == d.Spec.Names.Plural })
	if i < 0 {
		return nil
	}
	return &m.config.Stores[i]
}

// move is a resource that moves.
type move struct {
	*keys.Objects
	from schema.GroupVersionResource
	// hidden is set if kube-apiserver does not serve its own objects, except in BypassVersion.
	hidden bool
}

// list calls a function for all objects, and returns a revision. The objects are as of that
// revision, or later.
func (m *Migration) list(ctx context.Context, from schema.GroupVersionResource, each func(*unstructured.Unstructured) error) (revision string, err error) {
	options := metav1.ListOptions{Limit: pageSize}
	for {
		list, err := m.dynamic.Resource(from).List(ctx, options)
		if next := continueAfter(err); next != "" {
			// The rest of the list is newer. Either the next pass finds the changes, or there are
			// none.
			options.Continue = next
			continue
		}
		if err != nil {
			return "", fmt.Errorf("reading the %s from kube-apiserver: %w", from.GroupResource(), err)
		}
		if revision == "" {
			revision = list.GetResourceVersion()
		}
		for i := range list.Items {
			if err := each(&list.Items[i]); err != nil {
				return "", err
			}
		}
		if options.Continue = list.GetContinue(); options.Continue == "" {
			return revision, nil
		}
	}
}

// continueAfter returns the token to continue a list whose revision etcd no longer has.
func continueAfter(err error) string {
	var status apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &status) {
		return ""
	}
	return status.Status().Continue
}

// Digest identifies a definition.
type Digest struct {
	UID types.UID `json:"uid"`
	// Spec is a hash.
	Spec string `json:"spec"`
}

// digests returns a Digest of each definition, by name. They leave out this program's own changes.
func (s *session) digests(found []definition) (map[string]Digest, error) {
	all := map[string]Digest{}
	for _, d := range found {
		object := d.object.DeepCopy()
		if err := errors.Join(s.withoutBypass(d, object), cluster.Unhide(object)); err != nil {
			return nil, fmt.Errorf("the CustomResourceDefinition %s can't be read: %w", d.Name, err)
		}
		// A renewed certificate changes nothing about the objects.
		unstructured.RemoveNestedField(object.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
		spec, err := json.Marshal(object.Object["spec"])
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(spec)
		all[d.Name] = Digest{d.UID, hex.EncodeToString(sum[:16])}
	}
	return all, nil
}

// unchanged returns an error if the definitions have changed since the migration began. The plan
// was about the earlier ones, and the objects were copied for them.
func (s *session) unchanged(ctx context.Context) error {
	found, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	now, err := s.digests(found)
	if err != nil {
		return err
	}
	var changes []string
	for _, d := range found {
		if d.DeletionTimestamp != nil {
			changes = append(changes, d.Name+" is being deleted")
		}
	}
	for _, name := range sets.List(sets.KeySet(now).Union(sets.KeySet(s.state.Definitions))) {
		before, known := s.state.Definitions[name]
		after, exists := now[name]
		switch {
		case !exists:
			changes = append(changes, name+" is gone")
		case !known:
			changes = append(changes, name+" is new")
		case before.UID != after.UID:
			changes = append(changes, name+" was deleted and created again")
		case before != after:
			changes = append(changes, name+" has another spec")
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return fmt.Errorf("the CustomResourceDefinitions of %s have changed since the migration began: %s; clients use them as before: "+
		"change them back and run this again, or run \"migrate abort\", and then plan and run a migration of what they define now", s.state.Group, strings.Join(changes, "; "))
}
