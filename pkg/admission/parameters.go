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
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
)

// parameterResync is the interval of k8s.io/apiserver's own informers of parameters.
const parameterResync = 10 * time.Minute

// parameterInformers makes a separate informer for each kind of parameters that
// the policies of a plugin use. The policies themselves come from the server's
// shared informers. There, a kind that this server may not read would never sync
// and keep the server unready. An informer that went out of use would not start
// again.
//
// The plugin asks for a resource and starts its informer, under the plugin's own
// lock.
// Upstream fault 62.
type parameterInformers struct {
	informers.SharedInformerFactory
	client dynamic.Interface
	asked  *parameterInformer
}

func newParameterInformers(shared informers.SharedInformerFactory, client dynamic.Interface) *parameterInformers {
	return &parameterInformers{SharedInformerFactory: shared, client: client}
}

// ForResource returns a new informer.
func (f *parameterInformers) ForResource(resource schema.GroupVersionResource) (informers.GenericInformer, error) {
	f.asked = newParameterInformer(resource, f.client.Resource(resource))
	return f.asked, nil
}

// Start starts the informer that ForResource returned last.
func (f *parameterInformers) Start(stop <-chan struct{}) {
	if f.asked != nil {
		go f.asked.Run(stop)
		f.asked = nil
	}
}

// parameterInformer reports a missing permission from its lister at once. Other
// informers would wait. The permission becomes an error of the policies that need
// it, and follows their failurePolicy.
// Upstream fault 63.
type parameterInformer struct {
	cache.SharedIndexInformer
	resource schema.GroupResource
	denied   atomic.Pointer[error]
}

func newParameterInformer(resource schema.GroupVersionResource, client dynamic.ResourceInterface) *parameterInformer {
	i := &parameterInformer{resource: resource.GroupResource()}
	i.SharedIndexInformer = cache.NewSharedIndexInformer(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list, err := client.List(ctx, options)
			i.note(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			w, err := client.Watch(ctx, options)
			i.note(err)
			return w, err
		},
	}, &unstructured.Unstructured{}, parameterResync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	// SetTransform fails only after the informer has started.
	_ = i.SetTransform(typedParameter)
	return i
}

// note keeps the last result about the permission. Errors of other kinds say
// nothing about it.
func (i *parameterInformer) note(err error) {
	switch {
	case err == nil:
		i.denied.Store(nil)
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("allow the user of this server to get, list and watch %s, which are parameters: %w", i.resource, err)
		i.denied.Store(&err)
	}
}

func (i *parameterInformer) err() error {
	if err := i.denied.Load(); err != nil {
		return *err
	}
	return nil
}

// Informer returns the informer itself.
func (i *parameterInformer) Informer() cache.SharedIndexInformer { return i }

// HasSynced returns true also if waiting is useless.
func (i *parameterInformer) HasSynced() bool {
	return i.err() != nil || i.SharedIndexInformer.HasSynced()
}

// Lister lists the parameters. Without the permission, it returns errors.
func (i *parameterInformer) Lister() cache.GenericLister {
	all := cache.NewGenericLister(i.GetIndexer(), i.resource)
	return parameterLister{all, all, i}
}

// parameterLister returns the informer's error instead of a list that may be empty
// or old for lack of permission.
type parameterLister struct {
	cache.GenericNamespaceLister
	all      cache.GenericLister
	informer *parameterInformer
}

func (l parameterLister) List(selector labels.Selector) ([]runtime.Object, error) {
	if err := l.informer.err(); err != nil {
		return nil, err
	}
	return l.GenericNamespaceLister.List(selector)
}

func (l parameterLister) Get(name string) (runtime.Object, error) {
	if err := l.informer.err(); err != nil {
		return nil, err
	}
	return l.GenericNamespaceLister.Get(name)
}

func (l parameterLister) ByNamespace(namespace string) cache.GenericNamespaceLister {
	return parameterLister{l.all.ByNamespace(namespace), l.all, l.informer}
}

// typedParameter returns a parameter of a kind that client-go knows as a typed
// object without its kind. kube-apiserver does the same, and so does k8s.io/apiserver
// when it reads a parameter directly.
func typedParameter(obj any) (any, error) {
	object, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil
	}
	typed, err := scheme.Scheme.New(object.GroupVersionKind())
	if runtime.IsNotRegisteredError(err) {
		return obj, nil
	}
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.UnstructuredContent(), typed); err != nil {
		return nil, fmt.Errorf("reading the parameter %s %s: %w", object.GroupVersionKind(), cache.MetaObjectToName(object), err)
	}
	typed.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return typed, nil
}
