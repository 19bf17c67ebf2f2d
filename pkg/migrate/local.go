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
	"bytes"
	"context"
	"fmt"
	"path"
	"slices"

	"go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// fieldManager is who changes objects by kube-apiserver, in their managedFields.
const fieldManager = "migrate"

// local is what kube-apiserver has of an object in its own etcd.
type local struct {
	content
	uid             types.UID
	resourceVersion string
	deleted         bool
	finalized       bool
}

// normalized is an object as it is compared: in the stored version, without what two etcds
// can't have in common. What kube-apiserver sets itself is left out if it is the one to write.
func (m *Migration) normalized(object *unstructured.Unstructured, version schema.GroupVersion) (*unstructured.Unstructured, content, error) {
	object.SetAPIVersion(version.String())
	object.SetResourceVersion("")
	compared := object
	if m.KubeEtcd == nil {
		deleted := object.GetDeletionTimestamp() != nil
		compared = object.DeepCopy()
		for _, field := range []string{"uid", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"} {
			unstructured.RemoveNestedField(compared.Object, "metadata", field)
		}
		if deleted {
			_ = unstructured.SetNestedField(compared.Object, true, "metadata", "deletionTimestamp")
		}
	}
	data, err := compared.MarshalJSON()
	return object, contentOf(data), err
}

// locals returns what kube-apiserver has in its own etcd of a resource, by key.
func (m *Migration) locals(ctx context.Context, move move) (map[string]local, error) {
	found := map[string]local{}
	_, err := m.list(ctx, move.door(), func(object *unstructured.Unstructured) error {
		var err error
		found[keyOf(object)], err = m.localOf(object, move)
		return err
	})
	return found, err
}

func (m *Migration) localOf(object *unstructured.Unstructured, move move) (local, error) {
	entry := local{
		uid: object.GetUID(), resourceVersion: object.GetResourceVersion(),
		deleted: object.GetDeletionTimestamp() != nil, finalized: len(object.GetFinalizers()) > 0,
	}
	var err error
	_, entry.content, err = m.normalized(object, move.from.GroupVersion())
	return entry, err
}

// countLocals is how many objects kube-apiserver has in its own etcd.
func (c *claim) countLocals(ctx context.Context, move move) (int, error) {
	_, count, err := c.revisionNow(ctx, move.door())
	return count, err
}

// kubeKey is that of an object in kube-apiserver's etcd.
func (c *claim) kubeKey(move move, key string) string {
	return path.Join(c.KubePrefix, move.Group, move.Resource, key)
}

// checkEncryption returns an error if kube-apiserver encrypts what this process would write as
// it is.
func (m *Migration) checkEncryption(ctx context.Context, move move) error {
	if m.KubeEtcd == nil {
		return nil
	}
	prefix := path.Join(m.KubePrefix, move.Group, move.Resource) + "/"
	response, err := m.KubeEtcd.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithLimit(1))
	if err != nil {
		return fmt.Errorf("reading kube-apiserver's etcd: %w", err)
	}
	for _, kv := range response.Kvs {
		if bytes.HasPrefix(kv.Value, []byte("k8s:enc:")) {
			return fmt.Errorf("kube-apiserver encrypts the %s in its etcd: leave out --kube-etcd-servers, so that it writes them itself", move.GroupResource)
		}
	}
	return nil
}

// writeBack writes an object to kube-apiserver's own etcd, or deletes it there. Nobody watches
// that: the garbage collector sees the server's objects.
func (c *claim) writeBack(ctx context.Context, move move, key string, before *local, object *unstructured.Unstructured) error {
	if c.KubeEtcd != nil {
		if object == nil {
			_, err := c.KubeEtcd.Delete(ctx, c.kubeKey(move, key))
			return err
		}
		data, err := object.MarshalJSON()
		if err != nil {
			return err
		}
		_, err = c.KubeEtcd.Put(ctx, c.kubeKey(move, key), string(data))
		return err
	}
	namespace, name := path.Split(key)
	client := c.dynamic.Resource(move.door()).Namespace(path.Clean("/" + namespace)[1:])
	if object == nil {
		return deleteLocal(ctx, client, name, before)
	}
	deleted := object.GetDeletionTimestamp() != nil
	if before != nil && before.deleted && !deleted {
		// It was deleted since, and created again under the same name.
		if err := deleteLocal(ctx, client, name, before); err != nil {
			return err
		}
		before = nil
	}
	object.SetAPIVersion(move.door().GroupVersion().String())
	for _, field := range []string{"uid", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
	var err error
	if before == nil {
		_, err = client.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		object.SetUID(before.uid)
		object.SetResourceVersion(before.resourceVersion)
		_, err = client.Update(ctx, object, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		err = nil // It was sent twice. What is written is compared afterwards.
	}
	if err != nil || !deleted || before != nil && before.deleted {
		return err
	}
	policy := metav1.DeletePropagationBackground
	for finalizer, of := range map[string]metav1.DeletionPropagation{
		metav1.FinalizerDeleteDependents: metav1.DeletePropagationForeground, metav1.FinalizerOrphanDependents: metav1.DeletePropagationOrphan,
	} {
		if slices.Contains(object.GetFinalizers(), finalizer) {
			policy = of
		}
	}
	return client.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
}

// deleteLocal deletes an object from kube-apiserver's own etcd, whatever its finalizers: they
// have been worked off, for the server's object.
func deleteLocal(ctx context.Context, client dynamic.ResourceInterface, name string, before *local) error {
	if before.finalized {
		_, err := client.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{FieldManager: fieldManager})
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	policy := metav1.DeletePropagationBackground
	err := client.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
