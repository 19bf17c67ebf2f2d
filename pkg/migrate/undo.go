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
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// undo makes clients use what they used before the migration, and removes the copies.
func (m *Migration) undo(ctx context.Context) error {
	if m.state.Phase == Copying || m.state.Phase == Freezing {
		if err := m.checkUsed(ctx); err != nil {
			return err
		}
	}
	if err := m.enter(ctx, Aborting); err != nil {
		return err
	}
	if m.state.Returning {
		return m.undoReverse(ctx)
	}
	return inOrder(ctx,
		m.switchBack,
		m.thawAborted,
		// Versions that lead to the server by now have the only copies.
		m.giveAllBack,
		m.removeCopies,
		m.forget,
	)
}

// thawAborted lets clients write where they did before. The migration can't go on after that.
func (m *Migration) thawAborted(ctx context.Context) error {
	m.state.Revisions = nil
	if err := m.save(ctx); err != nil {
		return err
	}
	return m.thaw(ctx, time.Time{})
}

// switchBack makes kube-apiserver answer requests itself again. Clients have written nothing at the
// server.
func (m *Migration) switchBack(ctx context.Context) error {
	switched, err := m.switched(ctx)
	if err != nil {
		return err
	}
	if len(switched) > 0 {
		m.optional("restart clients that see no changes", m.raiseAgain(ctx))
		// kube-apiserver's history then begins again, so that clients list again. And the annotation keeps the server
		// from registering versions again that have been given back.
		m.optional("clients that have read objects from the server may need to list them again", m.hide(ctx))
	}
	m.optional(leftOver, m.allowCopies(ctx))
	err = inOrder(ctx, m.unhide, m.giveAllBack, func(ctx context.Context) error {
		// Clients that still watch at the server list again, and are not told that the copies are deleted.
		_, err := m.endHistory(ctx, maxRaise)
		return err
	})
	if err != nil {
		return err
	}
	m.optional("a definition is not quite as it was", m.annotate(ctx, ""))
	return nil
}

// unhide makes kube-apiserver serve the definitions again that are hidden.
func (m *Migration) unhide(ctx context.Context) error {
	found, err := m.definitions(ctx)
	if err != nil || !slices.ContainsFunc(found, definition.hidden) {
		return err
	}
	if err := inOrder(ctx, cluster.Settle, m.serve); err != nil {
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
func (m *Migration) raiseAgain(ctx context.Context) error {
	missing, _, err := m.missing(ctx, true)
	if err != nil {
		return err
	}
	if missing > maxRaiseByAPI {
		return fmt.Errorf("kube-apiserver's etcd is %d revisions behind the server's", missing)
	}
	return m.raiseKube(ctx, raiseMargin)
}

// undoReverse makes clients use the server again. kube-apiserver's own objects stay as they are. No
// client sees them.
func (m *Migration) undoReverse(ctx context.Context) error {
	// kube-apiserver may not have created all of them again.
	switched, err := m.givenBack(ctx)
	if err != nil {
		return err
	}
	if len(switched) > 0 {
		registerAll := func(ctx context.Context) error {
			for _, name := range switched {
				if err := m.register(ctx, name); err != nil {
					return err
				}
			}
			return nil
		}
		err := inOrder(ctx, m.serveCopies, func(ctx context.Context) error { return m.replace(ctx, registerAll) }, cluster.Settle)
		if err != nil {
			return err
		}
	}
	m.refuseCopies(ctx)
	err = inOrder(ctx, m.hide, m.removeBypass)
	m.optional("a definition is not quite as it was", err)
	if err == nil {
		m.state.Conversions = nil
	}
	if err := m.thawAborted(ctx); err != nil {
		return err
	}
	m.state.Returning, m.state.Registered = false, nil
	return m.enter(ctx, Moved)
}

// serveCopies makes the server serve its copies again, at revisions above all that clients have
// seen.
func (m *Migration) serveCopies(ctx context.Context) error {
	if err := m.beginHistory(ctx); err != nil {
		return err
	}
	return m.updateDefinitions(ctx, "annotating", func(_ definition, definition *unstructured.Unstructured) error {
		if definition.GetAnnotations()[keys.CopyAnnotation] == keys.CopyNone {
			m.setCopyAnnotation(definition, "")
		}
		return nil
	})
}

// register makes an APIService lead to the server as before.
func (m *Migration) register(ctx context.Context, name string) error {
	client := m.aggregator.ApiregistrationV1().APIServices()
	registered := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{cluster.RegisteredLabel: "true"}}, Spec: m.state.Registered[name]}
	err := cluster.GiveBack(ctx, client, name)
	if err == nil {
		_, err = client.Create(ctx, registered, metav1.CreateOptions{})
	}
	if err != nil {
		return fmt.Errorf("switching the APIService %s to the server: %w", name, err)
	}
	return m.waitAvailable(ctx, name)
}

// checkMayRecover returns an error unless this user is a cluster administrator. A process that
// could only begin to recover a migration would keep others from it.
func (m *Migration) checkMayRecover(ctx context.Context, phase Phase) error {
	const all = "*"
	review, err := m.kube.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: all, Group: all, Resource: all}},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking kube-apiserver what this server may do: %w", err)
	}
	if !review.Status.Allowed {
		consequence := "in which clients can't write"
		if phase == Copying || phase == Moved {
			consequence = "so that changes of its definitions may have no effect"
		}
		return &refusal{
			fmt.Sprintf("a migration of %s has ended in the phase %s, %s, and this server is no cluster administrator, so it can't end that", m.config.Group, phase, consequence),
			"run the same command of \"migrate\" again, or \"migrate abort\", or bind the ClusterRole cluster-admin to the server's user until the objects have moved",
		}
	}
	return nil
}
