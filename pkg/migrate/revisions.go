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

// counter is an etcd whose revision can be raised.
type counter struct {
	name string
	now  func(context.Context) (int64, error)
	// write makes one revision, and returns it; clean removes what was written.
	write func(ctx context.Context, worker int) (int64, error)
	clean func(context.Context) error
}

// raise writes until the revision is above the goal.
func (c counter) raise(ctx context.Context, goal int64) error {
	group, writing := errgroup.WithContext(ctx)
	for worker := range writers {
		group.Go(func() error {
			for revision := int64(0); revision <= goal; {
				var err error
				if revision, err = c.write(writing, worker); err != nil {
					return fmt.Errorf("raising the revision of %s: %w", c.name, err)
				}
			}
			return nil
		})
	}
	err := group.Wait()
	if cleanErr := c.clean(context.WithoutCancel(ctx)); err == nil {
		err = cleanErr
	}
	return err
}

// raiseAbove raises the revision of an etcd above a goal, unless it is higher already.
func (m *Migration) raiseAbove(ctx context.Context, c counter, goal int64) error {
	now, err := c.now(ctx)
	if err != nil || now > goal+raiseMargin {
		return err
	}
	m.progress("raising the revision of %s from %d above %d", c.name, now, goal)
	return c.raise(ctx, goal+raiseMargin)
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

// serverCounter returns a counter for the server's etcd.
func (m *Migration) serverCounter() counter {
	return byKey("the server's etcd", m.serverRevision, m.config.StateKey+".revision", func(ctx context.Context, op clientv3.Op) (int64, error) {
		response, err := m.write(ctx, op)
		if err != nil {
			return 0, err
		}
		return response.Header.Revision, nil
	})
}

// kubeCounter returns a counter for kube-apiserver's etcd. If only kube-apiserver can reach that
// etcd, the counter changes ConfigMaps.
func (m *Migration) kubeCounter() counter {
	const name = "kube-apiserver's etcd"
	if m.config.KubeEtcd == nil {
		return counter{name: name, now: m.kubeRevision, write: m.changeConfigMap, clean: m.deleteConfigMaps}
	}
	return byKey(name, m.kubeRevision, m.config.KubePrefix+"/migrate.revision", func(ctx context.Context, op clientv3.Op) (int64, error) {
		response, err := m.config.KubeEtcd.Txn(ctx).Then(op).Commit()
		if err != nil {
			return 0, err
		}
		return response.Header.Revision, nil
	})
}

// byKey returns a counter that writes one key.
func byKey(name string, now func(context.Context) (int64, error), key string, do func(context.Context, clientv3.Op) (int64, error)) counter {
	return counter{
		name: name, now: now,
		write: func(ctx context.Context, _ int) (int64, error) { return do(ctx, clientv3.OpPut(key, "")) },
		clean: func(ctx context.Context) error {
			_, err := do(ctx, clientv3.OpDelete(key))
			return err
		},
	}
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

func (m *Migration) deleteConfigMaps(ctx context.Context) error {
	for worker := range writers {
		// Those that are left over do no harm.
		_ = m.kube.CoreV1().ConfigMaps(metav1.NamespaceDefault).Delete(ctx, m.configMapName(worker), metav1.DeleteOptions{})
	}
	return nil
}

// beginHistory raises the revision of the server's etcd above kube-apiserver's. The server then
// answers watches from earlier revisions with 410 Gone, and clients list again. It is done if this
// process has come that far already.
func (m *Migration) beginHistory(ctx context.Context) (done bool, err error) {
	goal, err := m.kubeRevision(ctx)
	if err != nil || goal < m.historyStart {
		return true, err
	}
	if err := m.raiseAbove(ctx, m.serverCounter(), goal); err != nil {
		return false, err
	}
	now, err := m.serverRevision(ctx)
	if err != nil {
		return false, err
	}
	if _, err := m.write(ctx, clientv3.OpPut(m.config.HistoryKey, strconv.FormatInt(now, 10))); err != nil {
		return false, err
	}
	m.historyStart = now
	// Lists must not go on from before either.
	if _, err := m.config.Etcd.Compact(ctx, now); err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return false, fmt.Errorf("compacting the server's etcd: %w", err)
	}
	return false, nil
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
			"or give --raise-revision: this command then writes up to %d empty revisions there", to, missing+raiseMargin, embedded, goal, most),
	}
}

// raiseKube raises the revision of kube-apiserver's etcd above the server's. ahead is the number of
// further writes that it leaves room for. It is done if the revision was high enough already.
func (m *Migration) raiseKube(ctx context.Context, ahead int64) (done bool, err error) {
	missing, goal, err := m.missing(ctx, true)
	if err != nil || missing+ahead < 0 {
		return true, err
	}
	return false, m.raiseAbove(ctx, m.kubeCounter(), goal+ahead)
}

// revisionOf parses a resourceVersion as a revision of etcd.
func revisionOf(resourceVersion string) (int64, error) {
	revision, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("kube-apiserver's resourceVersion %q is not a revision of etcd: %w", resourceVersion, err)
	}
	return revision, nil
}
