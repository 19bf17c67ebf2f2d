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
	"path"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// PlanBack finds out whether the objects can move back, and what happens to them. It changes
// nothing.
func (m *Migration) PlanBack(ctx context.Context) ([]Finding, error) {
	state, err := m.Status(ctx)
	if err != nil && !errors.Is(err, ErrNone) {
		return nil, err
	}
	p := &plan{Migration: m}
	for _, check := range []struct {
		name   string
		reason Reason
		run    func(context.Context) error
	}{
		{"migration", NotMoved, func(ctx context.Context) error { return m.checkReturnable(ctx, state) }},
		{"apiservices", NotRegistered, m.checkRegistered},
		{"etcd", RevisionTooLow, m.checkKubeGap},
		{"encryption", Encrypted, m.checkEncryptions},
	} {
		finding := Finding{Check: check.name, Status: OK, Cause: nothing}
		if err := check.run(ctx); err != nil {
			finding = Finding{check.name, check.reason, Failure, err.Error(), ""}
		}
		p.findings = append(p.findings, finding)
	}
	moves, err := m.moves(ctx)
	if err != nil {
		return nil, err
	}
	p.check = "objects"
	for _, move := range moves {
		if err := p.planBackOf(ctx, move, state); err != nil {
			return nil, err
		}
	}
	return p.findings, nil
}

func (m *Migration) checkReturnable(_ context.Context, state State) error {
	switch {
	case state.Phase == "" && m.config.KubeEtcd == nil:
		return errAllNew
	case state.Phase == "", state.Phase == Moved, state.Returning && state.Phase != Returned:
		return nil
	}
	return fmt.Errorf("the migration is in the phase %s, and not in %s", state.Phase, Moved)
}

func (m *Migration) checkEncryptions(ctx context.Context) error {
	moves, err := m.moves(ctx)
	for _, move := range moves {
		err = errors.Join(err, m.checkEncryption(ctx, move))
	}
	return err
}

// planBackOf names the objects that get another UID.
func (p *plan) planBackOf(ctx context.Context, move move, state State) error {
	count, created := 0, []string{}
	_, err := p.list(ctx, move.from, func(object *unstructured.Unstructured) error {
		count++
		if !object.GetCreationTimestamp().Time.Before(state.Switched) {
			created = append(created, path.Join(object.GetNamespace(), object.GetName()))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if p.config.KubeEtcd != nil || len(created) == 0 {
		p.notice(ObjectsMove, "", "%d %s would move back, with their UIDs", count, move.GroupResource)
		return nil
	}
	p.notice(NewUIDs, "give --kube-etcd-servers to keep their UIDs", "%d %s would move back, of which %d get another UID, since they were created after the others had moved, and the garbage collector deletes what they own: %v", count, move.GroupResource, len(created), created)
	return nil
}

// checkRegistered returns an error unless the server serves the group.
func (m *Migration) checkRegistered(ctx context.Context) error {
	found, err := m.definitions(ctx)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no CustomResourceDefinition defines a resource of %s: apply them first", m.config.Group)
	}
	for _, name := range m.config.APIServices {
		apiService, err := m.aggregator.ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if err == nil && apiService.Spec.Service != nil {
			return nil
		}
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reading the APIService %s: %w", name, err)
		}
	}
	return fmt.Errorf("no version of %s leads to a server: there is nothing to move back", m.config.Group)
}
