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

package cluster

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregatorfake "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
)

// What is kube-apiserver's own is deleted while a policy keeps it from coming back, and the policy always goes.
func TestReplaceAPIServices(t *testing.T) {
	own := &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com", Labels: map[string]string{ManagedLabel: "true"}},
		Spec:       apiregistrationv1.APIServiceSpec{Group: "example.com", Version: "v1"},
	}
	other := own.DeepCopy()
	other.Name, other.Spec.Group = "v1.example.org", "example.org"
	elsewhere := own.DeepCopy()
	elsewhere.Labels, elsewhere.Spec.Service = nil, &apiregistrationv1.ServiceReference{}
	forbidden := func(reason string) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "apiservices"}, own.Name, errors.New(reason))
	}
	const (
		apply  = "apply validatingadmissionpolicies, apply validatingadmissionpolicybindings, try"
		remove = "delete mutatingadmissionpolicybindings, delete mutatingadmissionpolicies, delete validatingadmissionpolicybindings, delete validatingadmissionpolicies"
	)
	for name, test := range map[string]struct {
		apiService      *apiregistrationv1.APIService
		refused, create error
		want, wantErr   string
	}{
		"its own":             {own, forbidden(OwnPolicyName("example.com")), nil, apply + ", delete v1.example.com, create, " + remove, ""},
		"of another server":   {elsewhere, nil, nil, "create", ""},
		"created in vain":     {own, forbidden(OwnPolicyName("example.com")), errors.New("unreached"), apply + ", delete v1.example.com, create, " + remove, "unreached"},
		"without permission":  {own, forbidden("no"), nil, apply + ", " + remove, `kube-apiserver does not apply the policy crd-apiserver.example.com.own to the APIService v1.example.com: apiservices "v1.example.com" is forbidden: no (context deadline exceeded)`},
		"the policy is unfit": {own, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "apiservices"}, own.Name), nil, apply + ", " + remove, `kube-apiserver does not apply the policy crd-apiserver.example.com.own to the APIService v1.example.com: apiservices "v1.example.com" already exists (context deadline exceeded)`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var got string
				did := func(what string) {
					if got != "" {
						got += ", "
					}
					got += what
				}
				client := dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
				client.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
					verb := action.GetVerb()
					if verb == "patch" {
						verb = "apply"
					}
					did(verb + " " + action.GetResource().Resource)
					return true, nil, nil
				})
				aggregator, tried := aggregatorfake.NewSimpleClientset(test.apiService, other), false
				aggregator.PrependReactor("create", "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) {
					if !tried {
						tried = true
						did("try")
					}
					return true, nil, test.refused
				})
				aggregator.PrependReactor("delete", "apiservices", func(action clienttesting.Action) (bool, runtime.Object, error) {
					did("delete " + action.(clienttesting.DeleteAction).GetName())
					return false, nil, nil
				})
				err := ReplaceAPIServices(t.Context(), client, aggregator.ApiregistrationV1().APIServices(), func(context.Context) error {
					did("create")
					return test.create
				}, "example.com")
				require.Equal(t, test.want, got)
				if test.wantErr == "" {
					require.NoError(t, err)
				} else {
					require.EqualError(t, err, test.wantErr)
				}
			})
		})
	}
}
