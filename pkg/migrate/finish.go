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
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// endOfWatches is how long watches of the copies may last after the switch. By then kube-apiserver has answered all
// earlier requests, whose default timeout is a minute.
const endOfWatches = 65 * time.Second

// deletionTimeout bounds the wait for kube-apiserver to delete the copies of the definitions.
const deletionTimeout = 10 * time.Minute

// Finish removes the copies that the objects left behind, and forgets the migration. Clients and
// controllers do not see the copies, and so notice nothing.
//
// On the way back the copies are the server's. Otherwise they are kube-apiserver's, and are
// removed with the CustomResourceDefinitions, unless the server needs those.
func (m *Migration) Finish(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err := m.resume(ctx, func(state State) error { return m.finishable(ctx, state) })
	if err != nil {
		return err
	}
	// A client that still watches the copies would take their deletion for a deletion of the objects.
	if err := wait(ctx, time.Until(m.state.Switched.Add(endOfWatches))); err != nil {
		return err
	}
	if err := m.finishable(ctx, m.state); err != nil {
		return err
	}
	switch {
	case m.state.Phase == Returned:
		err = m.finishBack(ctx)
	case m.config.Defined:
		err = m.finishDefined(ctx)
	default:
		err = m.deleteDefinitions(ctx)
	}
	if err != nil {
		return err
	}
	return m.forget(ctx)
}

// PlanFinish returns what keeps Finish from working, and what it would delete. It changes nothing.
func (m *Migration) PlanFinish(ctx context.Context) ([]Finding, error) {
	state, err := m.Status(ctx)
	if err != nil {
		return nil, err
	}
	p := &plan{Migration: m, state: state}
	err = p.run(ctx, append(p.finishChecks(),
		p.precondition("written", CopiesWritten, func(ctx context.Context) error { return p.checkWritten(ctx, state) }),
		planCheck{"copies", p.noteCopies},
	)...)
	return p.findings, err
}

// finishable returns an error with the first reason not to finish a migration.
func (m *Migration) finishable(ctx context.Context, state State) error {
	p := &plan{Migration: m, state: state}
	return p.require(ctx, p.finishChecks()...)
}

func (p *plan) finishChecks() []planCheck {
	return []planCheck{
		p.precondition("migration", NotEnded, func(context.Context) error {
			if p.state.Phase == Moved || p.state.Phase == Returned {
				return nil
			}
			return &refusal{fmt.Sprintf("the migration is in the phase %s", p.state.Phase), fmt.Sprintf("finish it when it is in the phase %s", Moved)}
		}),
		p.precondition("kube-etcd", OtherEtcd, p.checkKubeEtcd),
		p.precondition("finalizers", CopiesFinalized, func(context.Context) error {
			if p.state.Phase != Moved || p.config.Defined || len(p.state.Finalized) == 0 {
				return nil
			}
			return &refusal{
				fmt.Sprintf("the copies that kube-apiserver has of %s, and perhaps of others, have finalizers, which nobody would remove", strings.Join(p.state.Finalized, ", ")),
				"leave the CustomResourceDefinitions as they are, they do no harm",
			}
		}),
		p.precondition("apiservices", CopiesUsed, p.checkAnswering),
		p.precondition("definitions", VersionNotMoved, p.checkNewVersions),
	}
}

// checkAnswering returns an error if clients use objects that would be deleted. After the way back
// they must use kube-apiserver's. Otherwise they must use the server that the objects were moved
// to, in each version that the definitions had.
func (p *plan) checkAnswering(ctx context.Context) error {
	found, err := p.definitions(ctx)
	if err != nil {
		return err
	}
	// These led to kube-apiserver before the objects moved.
	moved := sets.New[string]()
	for _, d := range found {
		for _, version := range d.served() {
			moved.Insert(version + "." + p.config.Group)
		}
	}
	served := false
	for _, name := range sets.List(moved.Clone().Insert(p.config.APIServices...)) {
		apiService, err := p.apiService(ctx, name)
		switch {
		case err != nil:
			return err
		case p.state.Phase == Returned && apiService != nil && apiService.Spec.Service != nil:
			return &refusal{fmt.Sprintf("the APIService %s leads to a server, so that clients use what would be deleted", name), p.fixUnregister()}
		case p.state.Phase == Returned, apiService == nil && !moved.Has(name):
			continue
		case apiService == nil:
			return &refusal{fmt.Sprintf("there is no APIService %s, so that clients of this version do not reach the objects at the server", name), p.fixRegister()}
		}
		if err := p.available(ctx, name); err != nil {
			return fmt.Errorf("the server does not serve the objects: %w", err)
		}
		now, want := serviceOf(apiService.Spec.Service), cmp.Or(serviceOf(&p.config.Service), p.state.Service)
		if want != "" && now != want {
			return &refusal{fmt.Sprintf("the APIService %s leads to the Service %s, and the objects were moved to %s", name, now, want),
				"make it lead there, or, if that is the same server, name its Service by --service-namespace and --service-name"}
		}
		served = true
	}
	if p.state.Phase == Moved && !served {
		return &refusal{fmt.Sprintf("no APIService of %s leads to a server", p.config.Group), p.fixRegister()}
	}
	return nil
}

// serviceOf returns the namespace and name of a Service, or "" for none.
func serviceOf(service *apiregistrationv1.ServiceReference) string {
	if service.Name == "" {
		return ""
	}
	return service.Namespace + "/" + service.Name
}

// noteCopies reports the copies that would be deleted.
func (p *plan) noteCopies(ctx context.Context) error {
	if p.state.Phase == Returned {
		for _, store := range p.config.Stores {
			count, err := p.countAtServer(ctx, store)
			if err != nil {
				return err
			}
			p.notice(CopiesDeleted, "", "the server's %d %s would be deleted", count, store.GroupResource)
		}
		return nil
	}
	definition := " with their definition"
	if p.config.Defined {
		definition = ", and their definition stays"
	}
	return p.eachMove(ctx, func(move move) (err error) {
		count := p.state.Objects[move.Resource]
		if p.config.KubeEtcd != nil {
			if count, err = p.inKubeEtcd().count(ctx, move); err != nil {
				return err
			}
		}
		p.notice(CopiesDeleted, "", "kube-apiserver's own copies of the %d %s would be deleted%s", count, move.GroupResource, definition)
		return nil
	})
}

// finishBack removes the server's copies.
func (m *Migration) finishBack(ctx context.Context) error {
	if err := m.removeCopies(ctx); err != nil {
		return err
	}
	// The group may have been registered again meanwhile.
	m.optional(leftOver, m.allowCopies(ctx))
	return m.annotate(ctx, "")
}

// finishDefined removes kube-apiserver's copies and leaves the definitions.
func (m *Migration) finishDefined(ctx context.Context) error {
	moves, err := m.movesBack(ctx)
	if err != nil {
		return err
	}
	if err := m.checkWritten(ctx, m.state); err != nil {
		return errors.Join(err, m.removeBypass(ctx))
	}
	copies := m.atKube()
	for _, move := range moves {
		found, err := copies.all(ctx, move)
		if err != nil {
			return err
		}
		for key, before := range found {
			if err := copies.write(ctx, move, key, &before, nil); err != nil {
				return fmt.Errorf("deleting kube-apiserver's copy of %s %s, so that the definition is not as it was: run this again; with --kube-etcd-servers, no webhook or policy can refuse it: %w", move.GroupResource, key, err)
			}
		}
		m.progress("kube-apiserver has no %s of its own", move.GroupResource)
	}
	return m.removeBypass(ctx)
}

// deleteDefinitions deletes the definitions, and with them kube-apiserver's copies.
func (m *Migration) deleteDefinitions(ctx context.Context) error {
	found, err := m.definitions(ctx)
	if err != nil {
		return err
	}
	// A user may have applied a definition again, so that it is served. Clients do not see that.
	if err := m.hide(ctx); err != nil {
		return err
	}
	for _, d := range found {
		if err := m.definitionClient().Delete(ctx, d.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the CustomResourceDefinition %s: %w", d.Name, err)
		}
	}
	err = eventually(ctx, deletionTimeout, func(ctx context.Context) error {
		left, err := m.definitions(ctx)
		if len(left) > 0 {
			err = fmt.Errorf("the CustomResourceDefinition %s is still being deleted", left[0].Name)
		}
		return err
	})
	if err != nil {
		return err
	}
	m.progress("the CustomResourceDefinitions of %s are deleted", m.config.Group)
	m.optional(leftOver, m.allowCopies(ctx))
	return nil
}

// checkNewVersions returns an error if a definition serves a version that the server does not have.
// Clients may have written to kube-apiserver's copies in that version.
func (p *plan) checkNewVersions(ctx context.Context) error {
	if p.state.Phase == Returned || p.config.Defined {
		return nil
	}
	found, err := p.definitions(ctx)
	if err != nil {
		return err
	}
	for _, d := range found {
		for _, version := range d.servedByKube() {
			if slices.Contains(p.config.APIServices, version+"."+d.Spec.Group) {
				continue
			}
			return &refusal{
				fmt.Sprintf("the CustomResourceDefinition %s serves the version %s, which the server does not have, so that kube-apiserver answers for it, and what was written there would be deleted", d.Name, version),
				fmt.Sprintf("look at /apis/%s/%s/%s, write what is missing through another version, and set served of this version to false", d.Spec.Group, version, d.Spec.Names.Plural),
			}
		}
	}
	return nil
}
