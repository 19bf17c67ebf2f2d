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
		if version.Served && version.Name != cluster.BypassVersion {
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

// eachMove calls a function for the defined resources until it returns an error.
func (m *Migration) eachMove(ctx context.Context, do func(move) error) error {
	moves, err := m.moves(ctx)
	for _, move := range moves {
		if err == nil {
			err = do(move)
		}
	}
	return err
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
func (m *Migration) digests(found []definition) (map[string]Digest, error) {
	all := map[string]Digest{}
	for _, d := range found {
		object := d.object.DeepCopy()
		if err := errors.Join(m.withoutBypass(d, object), cluster.Unhide(object)); err != nil {
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
func (m *Migration) unchanged(ctx context.Context) error {
	found, err := m.definitions(ctx)
	if err != nil {
		return err
	}
	now, err := m.digests(found)
	if err != nil {
		return err
	}
	var changes []string
	for _, d := range found {
		if d.DeletionTimestamp != nil {
			changes = append(changes, d.Name+" is being deleted")
		}
	}
	for _, name := range sets.List(sets.KeySet(now).Union(sets.KeySet(m.state.Definitions))) {
		before, known := m.state.Definitions[name]
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
		"change them back and run this again, or run \"migrate abort\", and then plan and run a migration of what they define now", m.state.Group, strings.Join(changes, "; "))
}

// Two ways lead past the APIServices to kube-apiserver's own objects. The API offers no other way
// to do what each of them does.
//
//   - cluster.BypassVersion reads and writes kube-apiserver's objects without its etcd. It is a version of
//     its own, which only exists while objects move back, so that no APIService sends its requests to the
//     server. Neither the policy that freezes writes nor the definition's conversion may apply to it. It has
//     no schema and no subresources, since objects move as they are, with their status, valid or not. So a
//     policy reserves it for the user that moves them.
//   - local reads kube-apiserver's objects in the versions that clients use, while the definitions are
//     not hidden. That fills its caches before clients come, and finds late writes. It changes nothing,
//     and so needs no version.

// bypassTimeout bounds the wait for kube-apiserver to serve a new version.
const bypassTimeout = time.Minute

// bypass returns the resource in BypassVersion.
func (m move) bypass() schema.GroupVersionResource {
	return m.from.GroupResource().WithVersion(cluster.BypassVersion)
}

// movesBack returns the resources that move back. Without kube-apiserver's etcd it adds
// BypassVersion to all definitions, unless they have it.
func (m *Migration) movesBack(ctx context.Context) ([]move, error) {
	if m.config.KubeEtcd == nil {
		if err := m.addBypass(ctx); err != nil {
			return nil, err
		}
	}
	return m.moves(ctx)
}

// addBypass makes kube-apiserver serve its own objects in BypassVersion. Conversion only changes
// the name of the version, and calls no webhook.
func (m *Migration) addBypass(ctx context.Context) error {
	found, err := m.definitions(ctx)
	if err != nil {
		return err
	}
	if m.state.Conversions == nil {
		m.state.Conversions = map[string]*apiextensionsv1.CustomResourceConversion{}
	}
	for _, d := range found {
		if _, saved := m.state.Conversions[d.Name]; !saved || !d.has(cluster.BypassVersion) {
			m.state.Conversions[d.Name] = d.Spec.Conversion
		}
	}
	// The state has to have the conversions before the definitions change.
	if err := m.save(ctx); err != nil {
		return err
	}
	me, err := m.user(ctx)
	if err != nil {
		return err
	}
	err = inOrder(ctx,
		func(ctx context.Context) error {
			return cluster.Apply(ctx, m.dynamic, m.dryRun, m.denying(m.bypassName(), cluster.BypassVersion, "request.userInfo.username == "+strconv.Quote(me))...)
		},
		cluster.Settle,
		m.addVersions,
	)
	if err != nil {
		return err
	}
	for _, d := range found {
		err := eventually(ctx, bypassTimeout, func(ctx context.Context) error {
			_, err := m.dynamic.Resource(d.stored().GroupResource().WithVersion(cluster.BypassVersion)).List(ctx, metav1.ListOptions{Limit: 1})
			return err
		})
		if err != nil {
			return fmt.Errorf("kube-apiserver does not serve the version %s of %s: %w", cluster.BypassVersion, d.Name, err)
		}
	}
	return nil
}

func (m *Migration) addVersions(ctx context.Context) error {
	return m.updateDefinitions(ctx, "adding the version "+cluster.BypassVersion+" to", func(_ definition, definition *unstructured.Unstructured) error {
		m.setCopyAnnotation(definition, keys.CopyKept)
		versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
		if err != nil {
			return err
		}
		_ = unstructured.SetNestedMap(definition.Object, map[string]any{"strategy": "None"}, "spec", "conversion")
		return unstructured.SetNestedSlice(definition.Object, append(withoutVersion(versions), map[string]any{
			"name": cluster.BypassVersion, "served": true, "storage": false,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
		}), "spec", "versions")
	})
}

// removeBypass removes BypassVersion.
func (m *Migration) removeBypass(ctx context.Context) error {
	err := m.define(ctx, "removing the version "+cluster.BypassVersion+" from", "", func(*unstructured.Unstructured) error { return nil })
	if err != nil {
		return err
	}
	return m.allow(ctx, m.bypassName())
}

// forgetBypass removes BypassVersion, and forgets the conversions from before it.
func (m *Migration) forgetBypass(ctx context.Context) error {
	if err := m.removeBypass(ctx); err != nil {
		return err
	}
	m.state.Conversions = nil
	return m.save(ctx)
}

// hide makes kube-apiserver serve its own objects no longer. It ends its watches of them, and forgets their history.
func (m *Migration) hide(ctx context.Context) error {
	return m.define(ctx, "ending the watches of", keys.CopyKept, cluster.Hide)
}

// serve makes kube-apiserver serve its own objects again. Their history begins then.
func (m *Migration) serve(ctx context.Context) error {
	return m.define(ctx, "serving again the versions of", keys.CopyKept, cluster.Unhide)
}

// define changes all definitions, and removes BypassVersion, which an earlier run without kube-apiserver's etcd may
// have left. The annotation tells the server of custom resources what to do with its copy.
func (m *Migration) define(ctx context.Context, doing, annotation string, change func(*unstructured.Unstructured) error) error {
	return m.updateDefinitions(ctx, doing, func(d definition, definition *unstructured.Unstructured) error {
		m.setCopyAnnotation(definition, annotation)
		if err := m.withoutBypass(d, definition); err != nil {
			return err
		}
		return change(definition)
	})
}

// annotate tells the server of custom resources what to do with its copies.
func (m *Migration) annotate(ctx context.Context, annotation string) error {
	if !m.config.Defined {
		return nil
	}
	return m.updateDefinitions(ctx, "annotating", func(_ definition, definition *unstructured.Unstructured) error {
		m.setCopyAnnotation(definition, annotation)
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
func (m *Migration) withoutBypass(d definition, definition *unstructured.Unstructured) error {
	versions, _, err := unstructured.NestedSlice(definition.Object, "spec", "versions")
	if err != nil || !d.has(cluster.BypassVersion) {
		return err
	}
	if saved := m.state.Conversions[d.Name]; saved != nil {
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
		return ok && named["name"] == cluster.BypassVersion
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
			from := local(d.stored().GroupResource().WithVersion(version))
			err := cluster.Eventually(ctx, pollInterval, func(ctx context.Context) error {
				return cluster.FillWatchCache(ctx, m.kube.Discovery().RESTClient(), path.Join("/apis", from.Group, from.Version, from.Resource))
			})
			if err != nil {
				m.progress("kube-apiserver has not read the %s in the version %s yet, and may have clients try again until it has: %v", d.Name, version, err)
			}
		}
	}
	return nil
}

// local returns a name of a resource under which kube-apiserver always serves its own objects.
// kube-apiserver finds the definition by the resource, a dot and the group, and the APIService by
// the group alone. So things.apps.example of com are things of apps.example.com. Groups of
// definitions have a dot, so that com has no APIService.
func local(resource schema.GroupVersionResource) schema.GroupVersionResource {
	last := strings.LastIndex(resource.Group, ".")
	return schema.GroupVersionResource{Group: resource.Group[last+1:], Version: resource.Version, Resource: resource.Resource + "." + resource.Group[:max(last, 0)]}
}

// fixRegister and fixUnregister return what makes clients use the server, or kube-apiserver.
func (m *Migration) fixRegister() string {
	if m.config.Defined {
		return "register the group with \"crd-apiserver register\""
	}
	return "apply the server's APIServices"
}

func (m *Migration) fixUnregister() string {
	if m.config.Defined {
		return fmt.Sprintf("run \"crd-apiserver unregister --groups=%s\"", m.config.Group)
	}
	return "delete the APIService: kube-apiserver creates it again for the definitions"
}
