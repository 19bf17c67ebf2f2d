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

package admission

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

// namespacesFor is a client that policies and webhooks use for namespaces outside of the cache.
//
// A namespace may be gone while its objects exist, after a restore of their etcd but not of the
// cluster's. Removing the finalizers of such objects has to be possible. Therefore a missing
// namespace is treated as one with no label but its name. The plugin NamespaceLifecycle refuses
// new objects in it.
type namespacesFor struct{ kubernetes.Interface }

func (c namespacesFor) CoreV1() typedcorev1.CoreV1Interface {
	return coreFor{c.Interface.CoreV1()}
}

type coreFor struct{ typedcorev1.CoreV1Interface }

func (c coreFor) Namespaces() typedcorev1.NamespaceInterface {
	return knownNamespaces{c.CoreV1Interface.Namespaces()}
}

type knownNamespaces struct{ typedcorev1.NamespaceInterface }

func (c knownNamespaces) Get(ctx context.Context, name string, options metav1.GetOptions) (*corev1.Namespace, error) {
	namespace, err := c.NamespaceInterface.Get(ctx, name, options)
	if apierrors.IsNotFound(err) {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}}, nil
	}
	return namespace, err
}
