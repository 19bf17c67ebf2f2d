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

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

func TestOptionalListWatch(t *testing.T) {
	resource := schema.GroupResource{Group: admissionregistrationv1.GroupName, Resource: "mutatingadmissionpolicies"}
	notServed := apierrors.NewGenericServerResponse(404, "list", resource, "", "the server could not find the requested resource", 0, true)
	forbidden := apierrors.NewForbidden(resource, "", errors.New("no"))
	policies := &admissionregistrationv1.MutatingAdmissionPolicyList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7"},
		Items:    []admissionregistrationv1.MutatingAdmissionPolicy{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}},
	}
	events := watch.NewFake()
	for name, test := range map[string]struct {
		err error
		// version is where the watch begins.
		version              string
		wantList             runtime.Object
		wantIdle             bool
		wantErr, wantListErr error
	}{
		"served":               {nil, "7", policies, false, nil, nil},
		"not served":           {notServed, "", &admissionregistrationv1.MutatingAdmissionPolicyList{}, true, nil, nil},
		"not served any more":  {notServed, "7", &admissionregistrationv1.MutatingAdmissionPolicyList{}, false, notServed, nil},
		"may not be read":      {forbidden, "", nil, false, forbidden, forbidden},
		"may not be read more": {forbidden, "7", nil, false, forbidden, forbidden},
	} {
		t.Run(name, func(t *testing.T) {
			optional := &optionalListWatch{
				ListWatch: &cache.ListWatch{
					ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
						if test.err != nil {
							return nil, test.err
						}
						return policies, nil
					},
					WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
						if test.err != nil {
							return nil, test.err
						}
						return events, nil
					},
				},
				resource: resource.Resource,
				empty:    &admissionregistrationv1.MutatingAdmissionPolicyList{},
			}
			list, err := optional.ListWithContext(t.Context(), metav1.ListOptions{})
			if !errors.Is(err, test.wantListErr) {
				t.Errorf("got error %v of the list, want %v", err, test.wantListErr)
			}
			if diff := cmp.Diff(test.wantList, list); diff != "" {
				t.Errorf("unexpected list (-want +got):\n%s", diff)
			}
			w, err := optional.WatchWithContext(t.Context(), metav1.ListOptions{ResourceVersion: test.version})
			if !errors.Is(err, test.wantErr) {
				t.Errorf("got error %v of the watch, want %v", err, test.wantErr)
			}
			if idle := w != nil && w != watch.Interface(events); idle != test.wantIdle {
				t.Errorf("got the watch %v, want an idle one: %v", w, test.wantIdle)
			}
		})
	}
}
