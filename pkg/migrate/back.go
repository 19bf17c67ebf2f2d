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
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	"restaurant.programming-kubernetes.info/apiserver/pkg/aggregation"
	"restaurant.programming-kubernetes.info/apiserver/pkg/stored"
)

// errAllNew is the error for objects of which kube-apiserver has no copies.
var errAllNew = errors.New("kube-apiserver has no copies of the objects any more, so that it would give a new UID to all of them, and the garbage collector would delete what they own: give --kube-etcd-servers")

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

// copyOneBack makes one of kube-apiserver's own objects equal to the server's.
func (c *claim) copyOneBack(ctx context.Context, move move, key string, position *position) (written bool, err error) {
	object, err := c.get(ctx, move.from, key)
	if err != nil {
		return false, err
	}
	own, err := c.get(ctx, move.door(), key)
	if err != nil {
		return false, err
	}
	var before *local
	if own != nil {
		entry, err := c.localOf(own, move)
		if err != nil {
			return false, err
		}
		before = &entry
	}
	if object == nil {
		if before == nil {
			return false, nil
		}
		return true, c.writeBack(ctx, move, key, before, nil)
	}
	if c.KubeEtcd == nil && (before == nil || before.uid != object.GetUID()) {
		position.newUIDs.Insert(key)
	}
	object, content, err := c.normalized(object, move.from.GroupVersion())
	if err != nil || before != nil && before.content == content {
		return false, err
	}
	return true, c.writeBack(ctx, move, key, before, object)
}

// countLocals is how many objects kube-apiserver has in its own etcd.
func (c *claim) countLocals(ctx context.Context, move move) (int, error) {
	_, count, err := c.revisionNow(ctx, move.door())
	return count, err
}

// toKube copies the server's objects to kube-apiserver.
func (c *claim) toKube() follower {
	return follower{pass: c.copyBack, verify: c.verifyBack, one: c.copyOneBack, count: c.countLocals}
}

// compareBack calls a function for each object that kube-apiserver has not in its own etcd, or
// in another state, and for each that the server has not, with nil.
func (m *Migration) compareBack(ctx context.Context, move move, differs func(key string, before *local, object *unstructured.Unstructured) error) (difference, error) {
	found := newDifference()
	locals, err := m.locals(ctx, move)
	if err != nil {
		return found, err
	}
	found.revision, err = m.list(ctx, move.from, func(object *unstructured.Unstructured) error {
		found.objects++
		key := path.Join(object.GetNamespace(), object.GetName())
		object, content, err := m.normalized(object, move.from.GroupVersion())
		if err != nil {
			return fmt.Errorf("the object %s can't be encoded: %w", key, err)
		}
		m.meter.add(content.size)
		before, exists := locals[key]
		delete(locals, key)
		if m.KubeEtcd == nil && (!exists || before.uid != object.GetUID()) {
			found.newUIDs.Insert(key)
		}
		if exists && before.content == content {
			return nil
		}
		found.written++
		found.keys.Insert(key)
		if !exists {
			return differs(key, nil, object)
		}
		return differs(key, &before, object)
	})
	if err != nil {
		return found, err
	}
	for key, before := range locals {
		found.deleted++
		found.keys.Insert(key)
		if err := differs(key, &before, nil); err != nil {
			return found, err
		}
	}
	return found, nil
}

// copyBack makes kube-apiserver's own objects equal to the server's.
func (c *claim) copyBack(ctx context.Context, move move) (difference, error) {
	if err := c.checkEncryption(ctx, move); err != nil {
		return difference{}, err
	}
	// Of a process that has been continued by another one.
	if err := c.save(ctx); err != nil {
		return difference{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg    sync.WaitGroup
		slots = make(chan struct{}, writers)
	)
	found, err := c.compareBack(ctx, move, func(key string, before *local, object *unstructured.Unstructured) error {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := c.writeBack(ctx, move, key, before, object); err != nil {
				cancel(fmt.Errorf("writing %s %s to kube-apiserver: %w", move.GroupResource, key, err))
			}
		})
		return context.Cause(ctx)
	})
	wg.Wait()
	if cause := context.Cause(ctx); cause != nil {
		return difference{}, cause
	}
	return found, err
}

// verifyBack compares all objects, and returns errDiffers if some differ.
func (c *claim) verifyBack(ctx context.Context, move move) (difference, error) {
	var keys []string
	found, err := c.compareBack(ctx, move, func(key string, _ *local, _ *unstructured.Unstructured) error {
		if len(keys) < maxNamed {
			keys = append(keys, key)
		}
		return nil
	})
	if err == nil && len(keys) > 0 {
		slices.Sort(keys)
		err = fmt.Errorf("%w: %d of %s, such as %v; a webhook or a policy may change or refuse what is written", errDiffers, found.changes(), move.GroupResource, keys)
	}
	return found, err
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

// Back moves the objects back into the CustomResourceDefinitions, or continues to, and returns
// when clients use these. If it returns an error before the phase Switching, clients can write
// to the server as before.
func (m *Migration) Back(ctx context.Context) error {
	f, err := m.listen()
	if err != nil {
		return err
	}
	defer f.close()
	c, err := m.claim(ctx, func(state State) error {
		if state.Returning || state.Phase == Moved {
			return nil
		}
		return fmt.Errorf("the migration is in the phase %s: objects can move back when it is in the phase %s; until then, \"migrate abort\" undoes it", state.Phase, Moved)
	})
	if errors.Is(err, ErrNone) {
		// The migration has been finished, or the server was installed before there were objects.
		if err := m.checkRegistered(ctx); err != nil {
			return err
		}
		if m.KubeEtcd == nil {
			return errAllNew
		}
		c, err = m.begin(ctx)
		if err == nil {
			c.Phase = Moved
		}
	}
	if err != nil || c.Phase == Returned {
		return err
	}
	if c.Phase == Moved {
		if err := m.checkKubeGap(ctx); err != nil {
			return err
		}
		c.Returning, c.Conversions, c.NewUIDs = true, nil, nil
		if err := c.enter(ctx, Copying); err != nil {
			return err
		}
	}
	return c.through(ctx, Returned, map[Phase]step{
		Copying:   {Freezing, c.copyAllBack},
		Freezing:  {Switching, func(ctx context.Context) error { return c.freezeAndCompareBack(ctx, f) }},
		Switching: {Releasing, func(ctx context.Context) error { return c.switchBack(ctx, f) }},
		Releasing: {Returned, c.releaseBack},
	})
}

// PlanBack finds out whether the objects can move back, and what happens to them. It changes
// nothing.
func (m *Migration) PlanBack(ctx context.Context) ([]Finding, error) {
	state, err := m.Status(ctx)
	if err != nil && !errors.Is(err, ErrNone) {
		return nil, err
	}
	p := &plan{Migration: m}
	for _, check := range []struct {
		name   string
		reason Reason
		run    func(context.Context) error
	}{
		{"migration", NotMoved, func(ctx context.Context) error { return m.checkReturnable(ctx, state) }},
		{"apiservices", NotRegistered, m.checkRegistered},
		{"etcd", RevisionTooLow, m.checkKubeGap},
		{"encryption", Encrypted, m.checkEncryptions},
	} {
		finding := Finding{Check: check.name, Status: OK, Cause: nothing}
		if err := check.run(ctx); err != nil {
			finding = Finding{check.name, check.reason, Failure, err.Error(), ""}
		}
		p.findings = append(p.findings, finding)
	}
	moves, err := m.moves(ctx)
	if err != nil {
		return nil, err
	}
	p.check = "objects"
	for _, move := range moves {
		if err := p.planBackOf(ctx, move, state); err != nil {
			return nil, err
		}
	}
	return p.findings, nil
}

func (m *Migration) checkReturnable(_ context.Context, state State) error {
	switch {
	case state.Phase == "" && m.KubeEtcd == nil:
		return errAllNew
	case state.Phase == "", state.Phase == Moved, state.Returning && state.Phase != Returned:
		return nil
	}
	return fmt.Errorf("the migration is in the phase %s, and not in %s", state.Phase, Moved)
}

func (m *Migration) checkEncryptions(ctx context.Context) error {
	moves, err := m.moves(ctx)
	for _, move := range moves {
		err = errors.Join(err, m.checkEncryption(ctx, move))
	}
	return err
}

// planBackOf names the objects that get another UID.
func (p *plan) planBackOf(ctx context.Context, move move, state State) error {
	count, created := 0, []string{}
	_, err := p.list(ctx, move.from, func(object *unstructured.Unstructured) error {
		count++
		if !object.GetCreationTimestamp().Time.Before(state.Switched) {
			created = append(created, path.Join(object.GetNamespace(), object.GetName()))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if p.KubeEtcd != nil || len(created) == 0 {
		p.notice(ObjectsMove, "", "%d %s would move back, with their UIDs", count, move.GroupResource)
		return nil
	}
	p.notice(NewUIDs, "give --kube-etcd-servers to keep their UIDs", "%d %s would move back, of which %d get another UID, since they were created after the others had moved, and the garbage collector deletes what they own: %v", count, move.GroupResource, len(created), created)
	return nil
}

// checkRegistered returns an error unless the server serves the group.
func (m *Migration) checkRegistered(ctx context.Context) error {
	found, err := m.definitions(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no CustomResourceDefinition defines a resource of %s: apply them first", m.Group)
	}
	for _, name := range m.APIServices {
		apiService, err := m.aggregator.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if err == nil && apiService.Spec.Service != nil {
			return nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading the APIService %s: %w", name, err)
		}
	}
	return fmt.Errorf("no version of %s leads to a server: there is nothing to move back", m.Group)
}

// copyAllBack copies the objects while they change.
func (c *claim) copyAllBack(ctx context.Context) error {
	found, err := c.definitions(ctx)
	if err != nil {
		return err
	}
	moves, err := c.openedMoves(ctx, found)
	if err != nil {
		return err
	}
	// Without its etcd this takes so long that what changes meanwhile could not be followed.
	if err := c.raiseKube(ctx); err != nil {
		return err
	}
	if err := c.copyWhileUsed(ctx, moves, c.toKube()); err != nil {
		return err
	}
	return c.raiseKube(ctx)
}

// freezeAndCompareBack makes kube-apiserver's own objects equal to the server's for good. After
// an error clients can write again, and the migration is back in the phase Copying.
func (c *claim) freezeAndCompareBack(ctx context.Context, f *freezer) (err error) {
	defer func() {
		if err != nil {
			err = c.goBack(ctx, err)
		}
	}()
	if err := c.freeze(ctx, f); err != nil {
		return err
	}
	found, err := c.definitions(ctx)
	if err != nil {
		return err
	}
	moves, err := c.openedMoves(ctx, found)
	if err != nil {
		return err
	}
	c.Objects, c.Revisions, c.NewUIDs = map[string]int{}, map[string]string{}, nil
	positions, err := c.copyFrozen(ctx, moves, c.toKube())
	if err != nil {
		return err
	}
	for _, move := range moves {
		position := positions[move.Resource]
		c.progress("%d %s are equal", position.objects, move.GroupResource)
		c.Objects[move.Resource], c.Revisions[move.Resource] = position.objects, position.revision
		for _, key := range sets.List(position.newUIDs) {
			c.NewUIDs = append(c.NewUIDs, move.Resource+"/"+key)
		}
	}
	if err := c.checkKubeGap(ctx); err != nil {
		return err
	}
	return c.raiseKube(ctx)
}

// switchBack makes kube-apiserver answer requests by itself. What was done before is not done
// again.
func (c *claim) switchBack(ctx context.Context, f *freezer) error {
	if err := c.freeze(ctx, f); err != nil {
		return err
	}
	found, err := c.definitions(ctx)
	if err != nil {
		return err
	}
	// This makes kube-apiserver begin its history here, at a revision that no client has seen
	// from the server.
	if err := c.closeDoors(ctx, found, stored.CopyKept); err != nil {
		return err
	}
	if err := settle(ctx); err != nil {
		return err
	}
	if err := c.raiseKube(ctx); err != nil {
		return err
	}
	c.fillCaches(ctx, found)
	for _, name := range c.APIServices {
		if err := c.giveBack(ctx, name); err != nil {
			return err
		}
	}
	if err := c.checkWatches(ctx); err != nil {
		return err
	}
	// This ends the watches that clients still have at the server.
	return c.annotate(ctx, found, stored.CopyNone)
}

// releaseBack lets clients write, at kube-apiserver.
func (c *claim) releaseBack(ctx context.Context) error {
	c.Switched = time.Now().UTC().Truncate(time.Second)
	return c.thaw(ctx)
}

// giveBack makes an APIService kube-apiserver's own again, and returns when it is.
func (c *claim) giveBack(ctx context.Context, name string) error {
	err := eventually(ctx, availableTimeout, func(ctx context.Context) error {
		apiService, err := c.aggregator.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil // kube-apiserver makes it, if a definition has the version.
		}
		if err != nil {
			return err
		}
		if apiService.Spec.Service == nil && apiService.Labels[aggregation.ManagedLabel] != "" {
			if reason := aggregation.Availability(apiService).Reason; reason != aggregation.LocalReason {
				return fmt.Errorf("kube-apiserver does not serve %s itself yet: %s", name, reason)
			}
			return c.answeredByServer(ctx, name, false)
		}
		patch := `{"metadata":{"labels":{"` + aggregation.ManagedLabel + `":"true"}},"spec":{"service":null,"caBundle":null,"insecureSkipTLSVerify":null}}`
		_, err = c.aggregator.ApiregistrationV1().APIServices().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err == nil {
			err = errors.New("it has just been changed")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("giving the APIService %s back to kube-apiserver: %w", name, err)
	}
	c.progress("%s is kube-apiserver's", name)
	return nil
}
