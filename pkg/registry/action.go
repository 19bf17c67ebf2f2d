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

package registry

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/utils/keymutex"
)

// Action declares a subresource that changes an object of internal type O, and is never
// stored. Clients can only create it. An Action has a kind of its own, with internal type
// B, which is also the answer. In kube-apiserver, pods/eviction is an example.
type Action[O, B Object] struct {
	// New returns an empty Action.
	New func() B
	// Do changes the object as the Action says, and writes the result into the Action. Of
	// a kind with a /status it changes only the status. If others change the object at
	// the same time, Do is called again with the changed object and the Action as it was
	// sent.
	//
	// An error means that the state of the object does not allow the Action. The client
	// gets a Conflict with the text of the error, unless the error has a status of its
	// own. The same Action can succeed later.
	Do func(o O, action B) error
}

// LongRunning implements Subresource.
func (Action[O, B]) LongRunning() LongRunning { return NeverLongRunning }

// Storage implements Subresource.
func (a Action[O, B]) Storage(of Parent[O]) (rest.Storage, error) {
	actions := &Kind[B]{Namespaced: of.kind.Namespaced}
	return &actionREST[O, B]{
		Action:   a,
		of:       of,
		strategy: newStrategy(actions, of.Scheme, of.Versions),
		resource: schema.GroupResource{Group: of.Group, Resource: of.Path},
		turns:    keymutex.NewHashed(objectLocks),
	}, nil
}

// objectLocks is the maximum number of Actions of a kind that a server executes at a time.
const objectLocks = 64

// actionREST serves an Action.
type actionREST[O, B Object] struct {
	Action[O, B]
	of       Parent[O]
	strategy strategy[B]
	resource schema.GroupResource
	// turns lets only one of this server's Actions on an object run at a time. Competing Actions
	// would be correct, as between servers, but each conflict repeats work. A hundred Actions at
	// once would need thousands of attempts.
	turns keymutex.KeyMutex
}

var (
	_ rest.Storage      = &actionREST[Object, Object]{}
	_ rest.NamedCreater = &actionREST[Object, Object]{}
)

// New returns an empty Action.
func (r *actionREST[O, B]) New() runtime.Object { return r.Action.New() }

// Destroy does nothing: the store is destroyed by objectREST.
func (r *actionREST[O, B]) Destroy() {}

// Create executes an Action. Admission sees the Action, not the object.
func (r *actionREST[O, B]) Create(ctx context.Context, name string, obj runtime.Object, admit rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	action := obj.(B)
	if action.GetName() == "" {
		action.SetName(name)
	}
	if action.GetName() != name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("metadata.name is %q, but the path names %q", action.GetName(), name))
	}
	if err := r.strategy.checkUnstored(ctx, action); err != nil {
		return nil, err
	}
	if err := admit(ctx, action.DeepCopyObject()); err != nil {
		return nil, err
	}
	object := action.GetNamespace() + "/" + name
	r.turns.LockKey(object)
	defer func() { _ = r.turns.UnlockKey(object) }()
	execution := &execution[O, B]{rest: r, action: action}
	_, _, err := r.of.StatusStore.Update(ctx, name, execution, rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false,
		&metav1.UpdateOptions{DryRun: options.DryRun})
	if err != nil {
		return nil, execution.failure(err)
	}
	return execution.answer, nil
}

// execution makes of an Action an update of the object.
type execution[O, B Object] struct {
	rest           *actionREST[O, B]
	action, answer B
	// done is set when there is something to write.
	done bool
}

var _ rest.UpdatedObjectInfo = &execution[Object, Object]{}

func (*execution[O, B]) Preconditions() *metav1.Preconditions { return nil }

// UpdatedObject executes the Action on the stored object. It is called again for each
// version of the object that others have written in the meantime.
func (e *execution[O, B]) UpdatedObject(_ context.Context, stored runtime.Object) (runtime.Object, error) {
	o := stored.DeepCopyObject().(O)
	if o.GetDeletionTimestamp() != nil {
		return nil, apierrors.NewConflict(e.rest.resource, o.GetName(), errors.New("it is being deleted"))
	}
	e.answer = e.action.DeepCopyObject().(B)
	if err := e.rest.Do(o, e.answer); err != nil {
		var known apierrors.APIStatus
		if !errors.As(err, &known) {
			err = apierrors.NewConflict(e.rest.resource, o.GetName(), err)
		}
		return nil, err
	}
	e.done = true
	return o, nil
}

// failure returns the error for the client. If the Action may have been executed, the
// error has no retry hint: clients that get one would repeat the Action.
func (e *execution[O, B]) failure(err error) error {
	if _, repeat := apierrors.SuggestsClientDelay(err); !repeat || !e.done {
		return err
	}
	return apierrors.NewTimeoutError(fmt.Sprintf(
		"etcd has not answered in time, so that it is not known whether the action has been executed: read %s %q before you send it again",
		e.rest.of.Store.DefaultQualifiedResource, e.action.GetName()), 0)
}
