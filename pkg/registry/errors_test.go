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
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
)

func TestStorageErrors(t *testing.T) {
	plain := errors.New("plain")
	for name, test := range map[string]struct {
		err        error
		wantCode   int32
		wantReason metav1.StatusReason
	}{
		"too large for etcd":          {rpctypes.ErrGRPCRequestTooLarge, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge},
		"too large for the client":    {status.Error(codes.ResourceExhausted, "trying to send message larger than max (3 vs. 2)"), http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge},
		"no space":                    {rpctypes.ErrGRPCNoSpace, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
		"no space, seen by a client":  {rpctypes.ErrNoSpace, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable},
		"unavailable":                 {status.Error(codes.Unavailable, "connection refused"), http.StatusInternalServerError, metav1.StatusReasonServerTimeout},
		"no leader":                   {rpctypes.ErrNoLeader, http.StatusInternalServerError, metav1.StatusReasonServerTimeout},
		"another leader":              {rpctypes.ErrLeaderChanged, http.StatusInternalServerError, metav1.StatusReasonServerTimeout},
		"a member that stopped":       {rpctypes.ErrStopped, http.StatusInternalServerError, metav1.StatusReasonServerTimeout},
		"a member that is gone":       {rpctypes.ErrUnhealthy, http.StatusInternalServerError, metav1.StatusReasonServerTimeout},
		"timed out in etcd":           {rpctypes.ErrTimeout, http.StatusInternalServerError, metav1.StatusReasonServerTimeout},
		"no leader, from the server":  {rpctypes.ErrGRPCNoLeader, http.StatusInternalServerError, metav1.StatusReasonServerTimeout},
		"too many requests":           {rpctypes.ErrTooManyRequests, http.StatusInternalServerError, metav1.StatusReasonServerTimeout},
		"no answer in time":           {status.Error(codes.DeadlineExceeded, "context deadline exceeded"), http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
		"no answer, seen by a client": {context.DeadlineExceeded, http.StatusGatewayTimeout, metav1.StatusReasonTimeout},
		"an invalid version":          {storage.NewInvalidError(field.ErrorList{field.Invalid(field.NewPath("resourceVersion"), "x", "no number")}), http.StatusUnprocessableEntity, metav1.StatusReasonInvalid},
		"another key":                 {storage.NewCorruptObjError("key", errors.New("data from the storage is not transformable revision=0: no key")), http.StatusInternalServerError, metav1.StatusReasonStoreReadError},
		"wrapped":                     {fmt.Errorf("writing: %w", rpctypes.ErrGRPCRequestTooLarge), http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			got := statusErrorStorage{resource: schema.GroupResource{Group: "example.com", Resource: "things"}}.status(test.err, "create")
			var known apierrors.APIStatus
			if !errors.As(got, &known) {
				t.Fatalf("got %v, which has no status", got)
			}
			if code, reason := known.Status().Code, known.Status().Reason; code != test.wantCode || reason != test.wantReason {
				t.Errorf("got %d %s, want %d %s", code, reason, test.wantCode, test.wantReason)
			}
			if _, retry := apierrors.SuggestsClientDelay(got); test.wantReason == metav1.StatusReasonServerTimeout && !retry {
				t.Errorf("%v does not say when to try again", got)
			}
		})
	}

	for name, err := range map[string]error{
		"none": nil, "unknown": plain, "one the store interprets": storage.NewKeyNotFoundError("key", 0),
	} {
		t.Run(name, func(t *testing.T) {
			if got := (statusErrorStorage{}).status(err, "get"); got != err { //nolint:errorlint // Unchanged means the same error.
				t.Errorf("got %v, want it unchanged", got)
			}
		})
	}
}

// TestTheErrorOfAFullDatabase checks that it names the ways out.
func TestTheErrorOfAFullDatabase(t *testing.T) {
	const want = "the database of etcd has reached its quota, or its disk is full, and accepts no writes until an operator compacts and defragments it or raises the quota, and disarms the alarm, or makes room on the disk"
	if got := (statusErrorStorage{}).status(rpctypes.ErrNoSpace, "create").Error(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestCreationsThatMayBeRepeated checks that only creations with a given name may be
// repeated.
func TestCreationsThatMayBeRepeated(t *testing.T) {
	things := statusErrorStorage{resource: schema.GroupResource{Group: "example.com", Resource: "things"}}
	for name, test := range map[string]struct {
		object     metav1.ObjectMeta
		err        error
		repeatable bool
		message    string
	}{
		"a name": {metav1.ObjectMeta{Name: "a"}, rpctypes.ErrTimeout, true,
			"The create operation against things.example.com could not be completed at this time, please try again."},
		"a name that is generated": {metav1.ObjectMeta{GenerateName: "a-", Name: "a-x2"}, rpctypes.ErrTimeout, false,
			"Timeout: etcd has not answered in time, so that it is not known whether the object has been created: list things.example.com before you create it again"},
		"a name that is generated, for too large an object": {metav1.ObjectMeta{GenerateName: "a-", Name: "a-x2"}, rpctypes.ErrRequestTooLarge, false,
			"Request entity too large: the object is larger than etcd stores (by default 1.5 MiB)"},
	} {
		t.Run(name, func(t *testing.T) {
			err := things.creationFailure(things.status(test.err, "create"), &metav1.PartialObjectMetadata{ObjectMeta: test.object})
			if _, repeatable := apierrors.SuggestsClientDelay(err); repeatable != test.repeatable || err.Error() != test.message {
				t.Errorf("got %q, which may be repeated: %v; want %q", err, repeatable, test.message)
			}
		})
	}
}

// TestKeysThatAreNoText checks that the database is not asked for such keys: there is no
// storage here.
func TestKeysThatAreNoText(t *testing.T) {
	var things statusErrorStorage
	for _, key := range []string{"/registry/things/a\x00b", "/registry/things/\xff"} {
		for operation, err := range map[string]error{
			"get":    things.Get(t.Context(), key, storage.GetOptions{}, nil),
			"try":    things.Get(t.Context(), key, storage.GetOptions{IgnoreNotFound: true}, nil),
			"update": things.GuaranteedUpdate(t.Context(), key, nil, false, nil, nil, nil),
			"apply":  things.GuaranteedUpdate(t.Context(), key, nil, true, nil, nil, nil),
			"delete": things.Delete(t.Context(), key, nil, nil, nil, nil, storage.DeleteOptions{}),
		} {
			if !storage.IsNotFound(err) {
				t.Errorf("%s %q: got %v", operation, key, err)
			}
		}
	}
}

func TestPatchErrors(t *testing.T) {
	plain, known := errors.New("unknown patch type"), apierrors.NewConflict(schema.GroupResource{}, "name", nil)
	for name, test := range map[string]struct {
		verb string
		err  error
		want error
	}{
		"a patch that can't be applied": {"patch", plain, apierrors.NewBadRequest("the patch can't be applied: unknown patch type")},
		"a patch that is refused":       {"patch", known, known},
		"a fault in an update":          {"update", plain, plain},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{Verb: test.verb})
			if diff := cmp.Diff(test.want.Error(), patchError(ctx, test.err).Error()); diff != "" {
				t.Errorf("unexpected error (-want +got):\n%s", diff)
			}
			if got, want := apierrors.ReasonForError(patchError(ctx, test.err)), apierrors.ReasonForError(test.want); got != want {
				t.Errorf("got reason %q, want %q", got, want)
			}
		})
	}
}

// panickingInfo is an update whose application panics.
type panickingInfo struct{ rest.UpdatedObjectInfo }

func (panickingInfo) UpdatedObject(context.Context, runtime.Object) (runtime.Object, error) {
	var key any = []string{}
	return nil, map[any]error{}[key]
}

func TestPatchPanics(t *testing.T) {
	update := checkedUpdate{UpdatedObjectInfo: panickingInfo{}}
	patch := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{Verb: "patch"})
	_, err := update.UpdatedObject(patch, nil)
	if want := "the patch can't be applied: hash of unhashable type: []string"; !apierrors.IsBadRequest(err) || err.Error() != want {
		t.Errorf("got %v, want a BadRequest: %s", err, want)
	}

	defer func() {
		if recover() == nil {
			t.Error("the panic of an update, which is a fault of the server, has been hidden")
		}
	}()
	_, _ = update.UpdatedObject(t.Context(), nil)
}

// storageIn is a storage with slow operations. It answers the cheapest request at once or
// not at all.
type storageIn struct {
	storage.Interface
	time    time.Duration
	answers bool
}

func (s storageIn) Get(ctx context.Context, _ string, _ storage.GetOptions, _ runtime.Object) error {
	select {
	case <-time.After(s.time):
		return nil
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (s storageIn) GetCurrentResourceVersion(ctx context.Context) (uint64, error) {
	if s.answers {
		return 1, nil
	}
	<-ctx.Done()
	return 0, ctx.Err()
}

// Only requests that wait for an etcd that does not answer at all are told to try again
// before their time is over.
func TestWaitForEtcd(t *testing.T) {
	const minute = time.Minute
	for name, test := range map[string]struct {
		storage storageIn
		limit   time.Duration
		code    int32
		after   time.Duration
	}{
		"quick":            {storageIn{time: 0, answers: true}, minute, 0, 0},
		"quick, then away": {storageIn{time: silence * 3 / 2, answers: false}, minute, 0, silence * 3 / 2},
		"slow":             {storageIn{time: minute / 2, answers: true}, minute, 0, minute / 2},
		"too slow":         {storageIn{time: 2 * minute, answers: true}, minute, http.StatusGatewayTimeout, minute - answerTime},
		"away":             {storageIn{time: 2 * minute, answers: false}, minute, http.StatusGatewayTimeout, 2 * silence},
		"no time":          {storageIn{time: 2 * minute, answers: false}, time.Second, http.StatusGatewayTimeout, 900 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.limit)
				defer cancel()
				began := time.Now()
				err := statusErrorStorage{Interface: test.storage}.Get(ctx, "", storage.GetOptions{}, nil)
				if got := time.Since(began); got != test.after {
					t.Errorf("it took %s, not %s", got, test.after)
				}
				var code int32
				if status := apierrors.APIStatus(nil); errors.As(err, &status) {
					code = status.Status().Code
				}
				if code != test.code {
					t.Errorf("the error is %v, not one with the code %d", err, test.code)
				}
			})
		})
	}
}
