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

// DoorVersion is a version of each resource that only exists while objects move back. By it
// kube-apiserver reads and writes the objects in its own etcd, while all other versions lead
// to the server.
const DoorVersion = "migrate"

// doorTimeout bounds the wait for kube-apiserver to serve a new version.
const doorTimeout = time.Minute

// touched ends the description of a schema in a definition that was changed for no other
// reason than to have its watches ended: that is what a server does on any change.
const touched = " (objects are being moved)"

// door is where kube-apiserver's own objects of a resource are.
func (m move) door() schema.GroupVersionResource {
	return m.from.GroupResource().WithVersion(DoorVersion)
}

// openedMoves returns what is to be moved. Without kube-apiserver's etcd it opens the doors of all
// definitions, if they are not open yet.
func (c *claim) openedMoves(ctx context.Context, found []definition) ([]move, error) {
	if c.KubeEtcd == nil {
		if err := c.openDoors(ctx, found); err != nil {
			return nil, err
		}
	}
	return c.moves(ctx)
}

// openDoors makes kube-apiserver serve what is in its own etcd, in a version of its own. That
// is converted to the stored version by changing its name, so that nobody else is asked.
func (c *claim) openDoors(ctx context.Context, found []definition) error {
	conversions := map[string]json.RawMessage{}
	maps.Copy(conversions, c.Conversions)
	for _, d := range found {
		if _, saved := conversions[d.Name]; !saved {
			conversions[d.Name] = d.Spec.Conversion
		}
	}
	c.Conversions = conversions
	// What is changed has to be known before.
	if err := c.save(ctx); err != nil {
		return err
	}
	for _, d := range found {
		err := c.changeDefinition(ctx, d.Name, func(definition *unstructured.Unstructured, versions []any) []any {
			if c.Defined {
				setCopyAnnotation(definition, keys.CopyKept)
			} else {
				setServed(versions, c.Served[d.Name])
			}
			_ = unstructured.SetNestedMap(definition.Object, map[string]any{"strategy": "None"}, "spec", "conversion")
			return append(withoutDoor(versions), map[string]any{
				"name": DoorVersion, "served": true, "storage": false,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			})
		})
		if err != nil {
			return fmt.Errorf("adding the version %s to the CustomResourceDefinition %s: %w", DoorVersion, d.Name, err)
		}
		door := d.stored().GroupResource().WithVersion(DoorVersion)
		err = eventually(ctx, doorTimeout, func(ctx context.Context) error {
			_, err := c.dynamic.Resource(door).List(ctx, metav1.ListOptions{Limit: 1})
			return err
		})
		if err != nil {
			return fmt.Errorf("kube-apiserver does not serve the version %s of %s: %w", DoorVersion, d.Name, err)
		}
	}
	return nil
}

// closeDoors removes that version, whereupon kube-apiserver also forgets the history of the
// objects: who watches has to list them again.
func (c *claim) closeDoors(ctx context.Context, found []definition, annotation string) error {
	for _, d := range found {
		err := c.changeDefinition(ctx, d.Name, func(definition *unstructured.Unstructured, versions []any) []any {
			if c.Defined {
				setCopyAnnotation(definition, annotation)
			}
			var conversion map[string]any
			if saved, ok := c.Conversions[d.Name]; ok && json.Unmarshal(saved, &conversion) == nil && conversion != nil {
				_ = unstructured.SetNestedMap(definition.Object, conversion, "spec", "conversion")
			}
			return withoutDoor(versions)
		})
		if err != nil {
			return fmt.Errorf("removing the version %s from the CustomResourceDefinition %s: %w", DoorVersion, d.Name, err)
		}
	}
	return nil
}

// annotate says to the server of custom resources what to do with its copies.
func (c *claim) annotate(ctx context.Context, found []definition, annotation string) error {
	if !c.Defined {
		return nil
	}
	for _, d := range found {
		err := c.changeDefinition(ctx, d.Name, func(definition *unstructured.Unstructured, versions []any) []any {
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
func (c *claim) touch(ctx context.Context, on bool, annotation string) error {
	found, err := c.definitions(ctx)
	if err != nil {
		return err
	}
	for _, d := range found {
		err := c.changeDefinition(ctx, d.Name, func(definition *unstructured.Unstructured, versions []any) []any {
			if c.Defined {
				setCopyAnnotation(definition, annotation)
			} else {
				setServed(versions, c.Served[d.Name])
			}
			touchVersion(versions, on)
			return withoutDoor(versions)
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

func withoutDoor(versions []any) (others []any) {
	for _, version := range versions {
		if version, ok := version.(map[string]any); ok && version["name"] == DoorVersion {
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
	description = strings.TrimSuffix(description, touched)
	switch {
	case on:
		_ = unstructured.SetNestedField(version, description+touched, "schema", "openAPIV3Schema", "description")
	case description == "":
		unstructured.RemoveNestedField(version, "schema", "openAPIV3Schema", "description")
	default:
		_ = unstructured.SetNestedField(version, description, "schema", "openAPIV3Schema", "description")
	}
}
