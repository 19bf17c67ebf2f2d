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
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/utils/ptr"
)

func TestOwnedByKube(t *testing.T) {
	t.Parallel()
	managed := map[string]string{ManagedLabel: "onstart"}
	service := &apiregistrationv1.ServiceReference{Namespace: "bakery", Name: "oven"}
	for name, test := range map[string]struct {
		labels  map[string]string
		service *apiregistrationv1.ServiceReference
		want    bool
	}{
		"of a definition":         {labels: managed, want: true},
		"of a server":             {service: service},
		"taken from a definition": {labels: managed, service: service},
		"of a user":               {labels: map[string]string{RegisteredLabel: "true"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, OwnedByKube(&apiregistrationv1.APIService{
				ObjectMeta: metav1.ObjectMeta{Labels: test.labels},
				Spec:       apiregistrationv1.APIServiceSpec{Service: test.service},
			}))
		})
	}
}

func TestLedTo(t *testing.T) {
	t.Parallel()
	const labels = `{"metadata":{"labels":{"crd-apiserver/registered":"true","kube-aggregator.kubernetes.io/automanaged":null}},`
	for name, test := range map[string]struct {
		port     *int32
		caBundle []byte
		want     string
	}{
		"a certificate authority": {ptr.To[int32](8443), []byte("PEM"), `"spec":{"caBundle":"UEVN","service":{"name":"oven","namespace":"bakery","port":8443}}}`},
		// A null in a patch removes what was there.
		"neither": {nil, nil, `"spec":{"caBundle":null,"service":{"name":"oven","namespace":"bakery","port":null}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			service := apiregistrationv1.ServiceReference{Namespace: "bakery", Name: "oven", Port: test.port}
			require.Equal(t, labels+test.want, string(LedTo(service, test.caBundle)))
		})
	}
}

func TestAvailability(t *testing.T) {
	t.Parallel()
	available := apiregistrationv1.APIServiceCondition{Type: apiregistrationv1.Available, Status: apiregistrationv1.ConditionTrue, Reason: LocalReason}
	other := apiregistrationv1.APIServiceCondition{Type: "Other", Status: apiregistrationv1.ConditionFalse}
	for name, test := range map[string]struct {
		conditions []apiregistrationv1.APIServiceCondition
		want       apiregistrationv1.APIServiceCondition
	}{
		"among others": {[]apiregistrationv1.APIServiceCondition{other, available}, available},
		"only others":  {[]apiregistrationv1.APIServiceCondition{other}, apiregistrationv1.APIServiceCondition{}},
		"none":         {nil, apiregistrationv1.APIServiceCondition{}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, Availability(&apiregistrationv1.APIService{
				Status: apiregistrationv1.APIServiceStatus{Conditions: test.conditions},
			}))
		})
	}
}

func TestAnsweringServer(t *testing.T) {
	t.Parallel()
	answer := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if req.URL.Path != "/prefix/apis/example.com/v1" {
				status = http.StatusTeapot
			}
			w.WriteHeader(status)
		})
	}
	for name, test := range map[string]struct {
		handler http.Handler
		server  string
		err     string
	}{
		"kube-apiserver":                      {handler: answer(http.StatusOK)},
		"a server":                            {handler: WithServerHeader(answer(http.StatusOK), "bakery"), server: "bakery"},
		"a server that is busy":               {handler: WithServerHeader(answer(http.StatusTooManyRequests), "bakery"), server: "bakery"},
		"a server that lacks the version":     {handler: WithServerHeader(answer(http.StatusNotFound), "bakery"), server: "bakery"},
		"kube-apiserver, for one that is not": {handler: answer(http.StatusServiceUnavailable), err: "the server is currently unable to handle the request"},
		"nobody":                              {handler: answer(http.StatusNotFound), err: "the server could not find the requested resource"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kube := httptest.NewServer(test.handler)
			defer kube.Close()
			server, err := AnsweringServer(t.Context(), &rest.Config{Host: kube.URL + "/prefix"}, "example.com", "v1")
			require.Equal(t, test.server, server)
			if test.err != "" {
				require.EqualError(t, err, "GET "+kube.URL+"/prefix/apis/example.com/v1: "+test.err)
				return
			}
			require.NoError(t, err)
		})
	}
}
