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
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

const (
	// ManagedLabel is on APIServices that kube-apiserver manages itself. It restores their spec from
	// the CustomResourceDefinition, or deletes them if there is none. An apply does not remove the
	// label.
	ManagedLabel = "kube-aggregator.kubernetes.io/automanaged"
	// RegisteredLabel is on APIServices that lead to a server since their group was registered. The
	// keeper of the server's certificate authority keeps their caBundle, too.
	RegisteredLabel = "crd-apiserver/registered"
	// LocalReason is the reason of the condition Available of an APIService that
	// kube-apiserver serves by itself.
	LocalReason = "Local"
	// ServerHeader names the server that has written a response, see RFC 9110, section 10.2.4.
	// kube-apiserver has none of its own, and lets another server's through.
	ServerHeader = "Server"
)

// OwnedByKube reports whether an APIService is kube-apiserver's own.
func OwnedByKube(apiService *apiregistrationv1.APIService) bool {
	return apiService.Spec.Service == nil && apiService.Labels[ManagedLabel] != ""
}

// LedTo returns a merge patch that makes an APIService lead to a Service. Label and Service change
// together: with either alone kube-apiserver would undo it.
func LedTo(service apiregistrationv1.ServiceReference, caBundle []byte) []byte {
	patch, _ := json.Marshal(map[string]any{
		"metadata": map[string]any{"labels": map[string]any{ManagedLabel: nil, RegisteredLabel: "true"}},
		"spec": map[string]any{
			"service":  map[string]any{"namespace": service.Namespace, "name": service.Name, "port": service.Port},
			"caBundle": caBundle,
		},
	})
	return patch
}

// Availability returns the condition Available of an APIService, or the zero value.
func Availability(apiService *apiregistrationv1.APIService) apiregistrationv1.APIServiceCondition {
	for _, condition := range apiService.Status.Conditions {
		if condition.Type == apiregistrationv1.Available {
			return condition
		}
	}
	return apiregistrationv1.APIServiceCondition{}
}

// WithServerHeader returns a handler whose responses name the server.
func WithServerHeader(handler http.Handler, name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set(ServerHeader, name)
		handler.ServeHTTP(w, req)
	})
}

// AnsweringServer returns the name of the server that answers kube-apiserver's requests for a
// version, whatever the answer. It returns "" if kube-apiserver serves the version itself. Of
// several kube-apiservers it asks one. The error wraps an *apierrors.StatusError if it is
// kube-apiserver's own, such as NotFound for an unknown version.
func AnsweringServer(ctx context.Context, cluster *rest.Config, group, version string) (string, error) {
	client, err := rest.HTTPClientFor(cluster)
	if err != nil {
		return "", err
	}
	address, _, err := rest.DefaultServerUrlFor(cluster)
	if err != nil {
		return "", err
	}
	address = address.JoinPath("apis", group, version)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
	if err != nil {
		return "", err
	}
	response, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	// So that the connection can be used again.
	if _, err := io.Copy(io.Discard, response.Body); err != nil {
		return "", err
	}
	if server := response.Header.Get(ServerHeader); server != "" {
		return server, nil
	}
	if response.StatusCode != http.StatusOK {
		status := apierrors.NewGenericServerResponse(response.StatusCode, "get", schema.GroupResource{}, "", response.Status, 0, true)
		return "", fmt.Errorf("GET %s: %w", address, status)
	}
	return "", nil
}
