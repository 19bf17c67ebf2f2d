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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// Three ways lead past the APIServices to kube-apiserver's own objects. The API offers no other way
// to do what each of them does.
//
//   - BypassVersion reads and writes kube-apiserver's objects without its etcd. It is a version of
//     its own, so that no APIService sends its requests to the server. Neither the policy that
//     freezes writes nor the definition's conversion may apply to it. It has no schema and no
//     subresources, since objects move as they are, with their status, valid or not. So a policy
//     reserves it for the user that moves them.
//   - local reads kube-apiserver's objects in the versions that clients use. That fills its caches
//     before clients come, and finds late writes. It changes nothing, and so needs no version.
//   - schemaMarker makes kube-apiserver end the watches of a resource, and restart its history.
//     Servers do that only when a definition changes.

// BypassVersion is a version of each resource that only exists while objects move back. In it
// kube-apiserver reads and writes the objects in its own etcd. All other versions lead to the server.
const BypassVersion = cluster.BypassVersion

// bypassTimeout bounds the wait for kube-apiserver to serve a new version.
const bypassTimeout = time.Minute

// schemaMarker is appended to the descriptions of a definition's schemas to end its watches.
const schemaMarker = " (objects are being moved)"

// bypass returns the resource in BypassVersion.
func (m move) bypass() schema.GroupVersionResource {
	return m.from.GroupResource().WithVersion(BypassVersion)
}

// movesBack returns the resources that move back. Without kube-apiserver's etcd it adds
// BypassVersion to all definitions, unless they have it.
func (s *session) movesBack(ctx context.Context) ([]move, error) {
	if s.config.KubeEtcd == nil {
		if err := s.addBypass(ctx); err != nil {
			return nil, err
		}
	}
	return s.moves(ctx)
}

// addBypass makes kube-apiserver serve its own objects in BypassVersion. Conversion only changes
// the name of the version, and calls no webhook.
func (s *session) addBypass(ctx context.Context) error {
	found, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	conversions := map[string]json.RawMessage{}
	maps.Copy(conversions, s.state.Conversions)
	for _, d := range found {
		if _, saved := conversions[d.Name]; !saved || !d.has(BypassVersion) {
			conversions[d.Name] = d.Spec.Conversion
		}
	}
	s.state.Conversions = conversions
	// The state has to have the conversions before the definitions change.
	if err := s.save(ctx); err != nil {
		return err
	}
	me, err := s.user(ctx)
	if err != nil {
		return err
	}
	if err := s.apply(ctx, s.denying(s.bypassName(), []string{BypassVersion}, "request.userInfo.username == "+strconv.Quote(me))...); err != nil {
		return err
	}
	if err := settle(ctx); err != nil {
		return err
	}
	if err := s.addVersions(ctx); err != nil {
		return err
	}
	for _, d := range found {
		err := eventually(ctx, bypassTimeout, func(ctx context.Context) error {
			_, err := s.dynamic.Resource(d.stored().GroupResource().WithVersion(BypassVersion)).List(ctx, metav1.ListOptions{Limit: 1})
			return err
		})
		if err != nil {
			return fmt.Errorf("kube-apiserver does not serve the version %s of %s: %w", BypassVersion, d.Name, err)
		}
	}
	return nil
}

func (s *session) addVersions(ctx context.Context) error {
	return s.changeDefinitions(ctx, "adding the version "+BypassVersion+" to", func(d definition, definition *unstructured.Unstructured, versions []any) []any {
		s.keepServed(d, definition, versions, keys.CopyKept)
		_ = unstructured.SetNestedMap(definition.Object, map[string]any{"strategy": "None"}, "spec", "conversion")
		return append(withoutBypass(versions), map[string]any{
			"name": BypassVersion, "served": true, "storage": false,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		})
	})
}

// removeBypass removes BypassVersion. kube-apiserver then also forgets the history of the objects,
// and clients that watch have to list them again.
func (s *session) removeBypass(ctx context.Context, annotation string) error {
	err := s.changeDefinitions(ctx, "removing the version "+BypassVersion+" from", func(d definition, definition *unstructured.Unstructured, versions []any) []any {
		if s.config.Defined {
			setCopyAnnotation(definition, annotation)
		}
		s.restoreConversion(d, definition)
		return withoutBypass(versions)
	})
	if err != nil {
		return err
	}
	return s.allow(ctx, s.bypassName())
}

// restoreConversion restores the conversion that a definition had before BypassVersion.
func (s *session) restoreConversion(d definition, definition *unstructured.Unstructured) {
	var conversion map[string]any
	if saved, ok := s.state.Conversions[d.Name]; ok && d.has(BypassVersion) && json.Unmarshal(saved, &conversion) == nil && conversion != nil {
		_ = unstructured.SetNestedMap(definition.Object, conversion, "spec", "conversion")
	}
}

// annotate tells the server of custom resources what to do with its copies.
func (s *session) annotate(ctx context.Context, annotation string) error {
	if !s.config.Defined {
		return nil
	}
	return s.changeDefinitions(ctx, "annotating", func(_ definition, definition *unstructured.Unstructured, versions []any) []any {
		setCopyAnnotation(definition, annotation)
		return versions
	})
}

// touch changes the definitions, or changes them back, to make kube-apiserver end its watches.
// kube-apiserver also restarts its history. The annotation says whether the server does so, too.
// touch removes BypassVersion, which an earlier run without kube-apiserver's etcd may have left.
func (s *session) touch(ctx context.Context, on bool, annotation string) error {
	return s.changeDefinitions(ctx, "ending the watches of", func(d definition, definition *unstructured.Unstructured, versions []any) []any {
		s.keepServed(d, definition, versions, annotation)
		touchVersions(versions, on)
		s.restoreConversion(d, definition)
		return withoutBypass(versions)
	})
}

// keepServed tells the server of custom resources what to do with its copy of a definition. For
// another server, the definition serves the same versions as before.
func (s *session) keepServed(d definition, definition *unstructured.Unstructured, versions []any, annotation string) {
	if s.config.Defined {
		setCopyAnnotation(definition, annotation)
	} else {
		setServed(versions, s.state.Served[d.Name])
	}
}

// changeDefinitions lets a function change each definition of the group, and replace its versions.
func (m *Migration) changeDefinitions(ctx context.Context, doing string, change func(d definition, object *unstructured.Unstructured, versions []any) []any) error {
	return m.updateDefinitions(ctx, doing, func(d definition, object *unstructured.Unstructured) error {
		versions, found, err := unstructured.NestedSlice(object.Object, "spec", "versions")
		if err == nil && !found {
			err = errors.New("it has no versions")
		}
		if err != nil {
			return err
		}
		return unstructured.SetNestedSlice(object.Object, change(d, object, versions), "spec", "versions")
	})
}

// updateDefinitions updates all definitions of the group, or a subresource of them, that a function
// changes. If one update is refused, it makes the others before it returns the error.
func (m *Migration) updateDefinitions(ctx context.Context, doing string, change func(d definition, object *unstructured.Unstructured) error, subresources ...string) error {
	found, err := m.definitions(ctx)
	if err != nil {
		return err
	}
	var refused error
	for _, d := range found {
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			object, err := m.definitionClient().Get(ctx, d.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			before := object.DeepCopy()
			if err := change(d, object); err != nil {
				return err
			}
			if equality.Semantic.DeepEqual(before, object) {
				return nil // Even an update without changes may be refused.
			}
			_, err = m.definitionClient().Update(ctx, object, metav1.UpdateOptions{DryRun: m.dryRun}, subresources...)
			return err
		})
		if err != nil && refused == nil {
			refused = fmt.Errorf("%s the CustomResourceDefinition %s: %w", doing, d.Name, err)
		}
	}
	return refused
}

// setCopyAnnotation tells the server of custom resources what to do with its copy of a definition.
func setCopyAnnotation(definition *unstructured.Unstructured, value string) {
	annotations := definition.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[keys.CopyAnnotation] = value
	if value == "" {
		delete(annotations, keys.CopyAnnotation)
	}
	definition.SetAnnotations(annotations)
}

// setServed sets served in exactly these versions of a definition, or in all if there are no names.
func setServed(versions []any, names []string) {
	for _, version := range versions {
		version, ok := version.(map[string]any)
		if !ok {
			continue
		}
		name, _ := version["name"].(string)
		version["served"] = len(names) == 0 || slices.Contains(names, name)
	}
}

func withoutBypass(versions []any) (others []any) {
	for _, version := range versions {
		if version, ok := version.(map[string]any); ok && version["name"] == BypassVersion {
			continue
		}
		others = append(others, version)
	}
	return others
}

// touchVersions changes the descriptions of all versions, or changes them back. Versions whose schemas are
// equal stay equal: kube-apiserver does not accept equal selectable fields for schemas that differ.
func touchVersions(versions []any, on bool) {
	for _, version := range versions {
		version, ok := version.(map[string]any)
		if !ok {
			continue
		}
		description, _, _ := unstructured.NestedString(version, "schema", "openAPIV3Schema", "description")
		description = strings.TrimSuffix(description, schemaMarker)
		switch {
		case on:
			_ = unstructured.SetNestedField(version, description+schemaMarker, "schema", "openAPIV3Schema", "description")
		case description == "":
			unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "description")
		default:
			_ = unstructured.SetNestedField(version, description, "schema", "openAPIV3Schema", "description")
		}
	}
}

// fillTimeout bounds the wait for kube-apiserver to read the objects.
const fillTimeout = 2 * time.Minute

// fillCaches makes kube-apiserver fill the watch caches of all versions while clients still use the
// server. Otherwise it fills them when the first client comes, and answers lists with 429 until
// then. A failure is only reported.
func (m *Migration) fillCaches(ctx context.Context) error {
	found, err := m.definitions(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, fillTimeout)
	defer cancel()
	for _, d := range found {
		for _, version := range d.served() {
			if err := m.fillCache(ctx, local(d.stored().GroupResource().WithVersion(version))); err != nil {
				m.progress("kube-apiserver has not read the %s in the version %s yet, and may have clients try again until it has: %v", d.Name, version, err)
			}
		}
	}
	return nil
}

// fillCache waits until a cache has been filled. Its lists match no object. Unlike a server that starts, a migration
// does not wait for the end of other errors than 429, since it goes on without the cache.
func (m *Migration) fillCache(ctx context.Context, from schema.GroupVersionResource) error {
	for {
		err := cluster.FillWatchCache(ctx, m.kube.Discovery().RESTClient(), path.Join("/apis", from.Group, from.Version, from.Resource))
		if !apierrors.IsTooManyRequests(err) || wait(ctx, pollInterval) != nil {
			return err
		}
	}
}

// local returns a name of a resource under which kube-apiserver always serves its own objects.
// kube-apiserver finds the definition by the resource, a dot and the group, and the APIService by
// the group alone. So things.apps.example of com are things of apps.example.com. Groups of
// definitions have a dot, so that com has no APIService.
func local(resource schema.GroupVersionResource) schema.GroupVersionResource {
	last := strings.LastIndex(resource.Group, ".")
	return schema.GroupVersionResource{Group: resource.Group[last+1:], Version: resource.Version, Resource: resource.Resource + "." + resource.Group[:max(last, 0)]}
}
