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
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/storagebackend/factory"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// statusErrors is a getter whose stores return errors of etcd as a metav1.Status. The endpoint
// handlers would turn other errors into an unexplained 500.
type statusErrors struct {
	generic.RESTOptionsGetter
	kind schema.GroupKind
}

// StatusErrors returns a getter whose stores return errors of etcd as a metav1.Status. New objects
// of the given getter must name their kinds.
func StatusErrors(getter generic.RESTOptionsGetter) generic.RESTOptionsGetter {
	return statusErrors{RESTOptionsGetter: getter}
}

func (g statusErrors) GetRESTOptions(resource schema.GroupResource, example runtime.Object) (generic.RESTOptions, error) {
	options, err := g.RESTOptionsGetter.GetRESTOptions(resource, example)
	if err != nil {
		return options, err
	}
	if example != nil {
		if _, err := runtime.Encode(options.StorageConfig.Codec, example); err != nil {
			return options, fmt.Errorf("its objects can't be stored: %w", err)
		}
	}
	decorate := options.Decorator
	options.Decorator = func(config *storagebackend.ConfigForResource, prefix string, key func(runtime.Object) (string, error), newObject, newList func() runtime.Object, attributes storage.AttrFunc, trigger storage.IndexerFuncs, indexers *cache.Indexers) (storage.Interface, factory.DestroyFunc, error) {
		inner, destroy, err := decorate(config, prefix, key, newObject, newList, attributes, trigger, indexers)
		kind := g.kind
		if kind.Empty() {
			kind = newObject().GetObjectKind().GroupVersionKind().GroupKind()
		}
		return statusErrorStorage{inner, resource, kind}, destroy, err
	}
	return options, nil
}

type statusErrorStorage struct {
	storage.Interface
	resource schema.GroupResource
	kind     schema.GroupKind
}

func (s statusErrorStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	err := s.try(ctx, "create", func(ctx context.Context) error {
		return s.Interface.Create(ctx, key, obj, out, ttl)
	})
	return s.creationFailure(err, obj)
}

// creationFailure returns the error for the client. If the object may have been created with a
// generated name, the error has no retry hint: a retry might create a second object. Other names
// are taken then.
func (s statusErrorStorage) creationFailure(err error, obj runtime.Object) error {
	if _, repeat := apierrors.SuggestsClientDelay(err); !repeat {
		return err
	}
	if object, known := meta.Accessor(obj); known != nil || object.GetGenerateName() == "" {
		return err
	}
	return apierrors.NewTimeoutError(fmt.Sprintf(
		"etcd has not answered in time, so that it is not known whether the object has been created: list %s before you create it again", s.resource), 0)
}

// validKey reports whether an object with the key can exist. A database behind kine can't even look up
// a key with invalid UTF-8 or a NUL character. Therefore such an object is NotFound, also for
// updates that would create it.
func validKey(key string) bool { return utf8.ValidString(key) && !strings.Contains(key, "\x00") }

func (s statusErrorStorage) Delete(ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions, validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions) error {
	if !validKey(key) {
		return storage.NewKeyNotFoundError(key, 0)
	}
	return s.try(ctx, "delete", func(ctx context.Context) error {
		return s.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	})
}

func (s statusErrorStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	if !validKey(key) {
		return storage.NewKeyNotFoundError(key, 0)
	}
	return s.try(ctx, "get", func(ctx context.Context) error {
		return s.Interface.Get(ctx, key, opts, out)
	})
}

func (s statusErrorStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	return s.try(ctx, "list", func(ctx context.Context) error {
		return s.Interface.GetList(ctx, key, opts, out)
	})
}

func (s statusErrorStorage) GuaranteedUpdate(ctx context.Context, key string, out runtime.Object, ignoreNotFound bool, preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object) error {
	if !validKey(key) {
		return storage.NewKeyNotFoundError(key, 0)
	}
	return s.try(ctx, "update", func(ctx context.Context) error {
		return s.Interface.GuaranteedUpdate(ctx, key, out, ignoreNotFound, preconditions, update, cached)
	})
}

func (s statusErrorStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	w, err := s.Interface.Watch(ctx, key, opts)
	return w, s.status(err, "watch")
}

// statusClientClosedRequest is the code of a request that its client has closed. No client receives
// it. It keeps logs and metrics from counting a failure of the server; nginx introduced it.
const statusClientClosedRequest = 499

const (
	// retrySeconds is when clients are told to try again after a failure of etcd.
	retrySeconds = 2
	// answerTime is the part of a request's time that is reserved for the answer that etcd did not
	// answer. When all of it is over, the connection is dropped.
	answerTime = time.Second
	// silence is how long an operation may take before etcd is probed, and how long the probe may
	// take.
	silence = 2 * time.Second
)

// notDecrypted is the text that all errors of k8s.io/apiserver about failed decryption have in common.
// They have no type.
// Upstream fault 25.
const notDecrypted = "data from the storage is not transformable"

// ErrDamaged is wrapped by errors of storage transformers about data that a disk has changed.
var ErrDamaged = errors.New("the checksum of what is stored does not match")

// try ends an operation before the request times out, and as soon as etcd is found not to answer at
// all. The client of etcd waits for as long as the request may take. A slow operation alone is no
// failure: a large list takes long, and so does an update that calls webhooks.
// Upstream fault 24.
func (s statusErrorStorage) try(ctx context.Context, operation string, run func(context.Context) error) error {
	ctx, cancel := beforeDeadline(ctx)
	defer cancel()
	var silent atomic.Bool
	defer time.AfterFunc(silence, func() {
		if s.fallsSilent(ctx) {
			silent.Store(true)
			cancel()
		}
	}).Stop()
	err := run(ctx)
	if err != nil && silent.Load() {
		err = context.DeadlineExceeded
	}
	return s.status(err, operation)
}

// fallsSilent probes etcd until the context ends, and reports whether there was no answer before.
func (s statusErrorStorage) fallsSilent(ctx context.Context) bool {
	err := wait.PollUntilContextCancel(ctx, silence, true, func(ctx context.Context) (bool, error) {
		probe, cancel := context.WithTimeout(ctx, silence)
		defer cancel()
		_, err := s.GetCurrentResourceVersion(probe)
		return false, err
	})
	return err != nil && ctx.Err() == nil
}

// beforeDeadline returns a context that ends while there is time to answer. If little time is left,
// it reserves a tenth.
func beforeDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return context.WithCancel(ctx)
	}
	left := time.Until(deadline)
	return context.WithDeadline(ctx, deadline.Add(-min(answerTime, left/10)))
}

// status gives a status to the errors that the store does not interpret itself.
func (s statusErrorStorage) status(err error, operation string) error {
	if err == nil {
		return nil
	}
	// Upstream fault 14.
	var invalid storage.InvalidError
	if errors.As(err, &invalid) {
		return apierrors.NewInvalid(s.kind, "", invalid.Errs)
	}
	cause := etcdError(err)
	code := etcdCode(cause)
	switch {
	case errors.Is(err, ErrDamaged), strings.Contains(err.Error(), ErrDamaged.Error()):
		return newStatus(http.StatusInternalServerError, metav1.StatusReasonStoreReadError,
			fmt.Sprintf("%s can't be read until an operator restores a snapshot, since the database of etcd is damaged: %v", s.resource, err))
	case strings.Contains(err.Error(), notDecrypted):
		return newStatus(http.StatusInternalServerError, metav1.StatusReasonStoreReadError,
			fmt.Sprintf("%s can't be decrypted until an operator adds the key that was used to --encryption-provider-config, behind the first one: %v", s.resource, err))
	// Upstream fault 22.
	case errors.Is(cause, rpctypes.ErrNoSpace):
		return apierrors.NewServiceUnavailable("the database of etcd has reached its quota, or its disk is full, and accepts no writes until an operator compacts and defragments it or raises the quota, and disarms the alarm, or makes room on the disk")
	// Upstream fault 23.
	case errors.Is(cause, rpctypes.ErrTooManyRequests), code == codes.Unavailable:
		return apierrors.NewServerTimeout(s.resource, operation, retrySeconds)
	// Upstream fault 21.
	case errors.Is(cause, rpctypes.ErrRequestTooLarge), code == codes.ResourceExhausted:
		return apierrors.NewRequestEntityTooLargeError("the object is larger than etcd stores (by default 1.5 MiB)")
	case errors.Is(cause, context.DeadlineExceeded), code == codes.DeadlineExceeded:
		return apierrors.NewTimeoutError("etcd has not answered in time", retrySeconds)
	// Upstream fault 82.
	case errors.Is(cause, context.Canceled), code == codes.Canceled:
		return newStatus(statusClientClosedRequest, "ClientClosedRequest", fmt.Sprintf("the client has closed its request for %s", s.resource))
	}
	return err
}

func newStatus(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

// etcdError returns the error of etcd that an error wraps, or the error itself.
func etcdError(err error) error {
	var answer interface{ GRPCStatus() *status.Status }
	if errors.As(err, &answer) {
		return rpctypes.Error(answer.GRPCStatus().Err())
	}
	return err
}

// etcdCode returns the gRPC code of an error. Errors that etcd's client knows by name, such as the
// lack of a leader, have one, too.
func etcdCode(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// checkedUpdate answers with 4xx for mistakes of clients in an update. k8s.io/apiserver reports them as
// errors without a status.
type checkedUpdate struct {
	rest.UpdatedObjectInfo
	kind schema.GroupKind
}

// UpdatedObject returns the object that the request makes from the stored one.
func (u checkedUpdate) UpdatedObject(ctx context.Context, stored runtime.Object) (runtime.Object, error) {
	obj, err := u.apply(ctx, stored)
	if err != nil {
		return nil, patchError(ctx, err)
	}
	object, err := meta.Accessor(obj)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	// Upstream fault 13.
	version := object.GetResourceVersion()
	if _, err := strconv.ParseUint(version, 10, 64); version != "" && err != nil {
		return nil, apierrors.NewInvalid(u.kind, object.GetName(), field.ErrorList{
			field.Invalid(field.NewPath("metadata", "resourceVersion"), version, "must be a resourceVersion that this server has returned"),
		})
	}
	return obj, nil
}

// apply turns a panic while a patch is applied into an error. apimachinery compares the keys of a
// strategic merge patch with ==, whatever their types.
// Upstream fault 11.
func (u checkedUpdate) apply(ctx context.Context, stored runtime.Object) (_ runtime.Object, err error) {
	defer func() {
		if !isPatch(ctx) {
			return
		}
		if cause := recover(); cause != nil {
			err = fmt.Errorf("%v", cause)
			klog.FromContext(ctx).Error(err, "A patch caused a panic", "stack", string(debug.Stack()))
		}
	}()
	return u.UpdatedObjectInfo.UpdatedObject(ctx, stored)
}

// patchError gives a status to the error of a patch that can't be applied. Examples are an unknown
// $patch directive, a key that occurs twice in a list, and a value of the wrong type. Refusals by
// admission, which runs inside the same call, already have a status.
// Upstream fault 12.
func patchError(ctx context.Context, err error) error {
	var known apierrors.APIStatus
	if !isPatch(ctx) || errors.As(err, &known) {
		return err
	}
	return apierrors.NewBadRequest("the patch can't be applied: " + err.Error())
}

// invalid returns the status for an object with these errors.
func invalid(scheme *runtime.Scheme, obj runtime.Object, name string, errs field.ErrorList) error {
	kind, err := groupKind(scheme, obj)
	if err != nil {
		return apierrors.NewInternalError(err)
	}
	return apierrors.NewInvalid(kind, name, errs)
}

func groupKind(scheme *runtime.Scheme, obj runtime.Object) (schema.GroupKind, error) {
	gvks, _, err := scheme.ObjectKinds(obj)
	if err != nil {
		return schema.GroupKind{}, err
	}
	return gvks[0].GroupKind(), nil
}

func isPatch(ctx context.Context) bool {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	return ok && info.Verb == "patch"
}
