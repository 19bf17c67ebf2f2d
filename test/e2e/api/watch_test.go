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

package api

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/cache"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/informers/externalversions"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// The generated informers and listers of all versions have what is written in one.
func TestInformers(t *testing.T) {
	t.Parallel()
	s := newSubject(t, "Pizza", "v1")
	factory := externalversions.NewSharedInformerFactoryWithOptions(framework.Restaurant(cp), 0, externalversions.WithNamespace(s.Namespace))
	defer factory.Shutdown()
	ctx, cancel := context.WithTimeout(t.Context(), controlplane.Patience)
	defer cancel()
	s.Create(t, "a")
	events, listers := map[string]chan string{}, map[string]cache.GenericLister{}
	for _, version := range framework.Versions() {
		informer, err := factory.ForResource(s.in(version).GroupVersionResource())
		require.NoError(t, err)
		told := make(chan string, 100)
		tell := func(verb string, object any) {
			key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(object)
			assert.NoError(t, err)
			told <- verb + " " + key
		}
		_, err = informer.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { tell("add", object) },
			UpdateFunc: func(_, object any) { tell("update", object) },
			DeleteFunc: func(object any) { tell("delete", object) },
		})
		require.NoError(t, err)
		events[version], listers[version] = told, informer.Lister()
	}
	factory.Start(ctx.Done())
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		require.True(t, synced, "%s has not synced.", kind)
	}
	b := s.Create(t, "b")
	s.change(t, b)
	_, err := s.Client().Update(t.Context(), b, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, s.Client().Delete(t.Context(), s.Name("a"), metav1.DeleteOptions{}))
	for version, told := range events {
		for _, want := range []string{"add a", "add b", "update b", "delete a"} {
			verb, name, _ := strings.Cut(want, " ")
			select {
			case got := <-told:
				require.Equal(t, verb+" "+s.Namespace+"/"+s.Name(name), got, version)
			case <-ctx.Done():
				require.Fail(t, "An event has not come.", "%s of %s", want, version)
			}
		}
		listed, err := listers[version].ByNamespace(s.Namespace).List(labels.Everything())
		require.NoError(t, err)
		require.Len(t, listed, 1)
		require.Equal(t, s.Name("b"), listed[0].(metav1.Object).GetName())
	}
}
