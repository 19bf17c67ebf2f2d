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
	"fmt"
	"path"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// copyOneBack makes one of kube-apiserver's own objects equal to the server's.
func (s *session) copyOneBack(ctx context.Context, move move, key string, position *position) (written bool, err error) {
	object, err := s.get(ctx, move.from, key)
	if err != nil {
		return false, err
	}
	before, err := s.locals().one(ctx, move, key)
	if err != nil {
		return false, err
	}
	if object == nil {
		if before == nil {
			return false, nil
		}
		return true, s.locals().write(ctx, move, key, before, nil)
	}
	if s.config.KubeEtcd == nil && (before == nil || before.uid != object.GetUID()) {
		position.newUIDs.Insert(key)
	}
	object, content, err := s.normalized(object, move.from.GroupVersion())
	if err != nil || before != nil && before.content == content {
		return false, err
	}
	return true, s.locals().write(ctx, move, key, before, object)
}

// toKube copies the server's objects to kube-apiserver.
func (s *session) toKube() follower {
	return follower{pass: s.copyBack, verify: s.verifyBack, one: s.copyOneBack, count: s.locals().count}
}

// compareBack calls a function for each object that kube-apiserver has not in its own etcd, or
// in another state, and for each that the server has not, with nil.
func (m *Migration) compareBack(ctx context.Context, move move, differs func(key string, before *local, object *unstructured.Unstructured) error) (difference, error) {
	found := newDifference()
	locals, err := m.locals().all(ctx, move)
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
		if m.config.KubeEtcd == nil && (!exists || before.uid != object.GetUID()) {
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
func (s *session) copyBack(ctx context.Context, move move) (difference, error) {
	if err := s.checkEncryption(ctx, move); err != nil {
		return difference{}, err
	}
	// Of a process that has been continued by another one.
	if err := s.save(ctx); err != nil {
		return difference{}, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg    sync.WaitGroup
		slots = make(chan struct{}, writers)
	)
	found, err := s.compareBack(ctx, move, func(key string, before *local, object *unstructured.Unstructured) error {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := s.locals().write(ctx, move, key, before, object); err != nil {
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
func (s *session) verifyBack(ctx context.Context, move move) (difference, error) {
	var keys []string
	found, err := s.compareBack(ctx, move, func(key string, _ *local, _ *unstructured.Unstructured) error {
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
