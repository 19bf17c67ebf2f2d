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
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

const (
	// reachTimeout bounds the wait for kube-apiserver to reach the server for the first time.
	// Writes of clients wait, too.
	reachTimeout = 10 * time.Second
	// availableTimeout bounds the waits after that. A busy kube-apiserver takes more than half
	// a minute to send requests elsewhere.
	availableTimeout = 2 * time.Minute
)

// switchToServer makes kube-apiserver send requests to the server, and hides the definitions, which
// ends its own watches. If the server can't be reached, or the definitions have changed, nothing
// changes for clients. The migration then is back in the phase Copying.
func (m *Migration) switchToServer(ctx context.Context) error {
	m.state.Service = serviceOf(&m.config.Service)
	return inOrder(ctx,
		m.switchVersions,
		m.copyLate,
		// Other writes may have raised the revision of kube-apiserver's etcd since.
		m.beginHistory,
		m.checkHistory,
		// A kube-apiserver that learned of this before it learns of the APIServices would answer 404.
		cluster.Settle,
		m.hide,
	)
}

// copyLate copies writes that kube-apiservers accepted because they learned late of the freeze. By
// now the one that answers sends writes to the server, where they wait.
func (m *Migration) copyLate(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	moves, err := m.moves(ctx)
	if err != nil {
		return err
	}
	// All wait at the same time.
	positions := make([]*position, len(moves))
	for i := range moves {
		revision := m.state.Revisions[moves[i].Resource]
		moves[i].from = local(moves[i].from)
		positions[i] = newPosition(revision)
		if positions[i].tail, err = m.tail(ctx, moves[i].from, revision); err != nil {
			return err
		}
	}
	for i, move := range moves {
		count, err := m.follow(ctx, move, positions[i], m.atServer())
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case expired(err), apierrors.IsNotFound(err):
			// An earlier process may have come further.
			m.progress("it can't be known whether %s were written after the freeze: %v", move.GroupResource, err)
		case err != nil:
			return err
		case count > 0:
			m.state.Revisions[move.Resource] = positions[i].revision
			m.progress("%d %s were written after the freeze, by a kube-apiserver that learned late of it, and have been copied", count, move.GroupResource)
		}
	}
	return nil
}

// switchToKube makes kube-apiserver serve what has moved back, from a revision on that no client has seen from the
// server, and answer requests itself. It ends the watches that clients still have at the server.
func (m *Migration) switchToKube(ctx context.Context) error {
	return inOrder(ctx,
		func(ctx context.Context) error { return m.raiseKube(ctx, raiseMargin) },
		m.allowCopies,
		m.serve,
		func(ctx context.Context) error { return m.allow(ctx, m.bypassName()) },
		// All kube-apiservers serve them before the first one learns that it has the APIServices again.
		cluster.Settle,
		m.fillCaches,
		func(ctx context.Context) error {
			given, err := m.givenBack(ctx)
			if err != nil || len(given) > 0 {
				return err // An earlier process has come further.
			}
			if err := m.checkReturned(ctx); err != nil {
				return m.unfreeze(ctx, err)
			}
			return nil
		},
		m.giveAllBack,
		m.checkHistory,
		func(ctx context.Context) error {
			_, err := m.endHistory(ctx, 1)
			return err
		},
		func(ctx context.Context) error { return m.annotate(ctx, keys.CopyNone) },
	)
}

// givenBack returns the APIServices that led to the server and are kube-apiserver's own again, or are about to be.
func (m *Migration) givenBack(ctx context.Context) ([]string, error) {
	registered, err := m.registered(ctx)
	return slices.DeleteFunc(slices.Sorted(maps.Keys(m.state.Registered)), func(name string) bool {
		_, still := registered[name]
		return still || !slices.Contains(m.config.APIServices, name)
	}), err
}

// checkReturned returns an error unless kube-apiserver can serve what has moved back.
func (m *Migration) checkReturned(ctx context.Context) error {
	if err := m.unchanged(ctx); err != nil {
		return err
	}
	return m.eachMove(ctx, func(move move) error {
		// It may encrypt resources, and had no copy that showed it.
		if _, _, err := m.revisionNow(ctx, local(move.from)); err != nil {
			return &refusal{fmt.Sprintf("kube-apiserver can't read the %s that were written to its etcd: %v", move.GroupResource, err),
				"if it encrypts them, add the provider identity to its --encryption-provider-config until all have been written again"}
		}
		return nil
	})
}

// giveAllBack gives one APIService after the other back, and returns when all are kube-apiserver's own again. While one
// leads to a server that follows new versions, that server may register one again that has been given back.
func (m *Migration) giveAllBack(ctx context.Context) error {
	var refused error
	timeout := availableTimeout * time.Duration(1+len(m.config.APIServices)) / 2
	err := eventually(ctx, timeout, func(ctx context.Context) error {
		for _, name := range m.config.APIServices {
			err := m.giveBack(ctx, name)
			if err != nil {
				err = fmt.Errorf("giving the APIService %s back to kube-apiserver: %w", name, err)
			}
			if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
				refused = err
				return nil // The next attempt would be refused, too, while writes wait.
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return cmp.Or(err, refused)
}

// giveBack deletes an APIService that leads to a server, and returns an error until it is kube-apiserver's own.
func (m *Migration) giveBack(ctx context.Context, name string) error {
	apiService, err := m.apiService(ctx, name)
	switch {
	case err != nil:
		return err
	case apiService == nil:
		return m.unregistered(ctx, name)
	case !cluster.OwnedByKube(apiService):
		if err := cluster.GiveBack(ctx, m.aggregator.ApiregistrationV1().APIServices(), name); err != nil {
			return err
		}
		m.progress("%s is given back to kube-apiserver", name)
		return errors.New("it has just been deleted")
	}
	if reason := cluster.Availability(apiService).Reason; reason != cluster.LocalReason {
		return fmt.Errorf("kube-apiserver does not serve %s itself yet: %s", name, reason)
	}
	return m.answeredByServer(ctx, name, false)
}

// unregistered returns an error if kube-apiserver is going to create an APIService for a
// definition.
func (m *Migration) unregistered(ctx context.Context, name string) error {
	version, group, _ := strings.Cut(name, ".")
	switch _, err := cluster.AnsweringServer(ctx, m.config.Cluster, group, version); {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	}
	return errors.New("kube-apiserver has not created it yet")
}

// apiService returns an APIService, or nil if there is none.
func (m *Migration) apiService(ctx context.Context, name string) (*apiregistrationv1.APIService, error) {
	apiService, err := m.aggregator.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the APIService %s: %w", name, err)
	}
	return apiService, nil
}

// apiServices returns the APIServices of the group's versions that exist.
func (m *Migration) apiServices(ctx context.Context) (found []*apiregistrationv1.APIService, err error) {
	for _, name := range m.config.APIServices {
		apiService, err := m.apiService(ctx, name)
		if err != nil {
			return nil, err
		}
		if apiService != nil {
			found = append(found, apiService)
		}
	}
	return found, nil
}

// switchVersions makes all APIServices lead to the server. The first one shows whether kube-apiserver reaches it.
func (m *Migration) switchVersions(ctx context.Context) error {
	switched, err := m.switched(ctx)
	if err != nil {
		return err
	}
	found, err := m.definitions(ctx)
	if err != nil {
		return err
	}
	names := slices.DeleteFunc(slices.Clone(m.config.APIServices), func(name string) bool {
		version, _, _ := strings.Cut(name, ".")
		return !slices.ContainsFunc(found, func(d definition) bool { return slices.Contains(d.served(), version) })
	})
	if len(switched) > 0 {
		return m.switchAll(ctx, names) // An earlier process has come further.
	}
	// After this, the migration ends at the server.
	if err := m.unchanged(ctx); err != nil {
		return m.unfreeze(ctx, err)
	}
	if len(names) == 0 {
		return nil
	}
	reached := false
	err = m.replace(ctx, func(ctx context.Context) error {
		first := names[len(names)-1]
		if err := m.switchVersion(ctx, first); err != nil {
			return err
		}
		if err := m.reach(ctx, first); err != nil {
			return err
		}
		reached = true
		return m.switchAll(ctx, names)
	})
	// Once a kube-apiserver has reached the server, clients may have read there. Only an abort undoes that.
	if err == nil || reached || ctx.Err() != nil {
		return err
	}
	// The update may have been done although its answer was lost.
	if backErr := m.giveAllBack(ctx); backErr != nil {
		return errors.Join(err, backErr)
	}
	return m.unfreeze(ctx, err)
}

// switchAll returns when the server answers for all versions.
func (m *Migration) switchAll(ctx context.Context, names []string) error {
	for _, do := range []func(context.Context, string) error{m.switchVersion, m.waitAvailable} {
		for _, name := range names {
			if err := do(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// replace calls a function that creates APIServices instead of kube-apiserver's own. Reads wait meanwhile: until a
// kube-apiserver has reached the server, it would answer 503.
func (m *Migration) replace(ctx context.Context, create func(context.Context) error) error {
	return cluster.ReplaceAPIServices(ctx, m.dynamic, m.aggregator.ApiregistrationV1().APIServices(), func(ctx context.Context) error {
		if err := m.hold(ctx, m.readsName(), "get", "list", "watch"); err != nil {
			return err
		}
		return errors.Join(create(ctx), m.unhold(context.WithoutCancel(ctx), m.readsName()))
	}, m.config.Group)
}

// waitAvailable returns when the server answers for a version.
func (m *Migration) waitAvailable(ctx context.Context, name string) error {
	if err := m.reach(ctx, name); err != nil {
		return err
	}
	return m.awaitServer(ctx, name, availableTimeout, func(ctx context.Context) error { return m.answeredByServer(ctx, name, true) })
}

// reach returns when a kube-apiserver has found that the server answers for a version.
func (m *Migration) reach(ctx context.Context, name string) error {
	return m.awaitServer(ctx, name, reachTimeout, func(ctx context.Context) error { return m.available(ctx, name) })
}

func (m *Migration) awaitServer(ctx context.Context, name string, timeout time.Duration, check func(context.Context) error) error {
	if err := eventually(ctx, timeout, check); err != nil {
		return fmt.Errorf("the server does not answer for %s: check that it runs, and the Service, its port and the certificate authority that were named; then run this again: %w", name, err)
	}
	return nil
}

// switchVersion makes an APIService lead to the server.
func (m *Migration) switchVersion(ctx context.Context, name string) error {
	apiService, err := m.apiService(ctx, name)
	if err != nil || apiService != nil && apiService.Spec.Service != nil && apiService.Labels[cluster.ManagedLabel] == "" {
		return err
	}
	if err := cluster.Lead(ctx, m.aggregator.ApiregistrationV1().APIServices(), name, m.config.Service, m.config.CABundle); err != nil {
		return fmt.Errorf("switching the APIService %s to the server: %w", name, err)
	}
	m.progress("%s leads to the server", name)
	return nil
}

// answeredByServer returns an error unless the server, or kube-apiserver itself, answers requests
// for a version. wanted asks for the server. Only the answers tell where a write ends up.
func (m *Migration) answeredByServer(ctx context.Context, name string, wanted bool) error {
	version, group, _ := strings.Cut(name, ".")
	server, err := cluster.AnsweringServer(ctx, m.config.Cluster, group, version)
	if apierrors.IsNotFound(err) {
		if apiService, getErr := m.apiService(ctx, name); getErr == nil && apiService == nil {
			return nil // No definition has the version.
		}
	}
	switch {
	case err != nil:
		return err
	case wanted && server == "":
		return fmt.Errorf("kube-apiserver still answers for the APIService %s itself", name)
	case !wanted && server != "":
		return fmt.Errorf("kube-apiserver still sends requests for the APIService %s to %s", name, server)
	}
	return nil
}

// available returns an error unless kube-apiserver has found that the server answers for a version.
// kube-apiserver may still answer itself for a moment.
func (m *Migration) available(ctx context.Context, name string) error {
	apiService, err := m.apiService(ctx, name)
	if err != nil || apiService == nil {
		return err
	}
	if apiService.Spec.Service == nil {
		return fmt.Errorf("the APIService %s does not lead to the server", name)
	}
	// Right after the switch the condition is still about kube-apiserver's own version.
	condition := cluster.Availability(apiService)
	if condition.Reason == "" || condition.Reason == cluster.LocalReason {
		return fmt.Errorf("kube-apiserver has not asked the server of %s yet", name)
	}
	if condition.Status != apiregistrationv1.ConditionTrue {
		return fmt.Errorf("the APIService %s is not available: %s: %s", name, condition.Reason, condition.Message)
	}
	return nil
}

// checkHistory requires that the server ends watches that begin at revisions of kube-apiserver.
// Clients then list again. Otherwise they would miss changes.
func (m *Migration) checkHistory(ctx context.Context) error {
	return m.eachMove(ctx, func(move move) error {
		err := eventually(ctx, availableTimeout, func(ctx context.Context) error { return m.checkWatch(ctx, move) })
		if err != nil {
			return fmt.Errorf("clients that resume a watch of the %s would miss changes; restart all replicas of the server, and run this again: %w", move.GroupResource, err)
		}
		return nil
	})
}

func (m *Migration) checkWatch(ctx context.Context, move move) error {
	revision, seconds := m.state.Revisions[move.Resource], int64(1)
	watcher, err := m.dynamic.Resource(move.from).Watch(ctx, metav1.ListOptions{ResourceVersion: revision, TimeoutSeconds: &seconds})
	if err == nil {
		event := <-watcher.ResultChan()
		watcher.Stop()
		err = fmt.Errorf("the server continues a watch at kube-apiserver's revision %s", revision)
		if event.Type == watch.Error {
			err = apierrors.FromObject(event.Object)
		}
	}
	if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
		return nil
	}
	return err
}

// switched returns the APIServices that lead clients to where the objects move.
func (m *Migration) switched(ctx context.Context) ([]string, error) {
	if m.state.Returning {
		return m.givenBack(ctx)
	}
	registered, err := m.registered(ctx)
	return slices.Sorted(maps.Keys(registered)), err
}

// checkUsed returns an error unless clients use what is copied. APIServices may have been changed meanwhile.
func (m *Migration) checkUsed(ctx context.Context) error {
	switched, err := m.switched(ctx)
	if err != nil || len(switched) == 0 {
		return err
	}
	fix := m.fixUnregister()
	if m.state.Returning {
		fix = "make the APIServices lead to the server again"
	}
	return &refusal{fmt.Sprintf("%s lead clients already to where the objects are only being copied, so that what they write there would be lost", strings.Join(switched, ", ")), fix}
}

// registered returns the specs of the APIServices that lead to a server, by name.
func (m *Migration) registered(ctx context.Context) (map[string]apiregistrationv1.APIServiceSpec, error) {
	all, err := m.apiServices(ctx)
	found := map[string]apiregistrationv1.APIServiceSpec{}
	for _, apiService := range all {
		if apiService.Spec.Service != nil {
			found[apiService.Name] = apiService.Spec
		}
	}
	return found, err
}
