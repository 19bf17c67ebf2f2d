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
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// endOfWatches is how long after the switch there may be watches of the copies.
const endOfWatches = 15 * time.Second

// deletionTimeout bounds the wait for kube-apiserver to delete the copies of a definition.
const deletionTimeout = 10 * time.Minute

// Finish removes the copies of the objects from where they have moved from, and forgets the
// migration. Clients and controllers do not notice: they do not see these.
//
// On the way back the copies are the server's. Otherwise they are kube-apiserver's, and are
// removed with the CustomResourceDefinitions, unless the server needs those. Finish then
// refuses to if copies have finalizers, which nobody would remove: their definition could never
// go away.
func (m *Migration) Finish(ctx context.Context) error {
	s, err := m.resume(ctx, func(state State) error {
		switch {
		case state.Phase != Moved && state.Phase != Returned:
			return fmt.Errorf("the migration is in the phase %s: finish it when it is in the phase %s", state.Phase, Moved)
		case state.Phase == Moved && !m.config.Defined && len(state.Finalized) > 0:
			return fmt.Errorf("the copies that kube-apiserver has of %s, and perhaps of others, have finalizers, which nobody would remove: leave the CustomResourceDefinitions as they are, they do no harm", strings.Join(state.Finalized, ", "))
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := s.awaitEndOfWatches(ctx); err != nil {
		return err
	}
	switch {
	case s.state.Phase == Returned:
		err = s.finishBack(ctx)
	case s.config.Defined:
		err = s.finishDefined(ctx)
	default:
		err = s.deleteDefinitions(ctx)
	}
	if err != nil {
		return err
	}
	return s.forget(ctx)
}

// awaitEndOfWatches waits until nobody watches the copies any more, who would take their
// deletion for that of the objects. Servers end watches a second after the resource is no longer
// served, and later while they have requests to answer.
func (s *session) awaitEndOfWatches(ctx context.Context) error {
	select {
	case <-time.After(time.Until(s.state.Switched.Add(endOfWatches))):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// finishBack removes the server's copies, which then has no objects.
func (s *session) finishBack(ctx context.Context) error {
	if err := s.removeCopies(ctx); err != nil {
		return err
	}
	return s.annotate(ctx, "")
}

// finishDefined removes kube-apiserver's copies and leaves the definitions.
func (s *session) finishDefined(ctx context.Context) error {
	if err := s.checkAvailable(ctx); err != nil {
		return err
	}
	moves, err := s.movesBack(ctx)
	if err != nil {
		return err
	}
	copies := s.atKube()
	for _, move := range moves {
		found, err := copies.all(ctx, move)
		if err != nil {
			return err
		}
		for key, before := range found {
			if err := copies.write(ctx, move, key, &before, nil); err != nil {
				return fmt.Errorf("deleting kube-apiserver's copy of %s %s, which does no harm if it stays; give --kube-etcd-servers, by which no webhook or policy can refuse it: %w", move.GroupResource, key, err)
			}
		}
		s.progress("kube-apiserver has no %s of its own", move.GroupResource)
	}
	return s.removeBypass(ctx, "")
}

func (s *session) checkAvailable(ctx context.Context) error {
	for _, name := range s.config.APIServices {
		if err := s.available(ctx, name); err != nil {
			return fmt.Errorf("the server does not serve the objects: %w", err)
		}
	}
	return nil
}

// deleteDefinitions deletes the definitions, with the copies that kube-apiserver has.
func (s *session) deleteDefinitions(ctx context.Context) error {
	if err := s.checkAvailable(ctx); err != nil {
		return err
	}
	found, err := s.definitions(ctx)
	if err != nil {
		return err
	}
	if err := s.checkNewVersions(found); err != nil {
		return err
	}
	// A definition that is applied again may be served, but clients do not see that.
	if err := s.stopServing(ctx); err != nil {
		return err
	}
	client := s.definitionClient()
	for _, d := range found {
		if err := client.Delete(ctx, d.Name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("deleting the CustomResourceDefinition %s: %w", d.Name, err)
		}
		err := eventually(ctx, deletionTimeout, func(ctx context.Context) error {
			_, err := client.Get(ctx, d.Name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			if err == nil {
				err = fmt.Errorf("the CustomResourceDefinition %s is still being deleted", d.Name)
			}
			return err
		})
		if err != nil {
			return err
		}
		s.progress("%s is deleted", d.Name)
	}
	return nil
}

// checkNewVersions returns an error if definitions serve what the server does not have: since they
// were applied, clients may have written to kube-apiserver's copies.
func (m *Migration) checkNewVersions(found []definition) error {
	for _, d := range found {
		for _, version := range d.served() {
			name := version + "." + d.Spec.Group
			if slices.Contains(m.config.APIServices, name) {
				continue
			}
			return fmt.Errorf("the CustomResourceDefinition %s serves the version %s, which the server does not have, so that kube-apiserver answers for it, and what was written there would be deleted: "+
				"look at /apis/%s/%s/%s, write what is missing through another version, and set served of this version to false", d.Name, version, d.Spec.Group, version, d.Spec.Names.Plural)
		}
	}
	return nil
}
