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

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// fieldManager names this program in the managedFields of objects that it changes.
const fieldManager = "migrate"

// held is the state of an object that a target has.
type held struct {
	content
	uid types.UID
	// revision is etcd's at the last write, if the object is read from etcd.
	revision int64
	// The rest is for writing it through kube-apiserver.
	resourceVersion    string
	deleted, finalized bool
}

// wanted is an object as a target is to have it: as bytes for etcd, or as an object for
// kube-apiserver.
type wanted struct {
	content
	data   []byte
	object *unstructured.Unstructured
}

// target receives copies of the objects while clients use the originals. No client sees or watches
// the copies.
type target interface {
	// encode returns an object as the target is to have it.
	encode(move, *unstructured.Unstructured) (wanted, error)
	// all returns the target's objects of a resource, by key. one returns one object, or nil.
	all(context.Context, move) (map[string]held, error)
	one(ctx context.Context, move move, key string) (*held, error)
	count(context.Context, move) (int, error)
	// write writes an object, or deletes it if none is wanted.
	write(ctx context.Context, move move, key string, before *held, after *wanted) error
}

// inEtcd are objects in an etcd.
type inEtcd struct {
	*clientv3.Client
	// name is the name of the etcd in errors.
	name   string
	prefix func(move) string
	decode func(context.Context, move, *mvccpb.KeyValue) (held, error)
}

func (e inEtcd) all(ctx context.Context, move move) (map[string]held, error) {
	found := map[string]held{}
	err := e.each(ctx, move, func(key string, kv *mvccpb.KeyValue) (err error) {
		found[key], err = e.decode(ctx, move, kv)
		return err
	})
	return found, err
}

// each calls a function for all keys of a resource.
func (e inEtcd) each(ctx context.Context, move move, do func(key string, kv *mvccpb.KeyValue) error) error {
	prefix := e.prefix(move)
	for key := prefix; ; {
		response, err := e.Get(ctx, key, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(pageSize))
		if err != nil {
			return fmt.Errorf("reading the %s from %s: %w", move.GroupResource, e.name, err)
		}
		for _, kv := range response.Kvs {
			key = string(kv.Key)
			if err := do(strings.TrimPrefix(key, prefix), kv); err != nil {
				return err
			}
		}
		if !response.More {
			return nil
		}
		key += "\x00"
	}
}

func (e inEtcd) one(ctx context.Context, move move, key string) (*held, error) {
	key = e.prefix(move) + key
	response, err := e.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", e.name, err)
	}
	if len(response.Kvs) == 0 {
		return nil, nil
	}
	found, err := e.decode(ctx, move, response.Kvs[0])
	return &found, err
}

func (e inEtcd) count(ctx context.Context, move move) (int, error) {
	response, err := e.Get(ctx, e.prefix(move), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("reading %s: %w", e.name, err)
	}
	return int(response.Count), nil
}

// atServer are objects in the server's etcd, as the server stores them.
type atServer struct {
	inEtcd
	m *Migration
}

func (m *Migration) atServer() target {
	return atServer{inEtcd{m.config.Etcd, "the server's etcd", func(move move) string { return move.Prefix }, decodeAtServer}, m}
}

func decodeAtServer(ctx context.Context, move move, kv *mvccpb.KeyValue) (held, error) {
	data, err := readAtServer(ctx, move, kv)
	return held{content: contentOf(data)}, err
}

// readAtServer encodes an object again. An object of an older storage version can then be
// compared.
func readAtServer(ctx context.Context, move move, kv *mvccpb.KeyValue) ([]byte, error) {
	data, _, err := move.Transformer.TransformFromStorage(ctx, kv.Value, value.DefaultContext(kv.Key))
	if err == nil {
		data, err = encode(move.Codec, data)
	}
	if err != nil {
		return nil, fmt.Errorf("the object %s in the server's etcd can't be read; check --encryption-provider-config: %w", kv.Key, err)
	}
	return data, nil
}

func (atServer) encode(move move, object *unstructured.Unstructured) (wanted, error) {
	data, err := object.MarshalJSON()
	if err == nil {
		data, err = encode(move.Codec, data)
	}
	if err != nil {
		return wanted{}, fmt.Errorf("the server can't store it: %w", err)
	}
	return wanted{content: contentOf(data), data: data}, nil
}

// encrypt returns an encoded object as the server stores it.
func encrypt(ctx context.Context, move move, key string, encoded []byte) ([]byte, error) {
	encrypted, err := move.Transformer.TransformToStorage(ctx, encoded, value.DefaultContext(move.Prefix+key))
	if err != nil {
		return nil, fmt.Errorf("encrypting %s: %w", key, err)
	}
	return encrypted, nil
}

func (a atServer) write(ctx context.Context, move move, key string, _ *held, after *wanted) error {
	operation := clientv3.OpDelete(move.Prefix + key)
	if after != nil {
		encrypted, err := encrypt(ctx, move, key, after.data)
		if err != nil {
			return err
		}
		operation = clientv3.OpPut(move.Prefix+key, string(encrypted))
	}
	_, err := a.m.write(ctx, operation)
	return err
}

// atKube returns kube-apiserver's own objects as a target: in its etcd, or else through
// BypassVersion.
func (m *Migration) atKube() target {
	if m.config.KubeEtcd != nil {
		return m.inKubeEtcd()
	}
	return throughKube{m}
}

// inKubeEtcd are objects in kube-apiserver's etcd, in JSON.
type inKubeEtcd struct {
	inEtcd
	m *Migration
}

func (m *Migration) inKubeEtcd() inKubeEtcd {
	prefix := func(move move) string { return path.Join(m.config.KubePrefix, move.Group, move.Resource) + "/" }
	return inKubeEtcd{inEtcd{m.config.KubeEtcd, "kube-apiserver's etcd", prefix, decodeAtKube}, m}
}

// decodeAtKube decodes an object as it is stored. An object in another storage version has another
// content.
func decodeAtKube(_ context.Context, move move, kv *mvccpb.KeyValue) (held, error) {
	object, err := objectAtKube(move, kv)
	if err != nil {
		return held{}, err
	}
	data, err := object.MarshalJSON()
	return held{content: contentOf(data), revision: kv.ModRevision}, err
}

// objectAtKube returns an object as it is stored.
func objectAtKube(move move, kv *mvccpb.KeyValue) (*unstructured.Unstructured, error) {
	if bytes.HasPrefix(kv.Value, []byte("k8s:enc:")) {
		return nil, fmt.Errorf("kube-apiserver encrypts the %s in its etcd: leave out --kube-etcd-servers, so that it writes them itself", move.GroupResource)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(kv.Value); err != nil {
		return nil, fmt.Errorf("kube-apiserver's object %s can't be read: %w", kv.Key, err)
	}
	return object, nil
}

func (inKubeEtcd) encode(move move, object *unstructured.Unstructured) (wanted, error) {
	object.SetAPIVersion(move.from.GroupVersion().String())
	object.SetResourceVersion("")
	data, err := object.MarshalJSON()
	return wanted{content: contentOf(data), data: data}, err
}

// write fails if the object has been written since it was read. Another process may have continued the migration
// while this one was suspended, and clients may write again.
func (k inKubeEtcd) write(ctx context.Context, move move, key string, before *held, after *wanted) error {
	if k.m.claimed {
		// A client may have deleted the object since, so that it does not exist, as before.
		if _, err := k.m.write(ctx); err != nil {
			return err
		}
	}
	key = k.prefix(move) + key
	operation := clientv3.OpDelete(key)
	if after != nil {
		operation = clientv3.OpPut(key, string(after.data))
	}
	var revision int64 // Of what does not exist.
	if before != nil {
		revision = before.revision
	}
	response, err := k.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(operation).Commit()
	if err == nil && !response.Succeeded {
		err = fmt.Errorf("another process has written the key %s of kube-apiserver's etcd meanwhile: see \"migrate status\", and run this again", key)
	}
	return err
}

// throughKube are kube-apiserver's objects as it serves them in BypassVersion.
type throughKube struct{ *Migration }

// encode leaves the resourceVersion and the fields that kube-apiserver sets itself out of the
// comparison. Managers of fields in BypassVersion are compared, since they must not stay.
func (throughKube) encode(move move, object *unstructured.Unstructured) (wanted, error) {
	object.SetAPIVersion(move.from.GroupVersion().String())
	object.SetResourceVersion("")
	compared := object.DeepCopy()
	var managers []metav1.ManagedFieldsEntry
	for _, manager := range object.GetManagedFields() {
		if ofBypass(manager) {
			managers = append(managers, manager)
		}
	}
	compared.SetManagedFields(managers)
	withoutSetByKube(compared)
	if object.GetDeletionTimestamp() != nil {
		_ = unstructured.SetNestedField(compared.Object, true, "metadata", "deletionTimestamp")
	}
	data, err := compared.MarshalJSON()
	return wanted{content: contentOf(data), object: object}, err
}

// ofBypass reports whether a manager of fields has written them in BypassVersion. If such a manager
// stayed, no client could apply the object once that version is gone.
func ofBypass(manager metav1.ManagedFieldsEntry) bool {
	return path.Base(manager.APIVersion) == cluster.BypassVersion
}

// withoutSetByKube removes the metadata that kube-apiserver sets itself.
func withoutSetByKube(object *unstructured.Unstructured) {
	for _, field := range []string{"uid", "generation", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
		unstructured.RemoveNestedField(object.Object, "metadata", field)
	}
}

func (m throughKube) held(move move, object *unstructured.Unstructured) (held, error) {
	found := held{
		uid: object.GetUID(), resourceVersion: object.GetResourceVersion(),
		deleted: object.GetDeletionTimestamp() != nil, finalized: len(object.GetFinalizers()) > 0,
	}
	encoded, err := m.encode(move, object)
	found.content = encoded.content
	return found, err
}

func (m throughKube) all(ctx context.Context, move move) (map[string]held, error) {
	found := map[string]held{}
	_, err := m.list(ctx, move.bypass(), func(object *unstructured.Unstructured) (err error) {
		found[keyOf(object)], err = m.held(move, object)
		return err
	})
	return found, err
}

func (m throughKube) one(ctx context.Context, move move, key string) (*held, error) {
	object, err := m.get(ctx, move.bypass(), key)
	if err != nil || object == nil {
		return nil, err
	}
	found, err := m.held(move, object)
	return &found, err
}

func (m throughKube) count(ctx context.Context, move move) (int, error) {
	_, count, err := m.revisionNow(ctx, move.bypass())
	return count, err
}

func (m throughKube) write(ctx context.Context, move move, key string, before *held, after *wanted) error {
	client, name := m.clientOf(move.bypass(), key)
	if after == nil {
		return deleteHeld(ctx, client, name, before)
	}
	object := after.object
	deleted := object.GetDeletionTimestamp() != nil
	if before != nil && before.deleted && !deleted {
		// The object was deleted since, and created again under the same name.
		if err := deleteHeld(ctx, client, name, before); err != nil {
			return err
		}
		before = nil
	}
	object.SetAPIVersion(move.bypass().GroupVersion().String())
	withoutSetByKube(object)
	var (
		written *unstructured.Unstructured
		err     error
	)
	update := func(uid types.UID, resourceVersion string) {
		object.SetUID(uid)
		object.SetResourceVersion(resourceVersion)
		written, err = client.Update(ctx, object, metav1.UpdateOptions{FieldManager: fieldManager})
	}
	if before == nil {
		written, err = client.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	} else {
		update(before.uid, before.resourceVersion)
	}
	if err == nil && slices.ContainsFunc(written.GetManagedFields(), ofBypass) {
		// An update of nothing else sets the managers as wanted.
		update(written.GetUID(), written.GetResourceVersion())
	}
	if apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err) {
		err = nil // The request was sent twice. All writes are compared afterwards.
	}
	if err != nil || !deleted || before != nil && before.deleted {
		return err
	}
	policy := metav1.DeletePropagationBackground
	switch finalizers := object.GetFinalizers(); {
	case slices.Contains(finalizers, metav1.FinalizerDeleteDependents):
		policy = metav1.DeletePropagationForeground
	case slices.Contains(finalizers, metav1.FinalizerOrphanDependents):
		policy = metav1.DeletePropagationOrphan
	}
	return client.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
}

// deleteHeld deletes an object from kube-apiserver's own etcd despite its finalizers. Controllers
// have handled them for the server's object.
func deleteHeld(ctx context.Context, client dynamic.ResourceInterface, name string, before *held) error {
	policy := metav1.DeletePropagationBackground
	err := client.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &policy})
	if err == nil && before.finalized {
		_, err = client.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{FieldManager: fieldManager})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// removeCopies removes the objects from the server's etcd. Definitions of some may be gone.
func (m *Migration) removeCopies(ctx context.Context) error {
	prefixes := sets.New(m.state.Prefixes...)
	for _, store := range m.config.Stores {
		prefixes.Insert(store.Prefix)
	}
	for _, prefix := range sets.List(prefixes) {
		if _, err := m.write(ctx, clientv3.OpDelete(prefix, clientv3.WithPrefix())); err != nil {
			return err
		}
	}
	m.progress("the server has no objects of %s", m.config.Group)
	_, err := m.write(ctx, clientv3.OpDelete(m.config.HistoryKey))
	return err
}
