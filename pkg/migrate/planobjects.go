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
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// checkObjects decodes and encodes each object as the server does, and sums up the results.
func (p *plan) checkObjects(ctx context.Context) error {
	for _, d := range p.found {
		store := p.storeOf(d)
		if store == nil || len(d.served()) == 0 {
			continue // checkDefinitions has said so.
		}
		if err := p.checkObjectsOf(ctx, d, move{store, d.stored(), d.hidden()}); err != nil {
			return err
		}
	}
	return p.checkNamespaces(ctx)
}

func (p *plan) checkObjectsOf(ctx context.Context, d definition, move move) error {
	seen := objectsSeen{named: map[Reason]*named{}}
	_, err := p.list(ctx, move.from, func(object *unstructured.Unstructured) error { return p.look(ctx, move, object, &seen) })
	if d.converts() && apierrors.IsInternalError(err) {
		p.fail(NotConverted, "correct these objects in the version that they are stored in, or the webhook", "%s", err)
		return nil
	}
	if err != nil {
		return err
	}
	for _, found := range []struct {
		reason     Reason
		status     Status
		cause, fix string
	}{
		{ObjectsRefused, Failure, "can't be stored by the server without loss", "change these objects, or use a server that knows their fields"},
		{ObjectsTooLarge, Failure, "are too large for the server's etcd", "make these objects smaller, or give the server's etcd a higher --max-request-bytes, which an embedded one does not have"},
		{BoundExceeded, Notice, "exceed a bound of the server, so that clients can change them and make them smaller, but not larger", "make these objects smaller, or give the server and this command a higher --max-body-elements"},
		{FractionsLost, Notice, "have fractions of seconds, which the server does not store", ""},
		{NotConverted, Failure, "can't be converted by the server to a version that it serves", "change these objects: clients that use the version would get errors"},
		{ObjectsInvalid, Notice, "would be refused by the server's validation", "correct them before or after they move: they move as they are, and the server refuses the next update that leaves them invalid"},
	} {
		if objects := seen.named[found.reason]; objects != nil {
			p.find(found.reason, found.status, found.fix, "%d of %d %s %s: %s", objects.total, seen.count, move.GroupResource, found.cause, objects)
		}
	}
	p.notice(ObjectsMove, "", "%d %s would move, %d kB as JSON: %d have finalizers, %d are being deleted, %d have owners", seen.count, move.GroupResource, seen.bytes/1000, seen.finalized, seen.deleted, seen.owned)
	return nil
}

// look decodes, encodes, converts and validates an object as the server does.
func (p *plan) look(ctx context.Context, move move, object *unstructured.Unstructured, seen *objectsSeen) error {
	data, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	name := keyOf(object)
	p.namespaces[object.GetNamespace()] = true
	seen.add(object, len(data))
	decoded, _, err := move.Strict.Decode(data, nil, nil)
	var encoded []byte
	if err == nil {
		encoded, err = encode(move.Codec, data)
	}
	if err != nil {
		seen.note(ObjectsRefused, name, err)
		return nil
	}
	stored, err := encrypt(ctx, move, name, encoded)
	if err == nil {
		err = p.tryStore(ctx, p.config.Etcd, move.Prefix+name, stored)
	}
	if errors.Is(err, errTooLarge) {
		seen.note(ObjectsTooLarge, name, err)
	} else if err != nil {
		return err
	}
	if lost, err := lostFraction(data, decoded); err != nil {
		return err
	} else if lost != "" {
		seen.note(FractionsLost, name, errors.New(lost))
	}
	if move.Convert != nil { // For other objects, the server bounds what a request adds.
		bounds := limits.Bounds{Owners: p.config.MaxOwners}
		if err := bounds.CheckObject(object, len(data), p.config.MaxElements); err != nil {
			seen.note(BoundExceeded, name, err)
		}
		for _, version := range move.Versions {
			if err := move.Convert(decoded, version); err != nil {
				seen.note(NotConverted, name, fmt.Errorf("%s: %w", version, err))
				return nil
			}
		}
	}
	if move.Validate == nil {
		return nil
	}
	for _, version := range move.Versions {
		if errs := move.Validate(ctx, created(decoded), version); len(errs) > 0 {
			seen.note(ObjectsInvalid, name, errs.ToAggregate())
			return nil
		}
	}
	return nil
}

// triedBytes is the smallest size of objects that the plan tries to store in etcd. By default etcd
// stores half a megabyte more.
const triedBytes = 1 << 20

// largeBytes is the size of an object that an unreachable etcd may refuse. etcd's default limit is
// 1.5 MiB.
const largeBytes = 1_500_000

var errTooLarge = errors.New("etcd refuses it")

// tryStore returns errTooLarge if an etcd would not store an object. Its transaction is as large as a server's update of
// an object, and stores nothing. If the etcd can't be reached, the size decides.
func (p *plan) tryStore(ctx context.Context, etcd *clientv3.Client, key string, object []byte) error {
	switch {
	case len(object) < triedBytes, etcd == nil && len(object) <= largeBytes:
		return nil
	case etcd == nil:
		return fmt.Errorf("%w with its default of 1.5 MiB: %d bytes", errTooLarge, len(object))
	}
	_, err := etcd.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "<", 0)).Then(clientv3.OpPut(key, string(object))).Else(clientv3.OpGet(key)).Commit()
	if code := status.Code(err); errors.Is(err, rpctypes.ErrRequestTooLarge) || code == codes.ResourceExhausted || code == codes.InvalidArgument {
		return fmt.Errorf("%w: %d bytes", errTooLarge, len(object))
	}
	return err
}

// fraction matches a time with a fraction of a second, as JSON.
var fraction = regexp.MustCompile(`"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d\.\d+(?:[Zz]|[+-]\d\d:\d\d)"`)

// lostFraction returns a time with a fraction that the decoded object has lost, or "".
func lostFraction(data []byte, decoded runtime.Object) (string, error) {
	times := fraction.FindAll(data, -1)
	if len(times) == 0 {
		return "", nil
	}
	after, err := json.Marshal(decoded)
	if err != nil {
		return "", err
	}
	for _, time := range times {
		if !bytes.Contains(after, time) {
			return strings.Trim(string(time), `"`), nil
		}
	}
	return "", nil
}

// created returns an object as a client would send it to create it.
func created(object runtime.Object) runtime.Object {
	object = object.DeepCopyObject()
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetResourceVersion("")
	}
	return object
}

// objectsSeen sums up the objects of a resource.
type objectsSeen struct {
	count, bytes, finalized, deleted, owned int
	// named are the objects that findings are about.
	named map[Reason]*named
}

func (s *objectsSeen) note(reason Reason, name string, err error) {
	if s.named[reason] == nil {
		s.named[reason] = &named{}
	}
	s.named[reason].add(name, err)
}

func (s *objectsSeen) add(object *unstructured.Unstructured, size int) {
	s.count++
	s.bytes += size
	if object.GetDeletionTimestamp() != nil {
		s.deleted++
	}
	if len(object.GetFinalizers()) > 0 {
		s.finalized++
	}
	if len(object.GetOwnerReferences()) > 0 {
		s.owned++
	}
}

// named counts objects, and names some of them, with an error each.
type named struct {
	total int
	first []string
}

func (n *named) add(name string, err error) {
	n.total++
	if len(n.first) < maxNamed {
		n.first = append(n.first, fmt.Sprintf("%s (%v)", name, err))
	}
}

// String implements fmt.Stringer.
func (n named) String() string { return strings.Join(n.first, "; ") }

// checkNamespaces fails if a namespace of the objects is being deleted, and its objects with it.
func (p *plan) checkNamespaces(ctx context.Context) error {
	list, err := p.kube.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("reading the namespaces: %w", err)
	}
	for _, namespace := range list.Items {
		if p.namespaces[namespace.Name] && namespace.Status.Phase == corev1.NamespaceTerminating {
			p.fail(NamespaceDeleted, "wait until it is gone", "the namespace %s, which has some of the objects, is being deleted", namespace.Name)
		}
	}
	return nil
}
