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

package registry

import (
	"context"
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	storagetesting "k8s.io/apiserver/pkg/storage/testing"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// TestLibrarysTests runs k8s.io/apiserver's own tests of a storage on the layers between the
// store of a kind and etcd. Some of these layers are not k8s.io/apiserver's. The tests of
// reading, and of the order of bookmarks, are left out. They allow one and three seconds,
// which a busy machine exceeds.
func TestLibrarysTests(t *testing.T) {
	etcd := etcd.Config{Dir: t.TempDir(), QuotaBytes: 64 << 20}
	start, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	running, err := etcd.Start(start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := running.Close(); err != nil {
			t.Error(err)
		}
	})

	for name, run := range map[string]func(context.Context, *testing.T, storage.Interface){
		"create": func(ctx context.Context, t *testing.T, s storage.Interface) {
			storagetesting.RunTestCreate(ctx, t, s, func(context.Context, *testing.T, string) {})
		},
		"create with a time to live":            storagetesting.RunTestCreateWithTTL,
		"create what exists":                    storagetesting.RunTestCreateWithKeyExist,
		"delete":                                storagetesting.RunTestUnconditionalDelete,
		"delete on a condition":                 storagetesting.RunTestConditionalDelete,
		"delete what is known":                  storagetesting.RunTestDeleteWithSuggestion,
		"delete what was known":                 storagetesting.RunTestDeleteWithSuggestionAndConflict,
		"delete what is deleted":                storagetesting.RunTestDeleteWithSuggestionOfDeletedObject,
		"delete what changes":                   storagetesting.RunTestDeleteWithConflict,
		"delete what must be valid":             storagetesting.RunTestValidateDeletionWithSuggestion,
		"delete what is only known to be valid": storagetesting.RunTestValidateDeletionWithOnlySuggestionValid,
		"delete what is known on a condition":   storagetesting.RunTestPreconditionalDeleteWithSuggestion,
		"delete what meets it as it is known":   storagetesting.RunTestPreconditionalDeleteWithOnlySuggestionPass,
		"update with a time to live":            storagetesting.RunTestGuaranteedUpdateWithTTL,
		"update with a conflict":                storagetesting.RunTestGuaranteedUpdateWithConflict,
		"update what was known":                 storagetesting.RunTestGuaranteedUpdateWithSuggestionAndConflict,
		"list by pages":                         storagetesting.RunTestListPaging,
		"list by prefix":                        storagetesting.RunTestGetListRecursivePrefix,
		"list of a namespace":                   storagetesting.RunTestNamespaceScopedList,
		"watch":                                 storagetesting.RunTestWatch,
		"watch from a version":                  storagetesting.RunTestWatchFromNonZero,
		"watch a deletion":                      storagetesting.RunTestDeleteTriggerWatch,
		"watch the version of a deletion":       storagetesting.RunTestWatchDeleteEventObjectHaveLatestRV,
		"watch until it is enough":              storagetesting.RunTestWatchContextCancel,
		"watch a namespace":                     storagetesting.RunTestNamespaceScopedWatch,
		"watch with bookmarks": func(ctx context.Context, t *testing.T, s storage.Interface) {
			storagetesting.RunTestWatchDispatchBookmarkEvents(ctx, t, s, true)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t.Context(), t, newPodStorage(t, "/"+t.Name(), etcd.Endpoint()))
		})
	}
}

// newPodStorage returns the storage that a kind of this server has, for the objects of
// k8s.io/apiserver's tests.
func newPodStorage(t *testing.T, prefix, endpoint string) storage.Interface {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	utilruntime.Must(example.AddToScheme(scheme))
	utilruntime.Must(examplev1.AddToScheme(scheme))
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig(prefix, codec))
	options.StorageConfig.Transport.ServerList = []string{endpoint}
	getter := statusErrors{RESTOptionsGetter: options.CreateRESTOptionsGetter(&genericoptions.SimpleStorageFactory{StorageConfig: options.StorageConfig}, nil)}
	pods, err := getter.GetRESTOptions(schema.GroupResource{Resource: "pods"}, &example.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	key := func(obj runtime.Object) (string, error) { return storage.NamespaceKeyFunc("/pods/", obj) }
	attributes := func(obj runtime.Object) (labels.Set, fields.Set, error) {
		pod, ok := obj.(*example.Pod)
		if !ok {
			return nil, nil, errors.New("not a pod")
		}
		return pod.Labels, fields.Set{
			"metadata.name": pod.Name, "metadata.namespace": pod.Namespace,
			"spec.nodeName": pod.Spec.NodeName, "spec.restartPolicy": string(pod.Spec.RestartPolicy), "status.phase": string(pod.Status.Phase),
		}, nil
	}
	s, destroy, err := pods.Decorator(pods.StorageConfig, "/pods/", key,
		func() runtime.Object { return &example.Pod{} }, func() runtime.Object { return &example.PodList{} }, attributes, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(destroy)
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
		return s.ReadinessCheck() == nil, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
