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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
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
	return nil
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
	seen.add(object, len(data))
	decoded, _, err := move.Strict.Decode(data, nil, nil)
	if err == nil {
		_, err = encode(move.Codec, data)
	}
	if err != nil {
		seen.note(ObjectsRefused, name, err)
		return nil
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
