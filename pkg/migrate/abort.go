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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// Abort undoes a migration that has not reached the phase Releasing. Until then no client has
// written where the objects move to. On the way to the server it removes the objects from there,
// and forgets the migration. On the way back the objects stay at the server, and the phase is Moved
// again.
//
// Abort works even if a step of the migration fails for good. It only has to change APIServices
// back that were changed. If that fails, Run or Back can go on instead.
func (m *Migration) Abort(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := m.resume(ctx, func(state State) error {
		switch state.Phase {
		case Copying, Freezing, Switching, Aborting:
			return nil
		case Releasing:
			return fmt.Errorf("the migration is in the phase %s, in which clients write where the objects have moved to: run the same command again, which lets all of them", state.Phase)
		default:
			return fmt.Errorf("the migration is in the phase %s, in which clients use the server: what they write there would be lost", state.Phase)
		}
	})
	if errors.Is(err, ErrNone) {
		m.claimed = &session{Migration: m} // Until a migration begins.
		// The freeze may be of a process that was slower than the one that aborted the migration.
		return errors.Join(err, m.thaw(ctx, time.Time{}))
	}
	if err != nil {
		return err
	}
	return s.abort(ctx)
}

func (s *session) abort(ctx context.Context) error {
	if s.state.Phase == Copying || s.state.Phase == Freezing {
		if err := s.checkUsed(ctx); err != nil {
			return err
		}
	}
	if err := s.enter(ctx, Aborting); err != nil {
		return err
	}
	if s.state.Returning {
		return s.abortBack(ctx)
	}
	if err := s.switchBack(ctx); err != nil {
		return err
	}
	if err := s.thawAborted(ctx); err != nil {
		return err
	}
	// Versions that lead to the server by now have the only copies.
	if err := s.giveAllBack(ctx); err != nil {
		return err
	}
	for _, prefix := range s.state.Prefixes {
		if _, err := s.write(ctx, clientv3.OpDelete(prefix, clientv3.WithPrefix())); err != nil {
			return err
		}
	}
	if err := s.removeCopies(ctx); err != nil {
		return err
	}
	return s.forget(ctx)
}

// thawAborted lets clients write where they did before. The migration can't go on after that.
func (s *session) thawAborted(ctx context.Context) error {
	s.state.Revisions = nil
	if err := s.save(ctx); err != nil {
		return err
	}
	return s.thaw(ctx, time.Time{})
}

// switchBack makes kube-apiserver answer requests itself again. Clients have written nothing at the
// server.
func (s *session) switchBack(ctx context.Context) error {
	switched, err := s.switched(ctx)
	if err != nil {
		return err
	}
	if len(switched) > 0 {
		s.optional("restart clients that see no changes", s.raiseAgain(ctx))
		// kube-apiserver's history then begins again, so that clients list again. And the annotation keeps the server
		// from registering versions again that have been given back.
		s.optional("clients that have read objects from the server may need to list them again", s.hide(ctx, keys.CopyKept))
	}
	s.optional(leftOver, s.allowCopies(ctx))
	if err := s.unhide(ctx); err != nil {
		return err
	}
	if err := s.giveAllBack(ctx); err != nil {
		return err
	}
	// Clients that still watch at the server list again, and are not told that the copies are deleted.
	now, err := s.serverRevision(ctx)
	if err != nil {
		return err
	}
	if _, err := s.write(ctx, clientv3.OpPut(s.config.HistoryKey, strconv.FormatInt(now+maxRaise, 10))); err != nil {
		return err
	}
	s.optional("a definition is not quite as it was", s.annotate(ctx, ""))
	return nil
}

// unhide makes kube-apiserver serve the definitions again that are hidden.
func (s *session) unhide(ctx context.Context) error {
	found, err := s.definitions(ctx)
	if err != nil || !slices.ContainsFunc(found, definition.hidden) {
		return err
	}
	if err := cluster.Settle(ctx); err != nil {
		return err
	}
	if err := s.serve(ctx, keys.CopyKept); err != nil {
		return err
	}
	return cluster.Settle(ctx)
}

// optional reports an error that does not stop the caller.
func (m *Migration) optional(consequence string, err error) {
	if err != nil {
		m.progress("%s: %v", consequence, err)
	}
}

// raiseAgain raises the revision of kube-apiserver's etcd above all revisions of the server's etcd
// that clients have seen.
func (s *session) raiseAgain(ctx context.Context) error {
	missing, _, err := s.missing(ctx, true)
	if err != nil {
		return err
	}
	if missing > maxRaiseByAPI {
		s.progress("kube-apiserver's etcd is %d revisions behind the server's: restart clients that see no changes", missing)
		return nil
	}
	_, err = s.raiseKube(ctx, raiseMargin)
	return err
}

// abortBack makes clients use the server again. kube-apiserver's own objects stay as they are. No
// client sees them.
func (s *session) abortBack(ctx context.Context) error {
	// kube-apiserver may not have created all of them again.
	registered, err := s.registered(ctx)
	if err != nil {
		return err
	}
	switched := slices.DeleteFunc(slices.Sorted(maps.Keys(s.state.Registered)), func(name string) bool {
		return registered[name].Service != nil || !slices.Contains(s.config.APIServices, name)
	})
	if len(switched) > 0 {
		if err := s.serveCopies(ctx); err != nil {
			return err
		}
		err := s.replace(ctx, func(ctx context.Context) error {
			for _, name := range switched {
				if err := s.register(ctx, name); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := cluster.Settle(ctx); err != nil {
			return err
		}
	}
	s.refuseCopies(ctx)
	err = s.hide(ctx, keys.CopyKept)
	if err == nil {
		err = s.removeBypass(ctx)
	}
	s.optional("a definition is not quite as it was", err)
	if err == nil {
		s.state.Conversions = nil
	}
	if err := s.thawAborted(ctx); err != nil {
		return err
	}
	s.state.Returning, s.state.Registered = false, nil
	return s.enter(ctx, Moved)
}

// serveCopies makes the server serve its copies again, at revisions above all that clients have
// seen.
func (s *session) serveCopies(ctx context.Context) error {
	if _, err := s.beginHistory(ctx); err != nil {
		return err
	}
	return s.updateDefinitions(ctx, "annotating", func(_ definition, definition *unstructured.Unstructured) error {
		if definition.GetAnnotations()[keys.CopyAnnotation] == keys.CopyNone {
			s.setCopyAnnotation(definition, "")
		}
		return nil
	})
}

// register makes an APIService lead to the server as before.
func (s *session) register(ctx context.Context, name string) error {
	labels, spec := map[string]string{cluster.RegisteredLabel: "true"}, s.state.Registered[name]
	_, err := s.aggregator.ApiregistrationV1().APIServices().Create(ctx, &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: spec}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var patch []byte
		patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{cluster.ManagedLabel: nil, cluster.RegisteredLabel: "true"}}, "spec": spec})
		if err != nil {
			return err
		}
		err = s.patchAPIService(ctx, name, patch)
	}
	if err != nil {
		return fmt.Errorf("switching the APIService %s to the server: %w", name, err)
	}
	return s.waitAvailable(ctx, name)
}
