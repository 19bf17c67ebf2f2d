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
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// A group stays registered by the versions that lead to another server.
func TestRegisteredAt(t *testing.T) {
	t.Parallel()
	var apiServices []apiregistrationv1.APIService
	for _, registered := range []struct{ version, group, service string }{
		{"v1", "bread.example.com", "oven"}, {"v2", "bread.example.com", "oven"},
		{"v1", "cake.example.com", "oven"}, {"v2", "cake.example.com", "mixer"},
		{"v1", "dough.example.com", "mixer"}, {"v1", "egg.example.com", ""}, {"v2", "bread.example.com", ""},
	} {
		apiService := apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{Version: registered.version, Group: registered.group}}
		apiService.Name = registered.version + "." + registered.group
		if registered.service != "" {
			apiService.Spec.Service = &apiregistrationv1.ServiceReference{Namespace: "bakery", Name: registered.service}
		}
		apiServices = append(apiServices, apiService)
	}
	names, groups := registeredAt(apiServices, types.NamespacedName{Namespace: "bakery", Name: "oven"})
	require.Equal(t, []string{"v1.bread.example.com", "v2.bread.example.com", "v1.cake.example.com"}, names)
	require.Equal(t, []string{"bread.example.com"}, groups)
}

func TestLeadsTo(t *testing.T) {
	t.Parallel()
	oven := types.NamespacedName{Namespace: "bakery", Name: "oven"}
	for name, test := range map[string]struct {
		service *apiregistrationv1.ServiceReference
		want    bool
	}{
		"the Service":                    {&apiregistrationv1.ServiceReference{Namespace: "bakery", Name: "oven"}, true},
		"another Service":                {&apiregistrationv1.ServiceReference{Namespace: "bakery", Name: "mixer"}, false},
		"a Service of another namespace": {&apiregistrationv1.ServiceReference{Namespace: "kitchen", Name: "oven"}, false},
		"kube-apiserver":                 {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			apiService := &apiregistrationv1.APIService{Spec: apiregistrationv1.APIServiceSpec{Service: test.service}}
			require.Equal(t, test.want, leadsTo(apiService, oven))
		})
	}
}
