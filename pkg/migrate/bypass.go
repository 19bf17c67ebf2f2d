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

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// Three ways lead past the APIServices to what kube-apiserver has itself. Each is for something that
// the API offers no other way for.
//
//   - BypassVersion reads and writes kube-apiserver's objects without its etcd. It is a version of its
//     own, since the policy that freezes writes and the definition's conversion must not apply to it,
//     and since it has no APIService. It has no schema and no subresources, since objects move as they
//     are, with their status, valid or not. So a policy keeps it for the user who moves them.
//   - local reads what kube-apiserver serves in the versions that clients use. That fills its caches
//     before clients come, and finds late writes. It changes nothing, and so needs no version.
//   - schemaMarker makes kube-apiserver end the watches of a resource, and begin its history again.
//     Servers do that when a definition changes, and for no other reason.

// BypassVersion is a version of each resource that only exists while objects move back. In it
// kube-apiserver reads and writes the objects in its own etcd. All other versions lead to the server.
const BypassVersion = "migrate"

// bypassTimeout bounds the wait for kube-apiserver to serve a new version.
const bypassTimeout = time.Minute

// schemaMarker ends the description of a schema in a definition that is changed to end its watches.
const schemaMarker = " (objects are being moved)"

// bypass is where kube-apiserver's own objects of a resource are.
func (m move) bypass() schema.GroupVersionResource {
	return m.from.GroupResource().WithVersion(BypassVersion)
}

// movesBack returns what moves back. Without kube-apiserver's etcd it adds BypassVersion to all
// definitions, unless they have it.
func (s *session) movesBack(ctx context.Context) ([]move, error) {
	if s.config.KubeEtcd == nil {
		if err := s.addBypass(ctx); err != nil {
			return nil, err
		}
	}
	return s.moves(ctx)
}

// addBypass makes kube-apiserver serve what is in its own etcd, in a version of its own. That
// is converted to the stored version by changing its name, so that nobody else is asked.
func (s *session) addBypass(ctx context.Context) error {
	found, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	conversions := map[string]json.RawMessage{}
	maps.Copy(conversions, s.state.Conversions)
	for _, d := range found {
		if _, saved := conversions[d.Name]; !saved {
			conversions[d.Name] = d.Spec.Conversion
		}
	}
	s.state.Conversions = conversions
	// What is changed has to be known before.
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

// removeBypass removes that version, whereupon kube-apiserver also forgets the history of the
// objects: clients that watch have to list them again.
func (s *session) removeBypass(ctx context.Context, annotation string) error {
	err := s.changeDefinitions(ctx, "removing the version "+BypassVersion+" from", func(d definition, definition *unstructured.Unstructured, versions []any) []any {
		if s.config.Defined {
			setCopyAnnotation(definition, annotation)
		}
		s.restoreConversion(d.Name, definition)
		return withoutBypass(versions)
	})
	if err != nil {
		return err
	}
	return s.allow(ctx, s.bypassName())
}

// restoreConversion sets what a definition said about conversion before it had BypassVersion.
func (s *session) restoreConversion(name string, definition *unstructured.Unstructured) {
	var conversion map[string]any
	if saved, ok := s.state.Conversions[name]; ok && json.Unmarshal(saved, &conversion) == nil && conversion != nil {
		_ = unstructured.SetNestedMap(definition.Object, conversion, "spec", "conversion")
	}
}

// annotate says to the server of custom resources what to do with its copies.
func (s *session) annotate(ctx context.Context, annotation string) error {
	if !s.config.Defined {
		return nil
	}
	return s.changeDefinitions(ctx, "annotating", func(_ definition, definition *unstructured.Unstructured, versions []any) []any {
		setCopyAnnotation(definition, annotation)
		return versions
	})
}

// touch changes the definitions, or changes them back, so that kube-apiserver ends its watches, and
// begins its history again. The annotation says whether the server does so, too. BypassVersion, which an
// earlier run without kube-apiserver's etcd may have left, is removed.
func (s *session) touch(ctx context.Context, on bool, annotation string) error {
	return s.changeDefinitions(ctx, "ending the watches of", func(d definition, definition *unstructured.Unstructured, versions []any) []any {
		s.keepServed(d, definition, versions, annotation)
		touchVersions(versions, on)
		s.restoreConversion(d.Name, definition)
		return withoutBypass(versions)
	})
}

// keepServed says to the server of custom resources what to do with its copy of a definition. That of
// another server is served as it was.
func (s *session) keepServed(d definition, definition *unstructured.Unstructured, versions []any, annotation string) {
	if s.config.Defined {
		setCopyAnnotation(definition, annotation)
	} else {
		setServed(versions, s.state.Served[d.Name])
	}
}

// changeDefinitions changes what all definitions of the group specify, unless it leaves them as they are.
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

// updateDefinitions updates all definitions of the group, or their subresource, that a change does not leave as
// they are. If one is refused, it updates the others before it returns the error.
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
				return nil // Even such an update may be refused.
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

// setCopyAnnotation says to the server of custom resources what to do with its copy of a definition.
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

// setServed makes these versions of a definition served, or all of them if none are known.
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

// fillCaches makes kube-apiserver read the objects of all versions into its watch caches, while
// clients still use the server. By itself it does so when the first client comes, and answers
// lists with 429 until it has. If it can't be made to, that is what happens.
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

// fillCache lists nothing from a cache, again and again until the cache has been filled.
func (m *Migration) fillCache(ctx context.Context, from schema.GroupVersionResource) error {
	for {
		err := m.kube.Discovery().RESTClient().Get().AbsPath("/apis", from.Group, from.Version, from.Resource).
			Param("resourceVersion", "0").Param("labelSelector", "no-object-has-this").MaxRetries(0).Do(ctx).Error()
		if !apierrors.IsTooManyRequests(err) || wait(ctx, pollInterval) != nil {
			return err
		}
	}
}

// local is what kube-apiserver has itself of a resource, also while the APIServices lead to a
// server. It looks for the definition by the name of the resource, a dot and the name of the group,
// and only the latter has an APIService: things.apps of example.com are things of apps.example.com.
func local(resource schema.GroupVersionResource) schema.GroupVersionResource {
	head, rest, _ := strings.Cut(resource.Group, ".")
	return schema.GroupVersionResource{Group: rest, Version: resource.Version, Resource: resource.Resource + "." + head}
}
