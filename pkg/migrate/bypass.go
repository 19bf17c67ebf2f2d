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
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// Two ways lead past the APIServices to kube-apiserver's own objects. The API offers no other way
// to do what each of them does.
//
//   - BypassVersion reads and writes kube-apiserver's objects without its etcd. It is a version of
//     its own, so that no APIService sends its requests to the server. Neither the policy that
//     freezes writes nor the definition's conversion may apply to it. It has no schema and no
//     subresources, since objects move as they are, with their status, valid or not. So a policy
//     reserves it for the user that moves them.
//   - local reads kube-apiserver's objects in the versions that clients use, while the definitions are
//     not hidden. That fills its caches before clients come, and finds late writes. It changes nothing,
//     and so needs no version.

// BypassVersion is a version of each resource that only exists while objects move back. In it
// kube-apiserver reads and writes the objects in its own etcd. All other versions lead to the server.
const BypassVersion = cluster.BypassVersion

// bypassTimeout bounds the wait for kube-apiserver to serve a new version.
const bypassTimeout = time.Minute

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
	conversions := map[string]*apiextensionsv1.CustomResourceConversion{}
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
	if err := cluster.Apply(ctx, s.dynamic, s.dryRun, s.denying(s.bypassName(), []string{BypassVersion}, "request.userInfo.username == "+strconv.Quote(me))...); err != nil {
		return err
	}
	if err := cluster.Settle(ctx); err != nil {
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
	return s.updateDefinitions(ctx, "adding the version "+BypassVersion+" to", func(_ definition, definition *unstructured.Unstructured) error {
		s.setCopyAnnotation(definition, keys.CopyKept)
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		if err != nil {
			return err
		}
		_ = unstructured.SetNestedMap(definition.Object, map[string]any{"strategy": "None"}, "spec", "conversion")
		return unstructured.SetNestedSlice(definition.Object, append(withoutVersion(versions), map[string]any{
			"name": BypassVersion, "served": true, "storage": false,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}), "spec", "versions")
	})
}

// removeBypass removes BypassVersion.
func (s *session) removeBypass(ctx context.Context) error {
	err := s.define(ctx, "removing the version "+BypassVersion+" from", "", func(*unstructured.Unstructured) error { return nil })
	if err != nil {
		return err
	}
	return s.allow(ctx, s.bypassName())
}

// hide makes kube-apiserver serve its own objects no longer. It ends its watches of them, and forgets their history.
func (s *session) hide(ctx context.Context, annotation string) error {
	return s.define(ctx, "ending the watches of", annotation, cluster.Hide)
}

// serve makes kube-apiserver serve its own objects again. Their history begins then.
func (s *session) serve(ctx context.Context, annotation string) error {
	return s.define(ctx, "serving again the versions of", annotation, cluster.Unhide)
}

// define changes all definitions, and removes BypassVersion, which an earlier run without kube-apiserver's etcd may
// have left. The annotation tells the server of custom resources what to do with its copy.
func (s *session) define(ctx context.Context, doing, annotation string, change func(*unstructured.Unstructured) error) error {
	return s.updateDefinitions(ctx, doing, func(d definition, definition *unstructured.Unstructured) error {
		s.setCopyAnnotation(definition, annotation)
		if err := s.withoutBypass(d, definition); err != nil {
			return err
		}
		return change(definition)
	})
}

// annotate tells the server of custom resources what to do with its copies.
func (s *session) annotate(ctx context.Context, annotation string) error {
	if !s.config.Defined {
		return nil
	}
	return s.updateDefinitions(ctx, "annotating", func(_ definition, definition *unstructured.Unstructured) error {
		s.setCopyAnnotation(definition, annotation)
		return nil
	})
}

// updateDefinitions updates all definitions of the group that a function changes. If one update is refused, it makes
// the others before it returns the error.
func (m *Migration) updateDefinitions(ctx context.Context, doing string, change func(d definition, object *unstructured.Unstructured) error) error {
	found, err := m.definitions(ctx)
	if err != nil {
		return err
	}
	var refused error
	for _, d := range found {
		err := cluster.UpdateDefinition(ctx, m.dynamic, d.Name, m.dryRun, func(object *unstructured.Unstructured) error { return change(d, object) })
		if err != nil && refused == nil {
			refused = fmt.Errorf("%s the CustomResourceDefinition %s: %w", doing, d.Name, err)
		}
	}
	return refused
}

// setCopyAnnotation tells the server of custom resources what to do with its copy of a definition.
func (m *Migration) setCopyAnnotation(definition *unstructured.Unstructured, value string) {
	if m.config.Defined {
		cluster.Annotate(definition, keys.CopyAnnotation, value)
	}
}

// withoutBypass removes BypassVersion from a definition, and restores the conversion from before it.
func (s *session) withoutBypass(d definition, definition *unstructured.Unstructured) error {
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil || !d.has(BypassVersion) {
		return err
	}
	if saved := s.state.Conversions[d.Name]; saved != nil {
		conversion, err := runtime.DefaultUnstructuredConverter.ToUnstructured(saved)
		if err != nil {
			return err
		}
		_ = unstructured.SetNestedMap(definition.Object, conversion, "spec", "conversion")
	}
	return unstructured.SetNestedSlice(definition.Object, withoutVersion(versions), "spec", "versions")
}

// withoutVersion returns the versions without BypassVersion.
func withoutVersion(versions []any) []any {
	return slices.DeleteFunc(versions, func(version any) bool {
		named, ok := version.(map[string]any)
		return ok && named["name"] == BypassVersion
	})
}

// fillTimeout bounds the wait for kube-apiserver to read the objects. Writes of clients wait, too.
const fillTimeout = 20 * time.Second

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
