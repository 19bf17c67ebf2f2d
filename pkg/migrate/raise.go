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
	"strconv"
	"sync"
	"sync/atomic"

	"go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Clients remember revisions of the etcd that their objects come from, and watch on from there.
// The etcd that objects move to must have reached all of these, or clients would see nothing
// until it has. Each write raises the revision by one.
const (
	// raiseMargin is how far it is raised beyond that, since the other etcd goes on.
	raiseMargin = 1000
	// maxRaise is what is left to writes to etcd, and maxRaiseByAPI to those by kube-apiserver:
	// a few minutes.
	maxRaise      = 2_000_000
	maxRaiseByAPI = 100_000
)

// raise repeats writes, each of which returns the revision that it has made, until that is
// above the goal.
func raise(ctx context.Context, goal int64, write func(ctx context.Context, worker int) (int64, error)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		reached atomic.Int64
		wg      sync.WaitGroup
	)
	for worker := range writers {
		wg.Go(func() {
			for reached.Load() <= goal && ctx.Err() == nil {
				revision, err := write(ctx, worker)
				if err != nil {
					cancel(err)
					return
				}
				setAtLeast(&reached, revision)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func setAtLeast(value *atomic.Int64, least int64) {
	for {
		before := value.Load()
		if before >= least || value.CompareAndSwap(before, least) {
			return
		}
	}
}

// serverRevision is that of the server's etcd.
func (m *Migration) serverRevision(ctx context.Context) (int64, error) {
	response, err := m.config.Etcd.Get(ctx, m.config.StateKey, clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("reading the server's etcd: %w", err)
	}
	return response.Header.Revision, nil
}

// kubeRevision is that of kube-apiserver's etcd.
func (m *Migration) kubeRevision(ctx context.Context) (int64, error) {
	list, err := m.definitionClient().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("reading the CustomResourceDefinitions: %w", err)
	}
	return revisionOf(list.GetResourceVersion())
}

// beginHistory raises the revision of the server's etcd above kube-apiserver's, and makes the
// server answer watches from before with 410 Gone: clients then list again.
func (s *session) beginHistory(ctx context.Context) error {
	goal, err := s.kubeRevision(ctx)
	if err != nil || goal < s.begun {
		return err
	}
	now, err := s.serverRevision(ctx)
	if err != nil {
		return err
	}
	if now <= goal+raiseMargin {
		s.progress("raising the revision of the server's etcd from %d above %d", now, goal)
		key := s.config.StateKey + ".revision"
		err = raise(ctx, goal+raiseMargin, func(ctx context.Context, _ int) (int64, error) {
			response, err := s.write(ctx, clientv3.OpPut(key, ""))
			if err != nil {
				return 0, err
			}
			return response.Header.Revision, nil
		})
		if err != nil {
			return err
		}
		response, err := s.write(ctx, clientv3.OpDelete(key))
		if err != nil {
			return err
		}
		now = response.Header.Revision
	}
	if _, err := s.write(ctx, clientv3.OpPut(s.config.HistoryKey, strconv.FormatInt(now, 10))); err != nil {
		return err
	}
	s.begun = now
	// So that lists don't go on from before either.
	if _, err := s.config.Etcd.Compact(ctx, now); err != nil && !isCompacted(err) {
		return fmt.Errorf("compacting the server's etcd: %w", err)
	}
	return nil
}

// kubeGap is how far kube-apiserver's etcd is behind the server's, or less than nothing.
func (m *Migration) kubeGap(ctx context.Context) (gap, goal int64, err error) {
	goal, err = m.serverRevision(ctx)
	if err != nil {
		return 0, 0, err
	}
	now, err := m.kubeRevision(ctx)
	return goal - now, goal, err
}

// checkKubeGap returns an error if kube-apiserver's etcd is too far behind.
func (m *Migration) checkKubeGap(ctx context.Context) error {
	gap, goal, err := m.kubeGap(ctx)
	if err != nil {
		return err
	}
	limit := int64(maxRaiseByAPI)
	if m.config.KubeEtcd != nil {
		limit = maxRaise
	}
	if gap <= limit {
		return nil
	}
	return fmt.Errorf("kube-apiserver's etcd is %d revisions behind the server's, so that clients that watch would see nothing until it has caught up, and this command writes at most %d: "+
		"give --kube-etcd-servers, or restore a snapshot of kube-apiserver's etcd with \"etcdutl snapshot restore --mark-compacted --bump-revision\" so that it is above %d", gap, limit, goal)
}

// raiseKube raises the revision of kube-apiserver's etcd above where the server's will be after so
// many more writes.
func (s *session) raiseKube(ctx context.Context, ahead int64) error {
	gap, goal, err := s.kubeGap(ctx)
	gap, goal = gap+ahead, goal+ahead
	if err != nil || gap < 0 {
		return err
	}
	s.progress("raising the revision of kube-apiserver's etcd by %d, above %d", gap, goal)
	if s.config.KubeEtcd != nil {
		key := s.config.KubePrefix + "/migrate.revision"
		err := raise(ctx, goal+raiseMargin, func(ctx context.Context, _ int) (int64, error) {
			response, err := s.config.KubeEtcd.Put(ctx, key, "")
			if err != nil {
				return 0, fmt.Errorf("writing to kube-apiserver's etcd: %w", err)
			}
			return response.Header.Revision, nil
		})
		if err != nil {
			return err
		}
		_, err = s.config.KubeEtcd.Delete(ctx, key)
		return err
	}
	return s.raiseByAPI(ctx, goal+raiseMargin)
}

// raiseByAPI changes ConfigMaps, one for each writer.
func (s *session) raiseByAPI(ctx context.Context, goal int64) error {
	configMaps := s.kube.CoreV1().ConfigMaps(metav1.NamespaceDefault)
	name := func(worker int) string { return fmt.Sprintf("%s.%d", s.freezeName(), worker) }
	defer func() {
		for worker := range writers {
			_ = configMaps.Delete(context.WithoutCancel(ctx), name(worker), metav1.DeleteOptions{})
		}
	}()
	for worker := range writers {
		_, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name(worker)}}, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("raising the revision of kube-apiserver's etcd: %w", err)
		}
	}
	counts := make([]int, writers)
	return raise(ctx, goal, func(ctx context.Context, worker int) (int64, error) {
		counts[worker]++
		patch := `{"data":{"count":"` + strconv.Itoa(counts[worker]) + `"}}`
		changed, err := configMaps.Patch(ctx, name(worker), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		if err != nil {
			return 0, fmt.Errorf("raising the revision of kube-apiserver's etcd: %w", err)
		}
		return revisionOf(changed.ResourceVersion)
	})
}
