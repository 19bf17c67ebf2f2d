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
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// kubeAPIServer serves mutating policies and their bindings in one version. The list has one
// of each, and the watch adds another.
func kubeAPIServer(t *testing.T, version string) kubernetes.Interface {
	t.Helper()
	object := func(kind, name string) map[string]any {
		return map[string]any{
			"apiVersion": "admissionregistration.k8s.io/" + version, "kind": kind,
			"metadata": map[string]any{"name": name, "resourceVersion": "8"},
			"spec":     map[string]any{"failurePolicy": "Fail", "policyName": name},
		}
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		kind := map[string]string{"mutatingadmissionpolicies": "MutatingAdmissionPolicy", "mutatingadmissionpolicybindings": "MutatingAdmissionPolicyBinding"}[strings.TrimPrefix(req.URL.Path, "/apis/admissionregistration.k8s.io/"+version+"/")]
		if kind == "" {
			http.NotFound(w, req)
			return
		}
		var content any = map[string]any{
			"apiVersion": "admissionregistration.k8s.io/" + version, "kind": kind + "List",
			"metadata": map[string]any{"resourceVersion": "7"}, "items": []any{object(kind, "listed")},
		}
		watched := req.URL.Query().Get("watch") != ""
		if watched {
			content = map[string]any{"type": "ADDED", "object": object(kind, "watched")}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(content); err != nil {
			t.Error(err)
		}
		if watched {
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	client, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Mutating policies are read in the version that kube-apiserver serves.
func TestMutatingPoliciesOfAnyVersion(t *testing.T) {
	for version, served := range map[string]bool{"v1": true, "v1beta1": true, "v1alpha1": false} {
		t.Run(version, func(t *testing.T) {
			client := kubeAPIServer(t, version)
			factory := informers.NewSharedInformerFactory(client, 0)
			TolerateAbsence(factory, "example.com/elsewhere")
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			t.Cleanup(func() {
				cancel()
				factory.Shutdown()
			})
			registration := factory.Admissionregistration().V1()
			policyStore := registration.MutatingAdmissionPolicies().Informer().GetStore()
			bindingStore := registration.MutatingAdmissionPolicyBindings().Informer().GetStore()
			factory.Start(ctx.Done())
			factory.WaitForCacheSync(ctx.Done())
			if !served {
				if got := append(policyStore.ListKeys(), bindingStore.ListKeys()...); len(got) > 0 {
					t.Errorf("got %v", got)
				}
				return
			}
			var got []string
			want := []string{"Fail listed", "Fail watched", "listed", "watched"}
			err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
				got = nil
				for _, name := range []string{"listed", "watched"} {
					if object, exists, _ := policyStore.GetByKey(name); exists {
						policy, _ := object.(*admissionregistrationv1.MutatingAdmissionPolicy)
						got = append(got, fmt.Sprint(*policy.Spec.FailurePolicy, " ", policy.Name))
					}
				}
				for _, name := range []string{"listed", "watched"} {
					if object, exists, _ := bindingStore.GetByKey(name); exists {
						binding, _ := object.(*admissionregistrationv1.MutatingAdmissionPolicyBinding)
						got = append(got, binding.Spec.PolicyName)
					}
				}
				return len(got) == len(want), nil
			})
			if diff := cmp.Diff(want, got); diff != "" || err != nil {
				t.Errorf("unexpected objects (-want +got), %v:\n%s", err, diff)
			}
		})
	}
}
