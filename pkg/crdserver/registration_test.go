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
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	certutil "k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset/fake"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

func serviceNamed(name string) *apiregistrationv1.ServiceReference {
	return &apiregistrationv1.ServiceReference{Namespace: "default", Name: name}
}

// A version that leads to another server stays there, whatever the definitions serve.
func TestFollow(t *testing.T) {
	t.Parallel()
	own, manual, other, local := serviceNamed("own"), serviceNamed("manual"), serviceNamed("other"), (*apiregistrationv1.ServiceReference)(nil)
	for name, test := range map[string]struct {
		// registered and want are the Services of the versions. The version that leads to "manual" is not
		// registered.
		registered map[string]*apiregistrationv1.ServiceReference
		served     []string
		want       map[string]*apiregistrationv1.ServiceReference
	}{
		"a new version": {
			map[string]*apiregistrationv1.ServiceReference{"v1": own}, []string{"v1", "v2"},
			map[string]*apiregistrationv1.ServiceReference{"v1": own, "v2": own},
		},
		"a new version that kube-apiserver serves": {
			map[string]*apiregistrationv1.ServiceReference{"v1": own, "v2": local}, []string{"v1", "v2"},
			map[string]*apiregistrationv1.ServiceReference{"v1": own, "v2": own},
		},
		"a version that has gone": {
			map[string]*apiregistrationv1.ServiceReference{"v1": own, "v2": own}, []string{"v2"},
			map[string]*apiregistrationv1.ServiceReference{"v2": own},
		},
		"a version in the place of another": {
			map[string]*apiregistrationv1.ServiceReference{"v1": own}, []string{"v2"},
			map[string]*apiregistrationv1.ServiceReference{"v2": own},
		},
		"a version of another server": {
			map[string]*apiregistrationv1.ServiceReference{"v0": other, "v1": own}, []string{"v1", "v2"},
			map[string]*apiregistrationv1.ServiceReference{"v0": other, "v1": own, "v2": own},
		},
		"versions of another server before and behind": {
			map[string]*apiregistrationv1.ServiceReference{"v0": other, "v1": own, "v9": other}, []string{"v1", "v2"},
			map[string]*apiregistrationv1.ServiceReference{"v0": other, "v1": own, "v2": own, "v9": other},
		},
		"a version of another server that also has a definition": {
			map[string]*apiregistrationv1.ServiceReference{"v0": other, "v1": own}, []string{"v0", "v1"},
			map[string]*apiregistrationv1.ServiceReference{"v0": other, "v1": own},
		},
		"a group of another server": {
			map[string]*apiregistrationv1.ServiceReference{"v1": other}, []string{"v1", "v2"},
			map[string]*apiregistrationv1.ServiceReference{"v1": other},
		},
		"a version of this server that nobody has registered": {
			map[string]*apiregistrationv1.ServiceReference{"v0": manual, "v1": own}, []string{"v1"},
			map[string]*apiregistrationv1.ServiceReference{"v0": manual, "v1": own},
		},
		"a group that kube-apiserver serves": {
			map[string]*apiregistrationv1.ServiceReference{"v1": local}, []string{"v1", "v2"},
			map[string]*apiregistrationv1.ServiceReference{"v1": local},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := fake.NewClientset().ApiregistrationV1().APIServices()
			for version, service := range test.registered {
				labels := map[string]string{}
				if service != manual {
					labels[cluster.RegisteredLabel] = "true"
				}
				_, err := client.Create(t.Context(), &apiregistrationv1.APIService{
					ObjectMeta: metav1.ObjectMeta{Name: version + ".example.com", ResourceVersion: "1", Labels: labels},
					Spec:       apiregistrationv1.APIServiceSpec{Group: "example.com", Version: version, Service: service, CABundle: fmt.Append(nil, service)},
				}, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			r := &registrar{client, func(service *apiregistrationv1.ServiceReference) bool { return service.Name != "other" }}
			require.NoError(t, r.follow(t.Context(), "example.com", sets.New(test.served...)))
			list, err := client.List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			got := map[string]*apiregistrationv1.ServiceReference{}
			for _, apiService := range list.Items {
				got[apiService.Spec.Version] = apiService.Spec.Service
				require.Equal(t, fmt.Append(nil, apiService.Spec.Service), apiService.Spec.CABundle)
			}
			require.Equal(t, test.want, got)
		})
	}
}

func TestCertified(t *testing.T) {
	t.Parallel()
	certificate := func(host string) dynamiccertificates.SNICertKeyContentProvider {
		cert, key, err := certutil.GenerateSelfSignedCertKey(host, nil, nil)
		require.NoError(t, err)
		provider, err := dynamiccertificates.NewStaticSNICertKeyContent(host, cert, key)
		require.NoError(t, err)
		return provider
	}
	own, another := certificate("own.default.svc"), certificate("another.example.com")
	for name, test := range map[string]struct {
		serving genericapiserver.SecureServingInfo
		service *apiregistrationv1.ServiceReference
		want    bool
	}{
		"its own":              {genericapiserver.SecureServingInfo{Cert: own}, serviceNamed("own"), true},
		"one of several":       {genericapiserver.SecureServingInfo{Cert: another, SNICerts: []dynamiccertificates.SNICertKeyContentProvider{own}}, serviceNamed("own"), true},
		"of another Service":   {genericapiserver.SecureServingInfo{Cert: own}, serviceNamed("other"), false},
		"of another namespace": {genericapiserver.SecureServingInfo{Cert: own}, &apiregistrationv1.ServiceReference{Namespace: "elsewhere", Name: "own"}, false},
		"none":                 {genericapiserver.SecureServingInfo{}, serviceNamed("own"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, certified(&test.serving)(test.service))
		})
	}
}
