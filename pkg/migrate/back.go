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
	"errors"
	"fmt"
	"strconv"
	"time"

	"go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// errAllNew is the error for objects of which kube-apiserver has no copies.
var errAllNew = errors.New("kube-apiserver has no copies of the objects any more, so that it would give a new UID to all of them, and the garbage collector would delete what they own: give --kube-etcd-servers")

// Back moves the objects back into the CustomResourceDefinitions, or continues to, and returns
// when clients use these. If it returns an error before the phase Switching, clients can write
// to the server as before.
func (m *Migration) Back(ctx context.Context) error {
	f, err := m.listen()
	if err != nil {
		return err
	}
	defer m.leave(f)
	s, err := m.resume(ctx, func(state State) error {
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
		if m.config.KubeEtcd == nil {
			return errAllNew
		}
		s, err = m.begin(ctx)
		if err == nil {
			s.state.Phase = Moved
		}
	}
	if err != nil || s.state.Phase == Returned {
		return err
	}
	if s.state.Phase == Moved {
		if err := m.checkKubeGap(ctx); err != nil {
			return err
		}
		s.state.Returning, s.state.Conversions, s.state.NewUIDs, s.state.History = true, nil, nil, 0
		if err := s.enter(ctx, Copying); err != nil {
			return err
		}
	}
	return s.through(ctx, Returned, map[Phase]step{
		Copying:   {Freezing, s.copyAllBack},
		Freezing:  {Switching, func(ctx context.Context) error { return s.freezeAndCompareBack(ctx, f) }},
		Switching: {Releasing, func(ctx context.Context) error { return s.switchBack(ctx, f) }},
		Releasing: {Returned, s.releaseBack},
	})
}

// copyAllBack copies the objects while they change.
func (s *session) copyAllBack(ctx context.Context) error {
	found, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	moves, err := s.openedMoves(ctx, found)
	if err != nil {
		return err
	}
	if s.config.KubeEtcd == nil {
		// This takes so long that what changes meanwhile could not be followed.
		if err := s.raiseKube(ctx, 0); err != nil {
			return err
		}
		if err := s.copyWhileUsed(ctx, moves, s.toKube()); err != nil {
			return err
		}
		return s.raiseWhileUsed(ctx, moves, func() (done bool, err error) {
			gap, _, err := s.kubeGap(ctx)
			if err != nil || gap < 0 {
				return true, err
			}
			return false, s.raiseKube(ctx, 0)
		})
	}
	before, err := s.serverRevision(ctx)
	if err != nil {
		return err
	}
	if err := s.copyWhileUsed(ctx, moves, s.toKube()); err != nil {
		return err
	}
	return s.raiseWhileUsed(ctx, moves, func() (done bool, err error) {
		now, err := s.serverRevision(ctx)
		if err != nil || now+raiseMargin < s.state.History {
			return true, err
		}
		// As many writes as there were since will do.
		return false, s.renewHistory(ctx, now-before+2*raiseMargin)
	})
}

// raiseWhileUsed raises the revision of kube-apiserver's etcd until that is done, or has been tried
// often, and copies what changes meanwhile.
func (s *session) raiseWhileUsed(ctx context.Context, moves []move, raise func() (done bool, err error)) error {
	for range maxPasses {
		if done, err := raise(); done || err != nil {
			return err
		}
		if err := s.catchUp(ctx, moves, s.toKube()); err != nil && !expired(err) {
			return err
		}
	}
	return nil
}

// freezeAndCompareBack makes kube-apiserver's own objects equal to the server's for good. After
// an error clients can write again, and the migration is back in the phase Copying.
func (s *session) freezeAndCompareBack(ctx context.Context, f *freezer) (err error) {
	defer func() {
		if err != nil {
			err = s.goBack(ctx, err)
		}
	}()
	if err := s.freeze(ctx, f); err != nil {
		return err
	}
	found, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	moves, err := s.openedMoves(ctx, found)
	if err != nil {
		return err
	}
	s.state.Objects, s.state.Revisions, s.state.NewUIDs = map[string]int{}, map[string]string{}, nil
	positions, err := s.copyFrozen(ctx, moves, s.toKube())
	if err != nil {
		return err
	}
	for _, move := range moves {
		position := positions[move.Resource]
		s.progress("%d %s are equal", position.objects, move.GroupResource)
		s.state.Objects[move.Resource], s.state.Revisions[move.Resource] = position.objects, position.revision
		for _, key := range sets.List(position.newUIDs) {
			s.state.NewUIDs = append(s.state.NewUIDs, move.Resource+"/"+key)
		}
	}
	if err := s.checkKubeGap(ctx); err != nil {
		return err
	}
	return s.raiseKube(ctx, 0)
}

// switchBack makes kube-apiserver answer requests by itself. What was done before is not done
// again.
func (s *session) switchBack(ctx context.Context, f *freezer) error {
	if err := s.freeze(ctx, f); err != nil {
		return err
	}
	found, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	if s.config.KubeEtcd == nil {
		err = s.beginKubeHistory(ctx, found)
	} else {
		err = s.awaitHistory(ctx)
	}
	if err != nil {
		return err
	}
	for _, name := range s.config.APIServices {
		if err := s.giveBack(ctx, name); err != nil {
			return err
		}
	}
	// The server's etcd may have gone on, with what others write.
	if s.config.KubeEtcd != nil {
		if err := s.awaitHistory(ctx); err != nil {
			return err
		}
	}
	if err := s.checkWatches(ctx); err != nil {
		return err
	}
	if err := s.endWatches(ctx); err != nil {
		return err
	}
	return s.annotate(ctx, found, keys.CopyNone)
}

// beginKubeHistory makes kube-apiserver begin its history here, at a revision that no client has
// seen from the server.
func (s *session) beginKubeHistory(ctx context.Context, found []definition) error {
	if err := s.removeBypass(ctx, found, keys.CopyKept); err != nil {
		return err
	}
	if err := settle(ctx); err != nil {
		return err
	}
	if err := s.raiseKube(ctx, 0); err != nil {
		return err
	}
	s.fillCaches(ctx, found)
	return nil
}

// endWatches ends the watches that clients still have at the server. They go on at kube-apiserver.
func (s *session) endWatches(ctx context.Context) error {
	now, err := s.serverRevision(ctx)
	if err != nil {
		return err
	}
	_, err = s.write(ctx, clientv3.OpPut(s.config.HistoryKey, strconv.FormatInt(now+1, 10)))
	return err
}

// awaitHistory makes kube-apiserver begin its history at a revision that no client has seen from the
// server, unless it has.
func (s *session) awaitHistory(ctx context.Context) error {
	now, err := s.serverRevision(ctx)
	if err != nil || now < s.state.History {
		return err
	}
	return s.renewHistory(ctx, raiseMargin)
}

// renewHistory raises the revision of kube-apiserver's etcd above where the server's will be after so
// many more writes, and makes kube-apiserver begin its history there.
func (s *session) renewHistory(ctx context.Context, ahead int64) error {
	if err := s.raiseKube(ctx, ahead); err != nil {
		return err
	}
	now, err := s.kubeRevision(ctx)
	if err != nil {
		return err
	}
	for _, on := range []bool{true, false} {
		if err := s.touch(ctx, on, keys.CopyKept); err != nil {
			return err
		}
	}
	if err := settle(ctx); err != nil {
		return err
	}
	found, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	s.fillCaches(ctx, found)
	s.state.History = now
	return s.save(ctx)
}

// releaseBack lets clients write, at kube-apiserver.
func (s *session) releaseBack(ctx context.Context) error {
	s.state.Switched = time.Now().UTC().Truncate(time.Second)
	return s.thaw(ctx)
}

// giveBack makes an APIService kube-apiserver's own again, and returns when it is.
func (s *session) giveBack(ctx context.Context, name string) error {
	err := eventually(ctx, availableTimeout, func(ctx context.Context) error {
		apiService, err := s.aggregator.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil // kube-apiserver makes it, if a definition has the version.
		}
		if err != nil {
			return err
		}
		if apiService.Spec.Service == nil && apiService.Labels[cluster.ManagedLabel] != "" {
			if reason := cluster.Availability(apiService).Reason; reason != cluster.LocalReason {
				return fmt.Errorf("kube-apiserver does not serve %s itself yet: %s", name, reason)
			}
			return s.answeredByServer(ctx, name, false)
		}
		patch := `{"metadata":{"labels":{"` + cluster.ManagedLabel + `":"true"}},"spec":{"service":null,"caBundle":null,"insecureSkipTLSVerify":null}}`
		_, err = s.aggregator.ApiregistrationV1().APIServices().Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err == nil {
			err = errors.New("it has just been changed")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("giving the APIService %s back to kube-apiserver: %w", name, err)
	}
	s.progress("%s is kube-apiserver's", name)
	return nil
}
