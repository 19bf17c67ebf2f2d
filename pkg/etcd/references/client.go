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

package references

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Client returns a client that writes objects of a resource with the conditions of admission.
func (r *References) Client(resource schema.GroupResource) *kubernetes.Client {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.here.Insert(resource)
	return &kubernetes.Client{Client: r.client, Kubernetes: writer{kubernetes.Client{Client: r.client}, r}}
}

type writer struct {
	kubernetes.Interface
	*References
}

// OptimisticPut stores a value if the key has the revision, and the objects that it requires
// exist.
func (w writer) OptimisticPut(ctx context.Context, key string, value []byte, revision int64, options kubernetes.PutOptions) (kubernetes.PutResponse, error) {
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)}
	puts := []clientv3.Op{clientv3.OpPut(key, string(value), clientv3.WithLease(options.LeaseID))}
	gets := []clientv3.Op{clientv3.OpGet(key)}
	required := requirements(ctx)
	for _, requirement := range required {
		for _, name := range requirement.names {
			object := w.object(requirement.resource, name)
			conditions = append(conditions, clientv3.Compare(clientv3.CreateRevision(object), ">", 0))
			puts = append(puts, clientv3.OpPut(w.use(object), ""))
			gets = append(gets, clientv3.OpGet(object, clientv3.WithCountOnly()))
		}
	}
	if len(gets) == 1 {
		return w.Interface.OptimisticPut(ctx, key, value, revision, options)
	}
	if count := len(gets) - 1; count > MaxRequired {
		return kubernetes.PutResponse{}, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("the object refers to %d others that have to exist; there may be %d", count, MaxRequired))
	}
	answer, err := w.client.Txn(ctx).If(conditions...).Then(puts...).Else(gets...).Commit()
	if err != nil {
		return kubernetes.PutResponse{}, err
	}
	response := kubernetes.PutResponse{Succeeded: answer.Succeeded, Revision: answer.Header.Revision}
	if answer.Succeeded {
		return response, nil
	}
	if kvs := answer.Responses[0].GetResponseRange().Kvs; len(kvs) == 1 {
		response.KV = kvs[0]
	}
	return response, missing(required, answer)
}

// missing returns the error for required objects that do not exist, or nil if the write failed
// for another reason.
func missing(required []requirement, answer *clientv3.TxnResponse) error {
	var errs []error
	at := 1 // The first answer is about the object itself.
	for _, requirement := range required {
		var absent []types.NamespacedName
		for _, name := range requirement.names {
			if answer.Responses[at].GetResponseRange().Count == 0 {
				absent = append(absent, name)
			}
			at++
		}
		if len(absent) > 0 {
			errs = append(errs, requirement.missing(absent))
		}
	}
	if len(errs) == 1 {
		return errs[0] // A Status as it is.
	}
	return errors.Join(errs...)
}

// OptimisticDelete deletes a key that has the revision, if it has not been used since admission
// has found it unused.
func (w writer) OptimisticDelete(ctx context.Context, key string, revision int64, options kubernetes.DeleteOptions) (kubernetes.DeleteResponse, error) {
	unused := checkOf(ctx, key)
	if unused == nil {
		return w.Interface.OptimisticDelete(ctx, key, revision, options)
	}
	// Only the deletions that k8s.io/apiserver makes of updates are not admitted again.
	if unused.outdated {
		return kubernetes.DeleteResponse{}, apierrors.NewConflict(unused.resource, unused.name, errors.New("it has come into use meanwhile; try again"))
	}
	use := w.use(key)
	answer, err := w.client.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(key), "=", revision),
		clientv3.Compare(clientv3.ModRevision(use), "=", unused.since),
	).Then(clientv3.OpDelete(key), clientv3.OpDelete(use)).Else(clientv3.OpGet(key)).Commit()
	if err != nil {
		return kubernetes.DeleteResponse{}, err
	}
	response := kubernetes.DeleteResponse{Succeeded: answer.Succeeded, Revision: answer.Header.Revision}
	if !answer.Succeeded {
		unused.outdated = true
		if kvs := answer.Responses[0].GetResponseRange().Kvs; len(kvs) == 1 {
			response.KV = kvs[0]
		}
	}
	return response, nil
}

// checkOf returns the check of admission for the object of a key, or nil.
func checkOf(ctx context.Context, key string) *check {
	w, ok := ctx.Value(contextKey{}).(*write)
	if !ok {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.checks[key]
}
