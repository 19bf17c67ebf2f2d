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

package crdserver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	clienttesting "k8s.io/client-go/testing"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"
)

// discovered returns the discovery of a version with these resources.
func discovered(resources ...string) (version apidiscoveryv2.APIVersionDiscovery) {
	version.Version = "v1"
	for _, resource := range resources {
		version.Resources = append(version.Resources, apidiscoveryv2.APIResourceDiscovery{Resource: resource})
	}
	return version
}

// Every replica makes kube-apiserver read discovery once for each change of its own, and does not
// react to others.
func TestAnnounce(t *testing.T) {
	t.Parallel()
	const first, second = 0, 1
	type step struct {
		// replica has the resources in discovery from now on, after a restart if that is set.
		replica   int
		restart   bool
		resources []string
		// patches is how often the APIService is changed.
		patches int
	}
	own := serviceNamed("own")
	for name, test := range map[string]struct {
		service   *apiregistrationv1.ServiceReference
		absent    bool
		forbidden bool
		steps     []step
	}{
		"a second kind": {service: own, steps: []step{{first, false, []string{"a"}, 1}, {first, false, []string{"a", "b"}, 1}}},
		"nothing new":   {service: own, steps: []step{{first, false, []string{"a"}, 1}, {first, false, []string{"a"}, 0}}},
		"two replicas that start": {service: own, steps: []step{
			{first, false, []string{"a"}, 1}, {second, false, []string{"a"}, 0}, {first, true, []string{"a"}, 0},
		}},
		"two replicas that get a kind": {service: own, steps: []step{
			{first, false, []string{"a"}, 1}, {second, false, []string{"a"}, 0},
			{first, false, []string{"a", "b"}, 1}, {second, false, []string{"a", "b"}, 1}, {first, false, []string{"a", "b"}, 0},
		}},
		"a kind that came while the server was down": {service: own, steps: []step{
			{first, false, []string{"a"}, 1}, {first, true, []string{"a", "b"}, 1},
		}},
		"another server's version": {service: serviceNamed("other"), steps: []step{{first, false, []string{"a"}, 0}, {first, false, []string{"a", "b"}, 0}}},
		"kube-apiserver's version": {steps: []step{{first, false, []string{"a"}, 0}, {first, false, []string{"a", "b"}, 0}}},
		"not registered":           {absent: true, steps: []step{{first, false, []string{"a"}, 0}}},
		"not allowed":              {service: own, forbidden: true, steps: []step{{first, false, []string{"a"}, 1}, {first, false, []string{"a", "b"}, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset()
			if !test.absent {
				_, err := client.ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
					ObjectMeta: metav1.ObjectMeta{Name: "v1.example.com"}, Spec: apiregistrationv1.APIServiceSpec{Service: test.service},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			if test.forbidden {
				client.PrependReactor("patch", "apiservices", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "apiservices"}, "v1.example.com", nil)
				})
			}
			start := func() *announcer {
				return newAnnouncer(&registrar{client.ApiregistrationV1().APIServices(), func(service *apiregistrationv1.ServiceReference) bool { return service.Name == "own" }})
			}
			replicas := []*announcer{start(), start()}
			for i, step := range test.steps {
				if step.restart {
					replicas[step.replica] = start()
				}
				replica := replicas[step.replica]
				client.ClearActions()
				manager := observed(aggregated.NewResourceManager("apis"), replica.changed).WithSource(aggregated.CRDSource)
				manager.AddGroupVersion("example.com", discovered(step.resources...))
				queued, _ := replica.queue.Get()
				require.Equal(t, "v1.example.com", queued)
				require.NoError(t, replica.announce(t.Context(), queued))
				replica.queue.Done(queued)
				var patches []string
				for _, action := range client.Actions() {
					if patch, ok := action.(clienttesting.PatchAction); ok {
						patches = append(patches, string(patch.GetPatch()))
					}
				}
				require.Len(t, patches, step.patches, "step %d", i)
				if len(patches) > 0 {
					require.True(t, strings.HasSuffix(patches[0], "/"+replica.replica+`"}}}`), patches[0])
				}
			}
		})
	}
}
