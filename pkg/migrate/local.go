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
	"strings"

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
	uid types.UID
	// The rest is what it takes to write it through kube-apiserver.
	resourceVersion    string
	deleted, finalized bool
}

// normalized is an object as it is compared: in the stored version, without what two etcds
// can't have in common. What kube-apiserver sets itself is left out if it is the one to write.
func (m *Migration) normalized(object *unstructured.Unstructured, version schema.GroupVersion) (*unstructured.Unstructured, content, error) {
	object.SetAPIVersion(version.String())
	object.SetResourceVersion("")
	compared := object
	if m.config.KubeEtcd == nil {
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

// locals is how kube-apiserver's own objects are read and written while clients use the server's.
// Nobody watches them: the garbage collector sees the server's objects.
type locals interface {
	// all returns those of a resource, by key, and one returns one, or nil.
	all(context.Context, move) (map[string]local, error)
	one(ctx context.Context, move move, key string) (*local, error)
	count(context.Context, move) (int, error)
	// write writes an object, or deletes it if there is none any more.
	write(ctx context.Context, move move, key string, before *local, object *unstructured.Unstructured) error
}

// locals are reached through kube-apiserver's etcd, or else by the version of addBypass.
func (m *Migration) locals() locals {
	if m.config.KubeEtcd != nil {
		return inEtcd{m}
	}
	return throughBypass{m}
}

// inEtcd are objects in kube-apiserver's etcd, in JSON.
type inEtcd struct{ *Migration }

func (m inEtcd) prefix(move move) string {
	return path.Join(m.config.KubePrefix, move.Group, move.Resource) + "/"
}

// localIn is an object as it is stored. One that is stored in another version is another one.
func localIn(value []byte) (local, error) {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(value); err != nil {
		return local{}, err
	}
	data, err := object.MarshalJSON()
	return local{content: contentOf(data), uid: object.GetUID()}, err
}

func (m inEtcd) all(ctx context.Context, move move) (map[string]local, error) {
	found := map[string]local{}
	prefix := m.prefix(move)
	options := []clientv3.OpOption{clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(pageSize)}
	for key := prefix; ; {
		response, err := m.config.KubeEtcd.Get(ctx, key, options...)
		if err != nil {
			return nil, fmt.Errorf("reading kube-apiserver's etcd: %w", err)
		}
		for _, kv := range response.Kvs {
			key = string(kv.Key)
			if found[strings.TrimPrefix(key, prefix)], err = localIn(kv.Value); err != nil {
				return nil, fmt.Errorf("kube-apiserver's object %s can't be read: %w", key, err)
			}
		}
		if !response.More {
			return found, nil
		}
		key += "\x00"
	}
}

func (m inEtcd) one(ctx context.Context, move move, key string) (*local, error) {
	response, err := m.config.KubeEtcd.Get(ctx, m.prefix(move)+key)
	if err != nil {
		return nil, fmt.Errorf("reading kube-apiserver's etcd: %w", err)
	}
	if len(response.Kvs) == 0 {
		return nil, nil
	}
	entry, err := localIn(response.Kvs[0].Value)
	return &entry, err
}

func (m inEtcd) count(ctx context.Context, move move) (int, error) {
	response, err := m.config.KubeEtcd.Get(ctx, m.prefix(move), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("reading kube-apiserver's etcd: %w", err)
	}
	return int(response.Count), nil
}

func (m inEtcd) write(ctx context.Context, move move, key string, _ *local, object *unstructured.Unstructured) error {
	key = m.prefix(move) + key
	if object == nil {
		_, err := m.config.KubeEtcd.Delete(ctx, key)
		return err
	}
	data, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	_, err = m.config.KubeEtcd.Put(ctx, key, string(data))
	return err
}

// throughBypass are objects in the version of addBypass.
type throughBypass struct{ *Migration }

func (m throughBypass) local(object *unstructured.Unstructured, move move) (local, error) {
	entry := local{
		uid: object.GetUID(), resourceVersion: object.GetResourceVersion(),
		deleted: object.GetDeletionTimestamp() != nil, finalized: len(object.GetFinalizers()) > 0,
	}
	var err error
	_, entry.content, err = m.normalized(object, move.from.GroupVersion())
	return entry, err
}

func (m throughBypass) all(ctx context.Context, move move) (map[string]local, error) {
	found := map[string]local{}
	_, err := m.list(ctx, move.bypass(), func(object *unstructured.Unstructured) error {
		var err error
		found[keyOf(object)], err = m.local(object, move)
		return err
	})
	return found, err
}

func (m throughBypass) one(ctx context.Context, move move, key string) (*local, error) {
	object, err := m.get(ctx, move.bypass(), key)
	if err != nil || object == nil {
		return nil, err
	}
	entry, err := m.local(object, move)
	return &entry, err
}

func (m throughBypass) count(ctx context.Context, move move) (int, error) {
	_, count, err := m.revisionNow(ctx, move.bypass())
	return count, err
}

// checkEncryption returns an error if kube-apiserver encrypts what this process would write as
// it is.
func (m *Migration) checkEncryption(ctx context.Context, move move) error {
	if m.config.KubeEtcd == nil {
		return nil
	}
	response, err := m.config.KubeEtcd.Get(ctx, inEtcd{m}.prefix(move), clientv3.WithPrefix(), clientv3.WithLimit(1))
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

func (m throughBypass) write(ctx context.Context, move move, key string, before *local, object *unstructured.Unstructured) error {
	namespace, name := path.Split(key)
	client := m.dynamic.Resource(move.bypass()).Namespace(path.Clean("/" + namespace)[1:])
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
	object.SetAPIVersion(move.bypass().GroupVersion().String())
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
