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

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/retry"
)

// ServedAnnotation is on a CustomResourceDefinition of a group that another server has. Its value has the names of the
// versions that clients have there, with commas between them. kube-apiserver itself serves none of them. If it did,
// it would answer from its own etcd while it starts, until it knows the APIServices: an object would not be found, a
// list would be empty, and the garbage collector would delete dependents. For a version that is not served it answers
// 503 until then (WithMuxAndDiscoveryComplete and notfoundhandler in k8s.io/apiserver).
//
// Upstream fault 89.
const ServedAnnotation = "crd-apiserver/served"

// ErrShownByArgoCD says what Argo CD shows of a definition that is hidden. Server-side diff shows no difference.
var ErrShownByArgoCD = errors.New("it is applied by Argo CD, which shows it as OutOfSync, since kube-apiserver serves none of its versions any more: " +
	"tell Argo CD to use server-side diff with mutations, or to ignore .spec.versions[].served of CustomResourceDefinitions")

// AppliedByArgoCD reports whether Argo CD applies an object.
func AppliedByArgoCD(object metav1.Object) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == "argocd-controller" })
}

func definitionResource() schema.GroupVersionResource {
	return apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions")
}

// ServedVersions returns the versions that clients of a CustomResourceDefinition have, whichever server they reach.
// served are those that the definition itself serves, but for BypassVersion.
func ServedVersions(definition metav1.Object, served ...string) []string {
	if annotation := definition.GetAnnotations()[ServedAnnotation]; len(served) == 0 && annotation != "" {
		return strings.Split(annotation, ",")
	}
	return served
}

// Hide makes a CustomResourceDefinition serve no version but BypassVersion, and notes the others in ServedAnnotation.
func Hide(definition *unstructured.Unstructured) error {
	var served []string
	err := eachVersion(definition, func(name string, version map[string]any) {
		if version["served"] == true {
			served, version["served"] = append(served, name), false
		}
	})
	if err != nil || len(served) == 0 {
		return err
	}
	Annotate(definition, ServedAnnotation, strings.Join(served, ","))
	return nil
}

// Unhide makes a CustomResourceDefinition serve again what Hide noted.
func Unhide(definition *unstructured.Unstructured) error {
	versions := ServedVersions(definition)
	err := eachVersion(definition, func(name string, version map[string]any) {
		if slices.Contains(versions, name) {
			version["served"] = true
		}
	})
	Annotate(definition, ServedAnnotation, "")
	return err
}

// eachVersion lets a function change all versions but BypassVersion.
func eachVersion(definition *unstructured.Unstructured, change func(name string, version map[string]any)) error {
	versions, found, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil || !found {
		return errors.Join(err, fmt.Errorf("the CustomResourceDefinition %s has no versions", definition.GetName()))
	}
	for _, version := range versions {
		if version, ok := version.(map[string]any); ok {
			if name, _ := version["name"].(string); name != BypassVersion {
				change(name, version)
			}
		}
	}
	return unstructured.SetNestedSlice(definition.Object, versions, "spec", "versions")
}

// Annotate sets an annotation, or removes it if the value is empty.
func Annotate(object *unstructured.Unstructured, name, value string) {
	annotations := object.GetAnnotations()
	if value != "" {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[name] = value
	} else if delete(annotations, name); len(annotations) == 0 {
		annotations = nil
	}
	object.SetAnnotations(annotations)
}

// UpdateDefinition updates a CustomResourceDefinition, or a subresource of it, that a function changes. It does not
// become the owner of what it changes: a server-side apply by the owner would get a conflict.
func UpdateDefinition(ctx context.Context, client dynamic.Interface, name string, dryRun []string, change func(*unstructured.Unstructured) error, subresources ...string) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		definition, err := client.Resource(definitionResource()).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		before := definition.DeepCopy()
		if err := change(definition); err != nil || equality.Semantic.DeepEqual(before, definition) {
			return err // Even an update without changes may be refused.
		}
		options := metav1.UpdateOptions{FieldManager: fieldManager, DryRun: dryRun}
		if definition, err = client.Resource(definitionResource()).Update(ctx, definition, options, subresources...); err != nil || len(dryRun) > 0 {
			return err
		}
		all := definition.GetManagedFields()
		others := slices.DeleteFunc(slices.Clone(all), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == fieldManager })
		if len(others) == len(all) {
			return nil
		}
		definition.SetManagedFields(others)
		_, err = client.Resource(definitionResource()).Update(ctx, definition, options, subresources...)
		return err
	})
}

// HideDefinitions hides all CustomResourceDefinitions of groups whose APIServices lead to another server by now.
// kube-apiserver ends its watches of them, without telling clients that the objects were deleted. warn gets what the
// operator should know.
func HideDefinitions(ctx context.Context, client dynamic.Interface, warn func(string), groups ...string) error {
	// A kube-apiserver that learned of this before it learns of the APIServices would answer 404.
	if err := Settle(ctx); err != nil {
		return err
	}
	return updateDefinitions(ctx, client, groups, func(definition *unstructured.Unstructured) error {
		if AppliedByArgoCD(definition) {
			warn(fmt.Sprintf("CustomResourceDefinition %s: %v", definition.GetName(), ErrShownByArgoCD))
		}
		return Hide(definition)
	})
}

// ServeDefinitions makes kube-apiserver serve all CustomResourceDefinitions of groups again, and returns when all
// kube-apiservers should do so.
func ServeDefinitions(ctx context.Context, client dynamic.Interface, groups ...string) error {
	if err := updateDefinitions(ctx, client, groups, Unhide); err != nil {
		return err
	}
	return Settle(ctx)
}

func updateDefinitions(ctx context.Context, client dynamic.Interface, groups []string, change func(*unstructured.Unstructured) error) error {
	list, err := client.Resource(definitionResource()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, definition := range list.Items {
		group, _, _ := unstructured.NestedString(definition.Object, "spec", "group")
		if !slices.Contains(groups, group) {
			continue
		}
		if err := UpdateDefinition(ctx, client, definition.GetName(), nil, change); err != nil {
			return fmt.Errorf("changing served in the versions of the CustomResourceDefinition %s: %w", definition.GetName(), err)
		}
	}
	return nil
}
