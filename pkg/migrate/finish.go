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
	"strings"
	"time"

	"go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deletionTimeout bounds the wait for kube-apiserver to delete the copies of a definition.
const deletionTimeout = 10 * time.Minute

// Finish deletes the CustomResourceDefinitions, with the copies of the objects that they
// still have, and forgets the migration. Clients and controllers do not notice: they all see
// the server's objects. It refuses to if copies have finalizers, which nobody would remove:
// their definition could never go away.
func (m *Migration) Finish(ctx context.Context) error {
	c, err := m.claim(ctx, func(state State) error {
		switch {
		case state.Phase != Moved:
			return fmt.Errorf("the migration is in the phase %s: finish it when it is in the phase %s", state.Phase, Moved)
		case len(state.Finalized) > 0:
			return fmt.Errorf("the copies that kube-apiserver has of %s, and perhaps of others, have finalizers, which nobody would remove: leave the CustomResourceDefinitions as they are, they do no harm", strings.Join(state.Finalized, ", "))
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, name := range c.APIServices {
		if err := c.available(ctx, name); err != nil {
			return fmt.Errorf("the server does not serve the objects: %w", err)
		}
	}
	// A definition that is applied again may be served, but clients do not see that.
	if err := c.stopServing(ctx); err != nil {
		return err
	}
	found, err := c.definitions(ctx)
	if err != nil {
		return err
	}
	client := c.definitionClient()
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
		c.Progress("%s is deleted", d.Name)
	}
	_, err = c.write(ctx, clientv3.OpDelete(c.StateKey))
	return err
}
