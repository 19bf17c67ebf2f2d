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
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
)

func object(apiVersion, kind string, fields map[string]any) *unstructured.Unstructured {
	content := map[string]any{"apiVersion": apiVersion, "kind": kind, "metadata": map[string]any{"namespace": "default", "name": "limits"}}
	for name, value := range fields {
		content[name] = value
	}
	return &unstructured.Unstructured{Object: content}
}

func TestTypedParameter(t *testing.T) {
	thing := object("example.com/v1", "Thing", map[string]any{"spec": "any"})
	for name, test := range map[string]struct {
		in      any
		want    any
		wantErr string
	}{
		"a kind of Kubernetes": {
			object("v1", "ConfigMap", map[string]any{"data": map[string]any{"max": "3"}}),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "limits"}, Data: map[string]string{"max": "3"}}, "",
		},
		"another kind":                 {thing, thing, ""},
		"what is not from the cluster": {"tombstone", "tombstone", ""},
		"a kind of Kubernetes with another field": {
			object("v1", "ConfigMap", map[string]any{"data": "3"}), nil,
			`reading the parameter /v1, Kind=ConfigMap default/limits: cannot restore map from string`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := typedParameter(test.in)
			if (err != nil || test.wantErr != "") && (err == nil || err.Error() != test.wantErr) {
				t.Fatalf("got error %v, want %q", err, test.wantErr)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("unexpected object (-want +got):\n%s", diff)
			}
		})
	}
}

// A parameter that may not be read is an error, whatever was read before.
func TestDeniedParameter(t *testing.T) {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	limits := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "limits"}}
	const denied = "allow the user of this server to get, list and watch configmaps, which are parameters: configmaps is forbidden: no"
	for name, test := range map[string]struct {
		answers []error
		want    string
		// wantDecided is whether waiting for the parameters is over.
		wantDecided bool
	}{
		"nothing asked yet":       {nil, "", false},
		"no answer":               {[]error{errors.New("connection refused")}, "", false},
		"refused":                 {[]error{apierrors.NewForbidden(resource.GroupResource(), "", errors.New("no"))}, denied, true},
		"refused after a while":   {[]error{nil, apierrors.NewForbidden(resource.GroupResource(), "", errors.New("no"))}, denied, true},
		"allowed after a while":   {[]error{apierrors.NewForbidden(resource.GroupResource(), "", errors.New("no")), nil}, "", false},
		"refused, then no answer": {[]error{apierrors.NewForbidden(resource.GroupResource(), "", errors.New("no")), errors.New("connection refused")}, denied, true},
	} {
		t.Run(name, func(t *testing.T) {
			informer := newParameterInformer(resource, nil)
			if err := informer.GetIndexer().Add(limits); err != nil {
				t.Fatal(err)
			}
			for _, answer := range test.answers {
				informer.note(answer)
			}
			if got := informer.HasSynced(); got != test.wantDecided {
				t.Errorf("got HasSynced %v, want %v", got, test.wantDecided)
			}
			lister := informer.Lister()
			for how, read := range map[string]func() (any, error){
				"get":               func() (any, error) { return lister.Get("default/limits") },
				"get in namespace":  func() (any, error) { return lister.ByNamespace("default").Get("limits") },
				"list":              func() (any, error) { return lister.List(labels.Everything()) },
				"list in namespace": func() (any, error) { return lister.ByNamespace("default").List(labels.Everything()) },
			} {
				got, err := read()
				if test.want != "" {
					if err == nil || err.Error() != test.want || !apierrors.IsForbidden(err) {
						t.Errorf("%s: got %v, want a Forbidden: %s", how, err, test.want)
					}
					continue
				}
				want := any(limits)
				if _, ok := got.([]runtime.Object); ok {
					want = []runtime.Object{limits}
				}
				if err != nil || !cmp.Equal(want, got) {
					t.Errorf("%s: got %v, %v, want %v", how, got, err, want)
				}
			}
		})
	}
}

// A kind of parameters that was unused for a while is read again. The shared informers would
// not do that.
func TestParameterInformers(t *testing.T) {
	resource := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	limits := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "limits"}, Data: map[string]string{"max": "3"}}
	client := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, limits)
	var forbidden error
	client.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		return forbidden != nil, nil, forbidden
	})
	// A kube-apiserver without streaming lists; this client does not have them.
	client.PrependWatchReactor("configmaps", func(action clienttesting.Action) (bool, watch.Interface, error) {
		if of, ok := action.(clienttesting.WatchActionImpl); ok && of.ListOptions.SendInitialEvents != nil {
			return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil)
		}
		return false, nil, nil
	})
	factory := newParameterInformers(nil, client)
	factory.Start(t.Context().Done()) // Nothing has been asked for.
	for _, use := range []string{"first", "second"} {
		ctx, cancel := context.WithCancel(t.Context())
		informer, err := factory.ForResource(resource)
		if err != nil {
			t.Fatal(err)
		}
		factory.Start(ctx.Done())
		awaitSynced(t, informer.Informer().HasSynced)
		if got, err := informer.Lister().ByNamespace("default").Get("limits"); err != nil || !cmp.Equal(limits, got) {
			t.Errorf("%s use: got %v and the error %v, want %v", use, got, err, limits)
		}
		cancel()
	}

	forbidden = apierrors.NewForbidden(resource.GroupResource(), "", errors.New("no"))
	informer, err := factory.ForResource(resource)
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	awaitSynced(t, informer.Informer().HasSynced)
	if _, err := informer.Lister().List(labels.Everything()); !apierrors.IsForbidden(err) {
		t.Errorf("got %v, want Forbidden", err)
	}
}

func awaitSynced(t *testing.T, synced func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) { return synced(), nil })
	if err != nil {
		t.Fatalf("the informer does not sync: %v", err)
	}
}
