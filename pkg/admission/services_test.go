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
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

func TestResolveEndpoint(t *testing.T) {
	const kubeAPIServer = "https://kube-apiserver.example.com:6443"
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for name, spec := range map[string]corev1.ServiceSpec{
		"kubernetes": {Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.1", Ports: []corev1.ServicePort{{Port: 443}, {Port: 8443}}},
		"cluster-ip": {Type: corev1.ServiceTypeClusterIP, ClusterIP: "10.0.0.2", Ports: []corev1.ServicePort{{Port: 443}, {Port: 8443}}},
		"external":   {Type: corev1.ServiceTypeExternalName, ExternalName: "webhook.example.com"},
	} {
		if err := indexer.Add(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: spec}); err != nil {
			t.Fatal(err)
		}
	}
	resolver, err := newServiceResolver(corelisters.NewServiceLister(indexer), &rest.Config{Host: kubeAPIServer})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		namespace, name string
		port            int32
		want, wantErr   string
	}{
		"kube-apiserver, which is outside of its cluster": {"default", "kubernetes", 443, kubeAPIServer, ""},
		"another port of its Service":                     {"default", "kubernetes", 8443, "https://10.0.0.1:8443", ""},
		"its name in another namespace":                   {"other", "kubernetes", 443, "", `service "kubernetes" not found`},
		"a cluster IP":                                    {"default", "cluster-ip", 443, "https://10.0.0.2:443", ""},
		"a port it does not have":                         {"default", "cluster-ip", 9443, "", `no service port 9443 found for service "cluster-ip"`},
		"an external name, on any port":                   {"default", "external", 8443, "https://webhook.example.com:8443", ""},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := resolver.ResolveEndpoint(test.namespace, test.name, test.port)
			if (err != nil || test.wantErr != "") && (err == nil || err.Error() != test.wantErr) {
				t.Fatalf("got error %v, want %q", err, test.wantErr)
			}
			if err == nil && got.String() != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}
