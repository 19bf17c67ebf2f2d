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
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	storagemetrics "k8s.io/apiserver/pkg/storage/metrics"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/component-base/metrics/legacyregistry"

	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// indexedPods declares k8s.io/apiserver's example pods with the keys of their node
// selectors as an index.
func indexedPods() Kind[*example.Pod] {
	return Kind[*example.Pod]{
		New:        func() *example.Pod { return &example.Pod{} },
		NewList:    func() runtime.Object { return &example.PodList{} },
		Resource:   "pods",
		Singular:   "pod",
		Namespaced: true,
		Fields:     map[string]func(*example.Pod) string{"spec.nodeName": func(p *example.Pod) string { return p.Spec.NodeName }},
		Indexes: map[string]func(*example.Pod) []string{
			"spec.nodeSelector": func(p *example.Pod) []string { return slices.Sorted(maps.Keys(p.Spec.NodeSelector)) },
		},
		Spec: func(p *example.Pod) any { return p.Spec },
	}
}

func pod(name, node string, selectors ...string) *example.Pod {
	p := &example.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: example.PodSpec{NodeName: node}}
	for _, selector := range selectors {
		if p.Spec.NodeSelector == nil {
			p.Spec.NodeSelector = map[string]string{}
		}
		p.Spec.NodeSelector[selector] = "true"
	}
	return p
}

func TestIndexSelector(t *testing.T) {
	kind := indexedPods()
	for selector, want := range map[string][]string{
		"":                                         {"both", "none", "one", "prefix"},
		"spec.nodeSelector=a":                      {"both", "one"},
		"spec.nodeSelector==a":                     {"both", "one"},
		"spec.nodeSelector!=a":                     {"none", "prefix"},
		"spec.nodeSelector=b":                      {"both"},
		"spec.nodeSelector=c":                      {},
		"spec.nodeSelector=":                       {},
		"spec.nodeSelector!=":                      {"both", "none", "one", "prefix"},
		"spec.nodeSelector=a\x00b":                 {},
		"spec.nodeSelector=a,spec.nodeSelector=b":  {"both"},
		"spec.nodeSelector=a,spec.nodeSelector!=b": {"one"},
		"spec.nodeSelector=a,spec.nodeName=n1":     {"one"},
		"spec.nodeSelector=a,spec.nodeName!=n1":    {"both"},
		"spec.nodeSelector=a,metadata.name=both":   {"both"},
	} {
		t.Run(selector, func(t *testing.T) {
			field, err := fields.ParseSelector(selector)
			if err != nil {
				t.Fatal(err)
			}
			predicate := kind.predicate(labels.Everything(), field)
			got := []string{}
			for _, p := range []*example.Pod{pod("both", "n2", "a", "b"), pod("none", "n1"), pod("one", "n1", "a"), pod("prefix", "n1", "ab", "ba")} {
				matches, err := predicate.Matches(p)
				if err != nil {
					t.Fatal(err)
				}
				if matches {
					got = append(got, p.Name)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestIndexers(t *testing.T) {
	kind := indexedPods()
	index := (*kind.indexers())["f:spec.nodeSelector"]
	values, err := index(pod("both", "", "b", "a"))
	if err != nil || !slices.Equal(values, []string{"a", "b"}) {
		t.Errorf("got %v and the error %v", values, err)
	}
	const want = "the watch cache of pods has a *example.PodList"
	if _, err = index(&example.PodList{}); err == nil || err.Error() != want {
		t.Errorf("got the error %v, want %s", err, want)
	}
}

// podREST is the storage of indexed pods on a real etcd.
type podREST struct {
	rest.StandardStorage
	context.Context
}

func newPodREST(t *testing.T) podREST {
	t.Helper()
	etcd := etcd.Config{Dir: t.TempDir(), QuotaBytes: 64 << 20}
	start, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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

	scheme := runtime.NewScheme()
	InstallMeta(scheme)
	group := Group{
		Name: example.GroupName,
		Install: func(scheme *runtime.Scheme) {
			utilruntime.Must(example.AddToScheme(scheme))
			utilruntime.Must(examplev1.AddToScheme(scheme))
			utilruntime.Must(scheme.SetVersionPriority(examplev1.SchemeGroupVersion))
		},
		Kinds: []Declaration{indexedPods()},
	}
	if err := group.InstallTypes(scheme); err != nil {
		t.Fatal(err)
	}
	codec := serializer.NewCodecFactory(scheme).LegacyCodec(examplev1.SchemeGroupVersion)
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", codec))
	options.StorageConfig.Transport.ServerList = []string{etcd.Endpoint()}
	byVersion, err := group.Storage(scheme, options.CreateRESTOptionsGetter(&genericoptions.SimpleStorageFactory{StorageConfig: options.StorageConfig}, nil), Runtime{})
	if err != nil {
		t.Fatal(err)
	}
	pods := byVersion["v1"]["pods"]
	t.Cleanup(pods.Destroy)
	if err := wait.PollUntilContextTimeout(start, 10*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return pods.(rest.StorageWithReadiness).ReadinessCheck() == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	requestContext := genericapirequest.WithRequestInfo(genericapirequest.WithNamespace(t.Context(), "default"), &genericapirequest.RequestInfo{
		IsResourceRequest: true, APIGroup: example.GroupName, APIVersion: "v1", Resource: "pods",
	})
	return podREST{pods.(rest.StandardStorage), requestContext}
}

func (p podREST) create(t *testing.T, obj *example.Pod) {
	t.Helper()
	if _, err := p.Create(p, obj, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// update gives a pod other values of the index.
func (p podREST) update(t *testing.T, name string, selectors ...string) {
	t.Helper()
	_, _, err := p.Update(p, name, rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		updated := old.DeepCopyObject().(*example.Pod)
		updated.Spec = pod(name, "", selectors...).Spec
		return updated, nil
	}), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{})
	if err != nil {
		t.Error(err)
	}
}

func requireEvent(t *testing.T, watcher watch.Interface, kind watch.EventType, name string) {
	t.Helper()
	select {
	case event := <-watcher.ResultChan():
		if got := event.Object.(metav1.Object).GetName(); event.Type != kind || got != name {
			t.Fatalf("got %s of %s, want %s of %s", event.Type, got, kind, name)
		}
	case <-time.After(30 * time.Second):
		t.Fatalf("no event of %s", name)
	}
}

// list returns the names of the pods with a selector.
func (p podREST) list(t *testing.T, selector string, change func(*metainternalversion.ListOptions)) (names []string, next string) {
	t.Helper()
	field, err := fields.ParseSelector(selector)
	if err != nil {
		t.Error(err) // It may be another goroutine's.
		return nil, ""
	}
	options := &metainternalversion.ListOptions{FieldSelector: field}
	change(options)
	names = []string{}
	list, err := p.List(p, options)
	if err != nil {
		t.Error(err)
		return names, ""
	}
	for _, pod := range list.(*example.PodList).Items {
		names = append(names, pod.Name)
	}
	return names, list.(*example.PodList).Continue
}

func current(*metainternalversion.ListOptions) {}

// fetched is how many objects the watch cache has read for lists by an index.
func fetched(t *testing.T, index string) (sum float64) {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != "apiserver_storage_list_fetched_objects_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if label.GetName() == "index" && label.GetValue() == index {
					sum += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

func TestIndexes(t *testing.T) {
	storagemetrics.Register()
	pods := newPodREST(t)
	want := []string{}
	for i := range 40 {
		selectors := []string{"all", fmt.Sprintf("s%d", i%8)}
		name := fmt.Sprintf("p%02d", i)
		if i%8 == 3 {
			want = append(want, name)
		}
		pods.create(t, pod(name, "", selectors...))
	}

	before := fetched(t, "f:spec.nodeSelector")
	listed := func(selector string, want ...string) {
		t.Helper()
		if got, _ := pods.list(t, selector, current); !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", selector, got, want)
		}
	}
	listed("spec.nodeSelector=s3", want...)
	if read := fetched(t, "f:spec.nodeSelector") - before; int(read) != len(want) {
		t.Errorf("%v objects were read for %d that the index has", read, len(want))
	}

	first, next := pods.list(t, "spec.nodeSelector=s3", func(options *metainternalversion.ListOptions) { options.Limit = 2 })
	others, _ := pods.list(t, "spec.nodeSelector=s3", func(options *metainternalversion.ListOptions) { options.Continue = next })
	if !slices.Equal(first, want[:2]) || !slices.Equal(others, want[2:]) {
		t.Errorf("got %v and then %v, want the first two of %v and then the rest", first, others, want)
	}

	field, err := fields.ParseSelector("spec.nodeSelector=s3")
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := pods.Watch(pods, &metainternalversion.ListOptions{FieldSelector: field, ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	for _, name := range want {
		requireEvent(t, watcher, watch.Added, name)
	}
	pods.create(t, pod("unseen", "", "s4"))
	pods.update(t, "p04", "s4", "s3")
	requireEvent(t, watcher, watch.Added, "p04")
	pods.update(t, "p04", "s3")
	requireEvent(t, watcher, watch.Modified, "p04")
	pods.update(t, "p03", "s4")
	requireEvent(t, watcher, watch.Deleted, "p03")

	listed("spec.nodeSelector=s3", append([]string{"p04"}, want[1:]...)...)
	if _, err = pods.DeleteCollection(pods, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}, &metainternalversion.ListOptions{FieldSelector: field}); err != nil {
		t.Fatal(err)
	}
	listed("spec.nodeSelector=s3")
	listed("spec.nodeSelector=s4", "p03", "p12", "p20", "p28", "p36", "unseen")
}

// A list by an index has exactly the objects whose writes were acknowledged before.
// Checks whether something is in use may rely on it.
func TestIndexesAreConsistent(t *testing.T) {
	pods := newPodREST(t)
	var writers sync.WaitGroup
	for writer := range 4 {
		writers.Go(func() {
			for i := range 50 {
				name, before, after := fmt.Sprintf("p%d-%d", writer, i), fmt.Sprintf("b%d-%d", writer, i), fmt.Sprintf("a%d-%d", writer, i)
				has := func(selector string, want ...string) {
					if got, _ := pods.list(t, "spec.nodeSelector="+selector, current); !slices.Equal(got, want) {
						t.Errorf("%s: got %v, want %v", selector, got, want)
					}
				}
				pods.create(t, pod(name, "", before))
				has(before, name)
				pods.update(t, name, after)
				has(before)
				has(after, name)
				_, _, err := pods.Delete(pods, name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{})
				if err != nil {
					t.Error(err)
				}
				has(after)
			}
		})
	}
	writers.Wait()
}
