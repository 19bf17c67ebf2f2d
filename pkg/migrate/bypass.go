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
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/retry"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// BypassVersion is a version of each resource that only exists while objects move back. By it
// kube-apiserver reads and writes the objects in its own etcd, while all other versions lead
// to the server.
const BypassVersion = "migrate"

// bypassTimeout bounds the wait for kube-apiserver to serve a new version.
const bypassTimeout = time.Minute

// schemaMarker ends the description of a schema in a definition that was changed for no other
// reason than to have its watches ended: that is what a server does on any change.
const schemaMarker = " (objects are being moved)"

// bypass is where kube-apiserver's own objects of a resource are.
func (m move) bypass() schema.GroupVersionResource {
	return m.from.GroupResource().WithVersion(BypassVersion)
}

// openedMoves returns what is to be moved. Without kube-apiserver's etcd it adds the bypass version to all
// definitions, unless they have it.
func (s *session) openedMoves(ctx context.Context, found []definition) ([]move, error) {
	if s.config.KubeEtcd == nil {
		if err := s.addBypass(ctx, found); err != nil {
			return nil, err
		}
	}
	return s.moves(ctx)
}

// addBypass makes kube-apiserver serve what is in its own etcd, in a version of its own. That
// is converted to the stored version by changing its name, so that nobody else is asked.
func (s *session) addBypass(ctx context.Context, found []definition) error {
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
	for _, d := range found {
		err := s.changeDefinition(ctx, d.Name, func(definition *unstructured.Unstructured, versions []any) []any {
			if s.config.Defined {
				setCopyAnnotation(definition, keys.CopyKept)
			} else {
				setServed(versions, s.state.Served[d.Name])
			}
			_ = unstructured.SetNestedMap(definition.Object, map[string]any{"strategy": "None"}, "spec", "conversion")
			return append(withoutBypass(versions), map[string]any{
				"name": BypassVersion, "served": true, "storage": false,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			})
		})
		if err != nil {
			return fmt.Errorf("adding the version %s to the CustomResourceDefinition %s: %w", BypassVersion, d.Name, err)
		}
		bypass := d.stored().GroupResource().WithVersion(BypassVersion)
		err = eventually(ctx, bypassTimeout, func(ctx context.Context) error {
			_, err := s.dynamic.Resource(bypass).List(ctx, metav1.ListOptions{Limit: 1})
			return err
		})
		if err != nil {
			return fmt.Errorf("kube-apiserver does not serve the version %s of %s: %w", BypassVersion, d.Name, err)
		}
	}
	return nil
}

// removeBypass removes that version, whereupon kube-apiserver also forgets the history of the
// objects: who watches has to list them again.
func (s *session) removeBypass(ctx context.Context, found []definition, annotation string) error {
	for _, d := range found {
		err := s.changeDefinition(ctx, d.Name, func(definition *unstructured.Unstructured, versions []any) []any {
			if s.config.Defined {
				setCopyAnnotation(definition, annotation)
			}
			var conversion map[string]any
			if saved, ok := s.state.Conversions[d.Name]; ok && json.Unmarshal(saved, &conversion) == nil && conversion != nil {
				_ = unstructured.SetNestedMap(definition.Object, conversion, "spec", "conversion")
			}
			return withoutBypass(versions)
		})
		if err != nil {
			return fmt.Errorf("removing the version %s from the CustomResourceDefinition %s: %w", BypassVersion, d.Name, err)
		}
	}
	return nil
}

// annotate says to the server of custom resources what to do with its copies.
func (s *session) annotate(ctx context.Context, found []definition, annotation string) error {
	if !s.config.Defined {
		return nil
	}
	for _, d := range found {
		err := s.changeDefinition(ctx, d.Name, func(definition *unstructured.Unstructured, versions []any) []any {
			setCopyAnnotation(definition, annotation)
			return versions
		})
		if err != nil {
			return fmt.Errorf("annotating the CustomResourceDefinition %s: %w", d.Name, err)
		}
	}
	return nil
}

// touch changes the definitions, or changes them back, so that kube-apiserver ends its watches, and
// begins its history again. The annotation says whether the server does so, too.
func (s *session) touch(ctx context.Context, on bool, annotation string) error {
	found, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	for _, d := range found {
		err := s.changeDefinition(ctx, d.Name, func(definition *unstructured.Unstructured, versions []any) []any {
			if s.config.Defined {
				setCopyAnnotation(definition, annotation)
			} else {
				setServed(versions, s.state.Served[d.Name])
			}
			touchVersion(versions, on)
			return withoutBypass(versions)
		})
		if err != nil {
			return fmt.Errorf("ending the watches of the CustomResourceDefinition %s: %w", d.Name, err)
		}
	}
	return nil
}

// changeDefinition changes a definition, unless that changes nothing.
func (m *Migration) changeDefinition(ctx context.Context, name string, change func(definition *unstructured.Unstructured, versions []any) []any) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		definition, err := m.definitionClient().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		versions, found, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		if err == nil && !found {
			err = errors.New("it has no versions")
		}
		if err != nil {
			return err
		}
		versions = change(definition, versions)
		if err := unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions"); err != nil {
			return err
		}
		_, err = m.definitionClient().Update(ctx, definition, metav1.UpdateOptions{})
		return err
	})
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

// touchVersion changes the description of the first version, or changes it back.
func touchVersion(versions []any, on bool) {
	if len(versions) == 0 {
		return
	}
	version, ok := versions[0].(map[string]any)
	if !ok {
		return
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
