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
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
)

const (
	// writers is how many objects are written at once: etcd commits them together.
	writers = 32
	// maxNamed is how many objects a finding, an error or the state names.
	maxNamed = 10
)

// content identifies an object by the hash and the size of what a target would store before
// encryption.
type content struct {
	hash [sha256.Size]byte
	size int
}

func contentOf(data []byte) content { return content{sha256.Sum256(data), len(data)} }

// encode returns an object, given in any version, as the server would store it before encryption.
func encode(codec runtime.Codec, data []byte) ([]byte, error) {
	object, err := runtime.Decode(codec, data)
	if err != nil {
		return nil, err
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion("")
	accessor.SetSelfLink("")
	return runtime.Encode(codec, object)
}

// copyOne makes an object of the target equal to the one that clients use.
func (s *session) copyOne(ctx context.Context, move move, to target, key string) (written, notable bool, err error) {
	object, err := s.get(ctx, move.from, key)
	if err != nil {
		return false, false, err
	}
	before, err := to.one(ctx, move, key)
	if err != nil {
		return false, false, err
	}
	if object == nil {
		if before == nil {
			return false, false, nil
		}
		return true, false, to.write(ctx, move, key, before, nil)
	}
	notable = to.notable(object, before)
	after, err := to.encode(move, object)
	if err != nil || before != nil && before.content == after.content {
		return false, notable, err
	}
	return true, notable, to.write(ctx, move, key, before, &after)
}

// position says how far the objects of a resource have been compared. At its revision, all objects
// were equal but the pending ones.
type position struct {
	revision         string
	objects, deleted int
	// pending are objects, as namespace/name, that have been written since they were compared.
	pending sets.Set[string]
	// notable are the objects that the state is to name.
	notable sets.Set[string]
	// tail collects the objects that clients change.
	tail *tail
}

func newPosition(revision string) *position {
	return &position{revision: revision, pending: sets.New[string](), notable: sets.New[string]()}
}

// copy makes the objects of a target equal to those that clients use.
func (s *session) copy(ctx context.Context, move move, to target) (*position, error) {
	// A process must not write after another one has continued the migration.
	if err := s.save(ctx); err != nil {
		return nil, err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	found, err := s.compare(ctx, move, to, func(key string, before *held, after *wanted) error {
		group.Go(func() error {
			if err := to.write(ctx, move, key, before, after); err != nil {
				return fmt.Errorf("writing %s %s: %w", move.GroupResource, key, err)
			}
			return nil
		})
		return context.Cause(ctx)
	})
	// The first failure has canceled the rest.
	if failed := group.Wait(); failed != nil {
		return nil, failed
	}
	return found, err
}

// compare calls a function for each object that differs in a target, or exists in one place only.
// Its last argument is nil for objects that only the target has.
func (s *session) compare(ctx context.Context, move move, to target, differs func(key string, before *held, after *wanted) error) (*position, error) {
	found := newPosition("")
	there, err := to.all(ctx, move)
	if err != nil {
		return nil, err
	}
	found.revision, err = s.list(ctx, move.from, func(object *unstructured.Unstructured) error {
		found.objects++
		key := keyOf(object)
		var before *held
		if known, exists := there[key]; exists {
			before = &known
			delete(there, key)
		}
		if to.notable(object, before) {
			found.notable.Insert(key)
		}
		after, err := to.encode(move, object)
		if err != nil {
			return fmt.Errorf("the object %s: %w", key, err)
		}
		s.meter.add(after.size)
		if before != nil && before.content == after.content {
			return nil
		}
		found.pending.Insert(key)
		return differs(key, before, &after)
	})
	if err != nil {
		return nil, err
	}
	for key, before := range there {
		found.deleted++
		found.pending.Insert(key)
		if err := differs(key, &before, nil); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// errDiffers says that a target's objects differ from those that clients use.
var errDiffers = errors.New("the server's objects differ from kube-apiserver's")

// verify compares all objects, and returns errDiffers if some differ.
func (s *session) verify(ctx context.Context, move move, to target) (*position, error) {
	found, err := s.compare(ctx, move, to, func(string, *held, *wanted) error { return nil })
	if err != nil || len(found.pending) == 0 {
		return found, err
	}
	hint := ""
	if s.state.Returning {
		hint = "; a webhook or a policy may change or refuse what is written"
	}
	keys := sets.List(found.pending)
	return nil, fmt.Errorf("%w: %d of %s, such as %v%s", errDiffers, len(keys), move.GroupResource, keys[:min(len(keys), maxNamed)], hint)
}
