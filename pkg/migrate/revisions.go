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

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
)

// Clients remember revisions of the etcd that their objects come from, and watch on from there.
// The etcd that objects move to must have reached all of these, or clients would see nothing
// until it has. Each write raises the revision by one.
const (
	// raiseMargin is how far the revision is raised beyond the other one, which goes on.
	raiseMargin = 1000
	// maxRaise bounds the revisions written to etcd itself, and maxRaiseByAPI those written through
	// kube-apiserver. Either takes a few minutes.
	maxRaise      = 2_000_000
	maxRaiseByAPI = 100_000
)

// raiseAbove makes revisions of an etcd by a function until one is above a goal, unless the present one is. The function
// makes one revision and returns it.
func (m *Migration) raiseAbove(ctx context.Context, etcd string, now, goal int64, write func(ctx context.Context, worker int) (int64, error)) error {
	goal += raiseMargin
	if now > goal {
		return nil
	}
	m.progress("raising the revision of %s from %d above %d", etcd, now, goal)
	group, ctx := errgroup.WithContext(ctx)
	for worker := range writers {
		group.Go(func() error {
			for revision := int64(0); revision <= goal; {
				var err error
				if revision, err = write(ctx, worker); err != nil {
					return fmt.Errorf("raising the revision of %s: %w", etcd, err)
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// serverRevision returns the revision of the server's etcd.
func (m *Migration) serverRevision(ctx context.Context) (int64, error) {
	response, err := m.config.Etcd.Get(ctx, m.config.StateKey, clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("reading the server's etcd: %w", err)
	}
	return response.Header.Revision, nil
}

// kubeRevision returns the revision of kube-apiserver's etcd.
func (m *Migration) kubeRevision(ctx context.Context) (int64, error) {
	list, err := m.definitionClient().List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return 0, fmt.Errorf("reading the CustomResourceDefinitions: %w", err)
	}
	return revisionOf(list.GetResourceVersion())
}

// raiseKube raises the revision of kube-apiserver's etcd above the server's. ahead is the number of further writes that
// it leaves room for. If only kube-apiserver can reach its etcd, raiseKube changes ConfigMaps.
func (m *Migration) raiseKube(ctx context.Context, ahead int64) error {
	const etcd = "kube-apiserver's etcd"
	missing, goal, err := m.missing(ctx, true)
	if err != nil || missing+ahead < 0 {
		return err
	}
	if m.config.KubeEtcd == nil {
		defer m.deleteConfigMaps(context.WithoutCancel(ctx))
		return m.raiseAbove(ctx, etcd, goal-missing, goal+ahead, m.changeConfigMap)
	}
	key := m.config.KubePrefix + "/migrate.revision"
	err = m.raiseAbove(ctx, etcd, goal-missing, goal+ahead, func(ctx context.Context, _ int) (int64, error) {
		response, err := m.config.KubeEtcd.Put(ctx, key, "")
		if err != nil {
			return 0, err
		}
		return response.Header.Revision, nil
	})
	_, deleteErr := m.config.KubeEtcd.Delete(context.WithoutCancel(ctx), key)
	return errors.Join(err, deleteErr)
}

func (m *Migration) configMapName(worker int) string {
	return fmt.Sprintf("%s.%d", m.freezeName(), worker)
}

// changeConfigMap changes the ConfigMap of a worker, or creates it.
func (m *Migration) changeConfigMap(ctx context.Context, worker int) (int64, error) {
	wanted := corev1apply.ConfigMap(m.configMapName(worker), metav1.NamespaceDefault).WithData(map[string]string{"at": strconv.FormatInt(time.Now().UnixNano(), 10)})
	changed, err := m.kube.CoreV1().ConfigMaps(metav1.NamespaceDefault).Apply(ctx, wanted, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	if err != nil {
		return 0, err
	}
	return revisionOf(changed.ResourceVersion)
}

func (m *Migration) deleteConfigMaps(ctx context.Context) {
	for worker := range writers {
		// Those that are left over do no harm.
		_ = m.kube.CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(ctx, m.configMapName(worker), metav1.DeleteOptions{})
	}
}

// beginHistory raises the revision of the server's etcd above kube-apiserver's. The server then
// answers watches from earlier revisions with 410 Gone, and clients list again.
func (m *Migration) beginHistory(ctx context.Context) error {
	goal, err := m.kubeRevision(ctx)
	if err != nil || goal < m.historyStart {
		return err // This process has come that far already.
	}
	now, err := m.serverRevision(ctx)
	if err != nil {
		return err
	}
	err = m.raiseAbove(ctx, "the server's etcd", now, goal, func(ctx context.Context, _ int) (int64, error) {
		response, err := m.write(ctx, clientv3.OpPut(m.revisionKey(), ""))
		if err != nil {
			return 0, err
		}
		return response.Header.Revision, nil
	})
	if err != nil {
		return err
	}
	now, err = m.endHistory(ctx, 0)
	if err != nil {
		return err
	}
	m.historyStart = now
	// Lists must not go on from before either.
	if _, err := m.config.Etcd.Compact(ctx, now); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return fmt.Errorf("compacting the server's etcd: %w", err)
	}
	return nil
}

// endHistory makes the server's history begin so many revisions after the present one, which it returns. The server ends
// all watches.
func (m *Migration) endHistory(ctx context.Context, after int64) (now int64, err error) {
	if now, err = m.serverRevision(ctx); err != nil {
		return 0, err
	}
	_, err = m.write(ctx, clientv3.OpPut(m.config.HistoryKey, strconv.FormatInt(now+after, 10)))
	return now, err
}

// missing returns how many revisions the target's etcd is behind the other one, and the other one's
// revision. The number is negative if the target's etcd is ahead.
func (m *Migration) missing(ctx context.Context, back bool) (missing, goal int64, err error) {
	kube, err := m.kubeRevision(ctx)
	if err != nil {
		return 0, 0, err
	}
	server, err := m.serverRevision(ctx)
	if back {
		return server - kube, server, err
	}
	return kube - server, kube, err
}

// checkRevision returns an error if revisions are missing that this process may not write.
// Otherwise it returns a text about missing ones, if any.
func (m *Migration) checkRevision(ctx context.Context, back bool) (missed string, err error) {
	missing, goal, err := m.missing(ctx, back)
	if err != nil || missing <= 0 {
		return "", err
	}
	to, from, most := "the server's etcd", "kube-apiserver's", int64(maxRaise)
	if back {
		to, from = "kube-apiserver's etcd", "the server's"
		if m.config.KubeEtcd == nil {
			most = maxRaiseByAPI
		}
	}
	missed = fmt.Sprintf("%s is %d revisions behind %s", to, missing, from)
	if m.config.RaiseRevision && missing <= most {
		return missed, nil
	}
	embedded := ""
	if !back {
		embedded = ", or of an embedded etcd by \"snapshot restore\""
	}
	return missed, &refusal{
		cause: missed + ", so that clients that watch would see nothing until it has caught up",
		fix: fmt.Sprintf("restore a snapshot of %s by \"etcdutl snapshot restore --bump-revision=%d --mark-compacted\"%s, so that it goes on above the revision %d, "+
			"or give --raise-revision: \"migrate run\" or \"migrate back\" then writes up to %d empty revisions there", to, missing+raiseMargin, embedded, goal, most),
	}
}

// revisionOf parses a resourceVersion as a revision of etcd.
func revisionOf(resourceVersion string) (int64, error) {
	revision, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("kube-apiserver's resourceVersion %q is not a revision of etcd: %w", resourceVersion, err)
	}
	return revision, nil
}
