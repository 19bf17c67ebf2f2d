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
	"fmt"
	"net/url"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/webhook"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
)

// serviceResolver finds the Services of webhooks as kube-apiserver does: by the
// cluster IP or the external name of the Service, without DNS.
// Upstream fault 61.
type serviceResolver struct {
	services corelisters.ServiceLister
	// kubeAPIServer is the address for the Service kubernetes.
	kubeAPIServer *url.URL
}

var _ webhook.ServiceResolver = serviceResolver{}

func newServiceResolver(services corelisters.ServiceLister, kubeAPIServer *rest.Config) (serviceResolver, error) {
	host, _, err := rest.DefaultServerUrlFor(kubeAPIServer)
	if err != nil {
		return serviceResolver{}, fmt.Errorf("the address of kube-apiserver: %w", err)
	}
	return serviceResolver{services, host}, nil
}

// ResolveEndpoint returns the address of a Service. Its errors describe
// problems of the Service.
func (r serviceResolver) ResolveEndpoint(namespace, name string, port int32) (*url.URL, error) {
	if namespace == metav1.NamespaceDefault && name == "kubernetes" && port == 443 {
		return r.kubeAPIServer, nil
	}
	return proxy.ResolveCluster(r.services, namespace, name, port)
}
