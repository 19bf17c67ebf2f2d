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

package certificates

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// secrets are Secrets of a namespace whose content this package owns.
type secrets struct {
	kube      kubernetes.Interface
	namespace string
	// replacement is further advice for a server that may not keep them.
	replacement string
}

// get returns a Secret, or a new one if it does not exist.
func (s secrets) get(ctx context.Context, name string) (*corev1.Secret, error) {
	secret, err := s.kube.CoreV1().Secrets(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}, nil
	}
	return secret, s.explain(name, err, "get and update")
}

// CABundle returns the certificate authority that a [Manager] keeps in a Secret, as PEM. Callers
// register its server with it.
func CABundle(ctx context.Context, kube kubernetes.Interface, namespace, secret string) ([]byte, error) {
	kept, err := kube.CoreV1().Secrets(namespace).Get(ctx, secret, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading which certificate authority the server has: %w", err)
	}
	bundle := kept.Data[caCert]
	if len(bundle) == 0 {
		return nil, fmt.Errorf("the Secret %s in %s has no %s yet: start the server, which writes it", secret, namespace, caCert)
	}
	return bundle, nil
}

// publishBundle writes a bundle into a ConfigMap, for clients that have no use for the keys in the
// Secret. One that does not exist is left out.
func (s secrets) publishBundle(ctx context.Context, name string, bundle []byte) error {
	configMaps := s.kube.CoreV1().ConfigMaps(s.namespace)
	configMap, err := configMaps.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && configMap.Data[caCert] == string(bundle) {
		return nil
	}
	if err == nil {
		configMap.Data = map[string]string{caCert: string(bundle)}
		_, err = configMaps.Update(ctx, configMap, metav1.UpdateOptions{})
	}
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("allow the user of this server to get and update the ConfigMap %s in %s, where it publishes its certificate authority: %w", name, s.namespace, err)
	}
	return err
}

// put writes a Secret, unless somebody else was first.
func (s secrets) put(ctx context.Context, secret *corev1.Secret) error {
	if secret.ResourceVersion == "" {
		_, err := s.kube.CoreV1().Secrets(s.namespace).Create(ctx, secret, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return fmt.Errorf("the Secret %[1]s in %[2]s does not exist: create it empty, by \"kubectl create secret generic %[1]s --namespace=%[2]s\", or allow the user of this server to create Secrets there%[3]s: %[4]w",
				secret.Name, s.namespace, s.replacement, err)
		}
		return ignoreConflict(err)
	}
	_, err := s.kube.CoreV1().Secrets(s.namespace).Update(ctx, secret, metav1.UpdateOptions{})
	return s.explain(secret.Name, ignoreConflict(err), "update")
}

// ignoreConflict ignores that somebody else was first.
func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

func (s secrets) explain(name string, err error, verbs string) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("allow the user of this server to %s the Secret %s in %s%s: %w", verbs, name, s.namespace, s.replacement, err)
	}
	return err
}

// keeper keeps a certificate authority in a Secret.
type keeper struct {
	secrets
	name     string
	validity time.Duration
	clock    clock.PassiveClock
	// publish makes everybody trust a bundle; before that no step is taken.
	publish func(ctx context.Context, bundle []byte) error
}

// sync takes the steps that are due and returns the certificate authority, which is trusted.
func (k keeper) sync(ctx context.Context) (ca, error) {
	for {
		secret, err := k.get(ctx, k.name)
		if err != nil {
			return ca{}, err
		}
		a, err := decode(secret)
		if err != nil {
			return ca{}, fmt.Errorf("the Secret %s/%s can't be used; remove its data, and a new certificate authority is made: %w", k.namespace, k.name, err)
		}
		if a.current != nil {
			if err := k.publish(ctx, a.bundle()); err != nil {
				return ca{}, err
			}
		}
		next, changed, err := a.advance(k.name, k.clock.Now(), k.validity)
		if err != nil || !changed {
			return a, err
		}
		next.encode(secret)
		if err := k.put(ctx, secret); err != nil {
			return ca{}, err
		}
	}
}

// repeat renews certificates of the validity in time, until the context ends. While the cluster
// can't be reached, the existing certificates stay in use.
func repeat(ctx context.Context, validity time.Duration, what string, sync func(context.Context) error) {
	interval := min(max(validity/100, time.Second), 10*time.Second)
	wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
		if err := sync(ctx); err != nil && ctx.Err() == nil {
			klog.ErrorS(err, what+" can't be looked after", "retry", interval)
		}
	}, interval, 0.1, true)
}
