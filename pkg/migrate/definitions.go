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
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// definition has the fields of a CustomResourceDefinition that matter here.
type definition struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Group string `json:"group"`
		Names struct {
			Plural string `json:"plural"`
			Kind   string `json:"kind"`
		} `json:"names"`
		Scope    string `json:"scope"`
		Versions []struct {
			Name    string `json:"name"`
			Served  bool   `json:"served"`
			Storage bool   `json:"storage"`
		} `json:"versions"`
		Conversion json.RawMessage `json:"conversion,omitempty"`
	} `json:"spec"`
	Status struct {
		StoredVersions []string           `json:"storedVersions,omitempty"`
		Conditions     []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status"`
	// object is the whole definition.
	object *unstructured.Unstructured
}

// established reports whether kube-apiserver has accepted the names.
func (d definition) established() bool {
	return meta.IsStatusConditionTrue(d.Status.Conditions, "Established")
}

// converts reports whether a webhook converts between the versions.
func (d definition) converts() bool { return byWebhook(d.Spec.Conversion) }

// byWebhook reports whether a webhook does a conversion.
func byWebhook(conversion json.RawMessage) bool {
	var of struct {
		Strategy string `json:"strategy"`
	}
	return json.Unmarshal(conversion, &of) == nil && of.Strategy == "Webhook"
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
	for _, version := range d.Spec.Versions {
		if version.Name == name {
			return true
		}
	}
	return false
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
		var d definition
		content, err := item.MarshalJSON()
		if err == nil {
			err = json.Unmarshal(content, &d)
		}
		if err != nil {
			return nil, fmt.Errorf("the CustomResourceDefinition %s can't be read: %w", item.GetName(), err)
		}
		d.object = &item
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
	for i := range m.config.Stores {
		if m.config.Stores[i].Resource == d.Spec.Names.Plural {
			return &m.config.Stores[i]
		}
	}
	return nil
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

// digests returns hashes of each definition's UID and fields of its spec, by name. They leave out
// this program's own changes.
func (s *session) digests(found []definition) (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	for _, d := range found {
		object := d.object.DeepCopy()
		if err := errors.Join(s.withoutBypass(d, object), cluster.Unhide(object)); err != nil {
			return nil, fmt.Errorf("the CustomResourceDefinition %s can't be read: %w", d.Name, err)
		}
		// A renewed certificate changes nothing about the objects.
		unstructured.RemoveNestedField(object.Object, "spec", "conversion", "webhook", "clientConfig", "caBundle")
		digests := map[string]string{"metadata.uid": string(d.UID)}
		spec, _, err := unstructured.NestedMap(object.Object, "spec")
		if err != nil {
			return nil, err
		}
		for field, value := range spec {
			data, err := json.Marshal(value)
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256(data)
			digests["spec."+field] = hex.EncodeToString(sum[:16])
		}
		all[d.Name] = digests
	}
	return all, nil
}

// unchanged returns an error if the definitions have changed since the migration began. The plan
// was about the earlier ones, and the objects were copied for them.
func (s *session) unchanged(ctx context.Context) error {
	if s.state.Definitions == nil {
		return nil // An older release has begun it.
	}
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
		case !maps.Equal(before, after):
			changes = append(changes, name+" has another "+strings.Join(differing(before, after), ", "))
		}
	}
	if len(changes) == 0 {
		return nil
	}
	return fmt.Errorf("the CustomResourceDefinitions of %s have changed since the migration began: %s; clients use them as before: "+
		"change them back and run this again, or run \"migrate abort\", and then plan and run a migration of what they define now", s.state.Group, strings.Join(changes, "; "))
}

// differing returns the keys whose values differ.
func differing(before, after map[string]string) (keys []string) {
	for key := range sets.KeySet(before).Union(sets.KeySet(after)) {
		if before[key] != after[key] {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
