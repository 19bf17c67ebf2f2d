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
	"fmt"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Kubeconfig loads the configuration of a client from the file of a flag, or if none is
// named, from the service account of the pod.
func Kubeconfig(flag, path string) (*rest.Config, error) {
	if path == "" {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig is not set and this is not a pod with a service account: %w", err)
		}
		return config, nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("reading the file of --%s: %w", flag, err)
	}
	return config, nil
}

// UserKubeconfig loads a client's configuration as kubectl does. Without a path, that is kubectl's own, or else the
// pod's.
func UserKubeconfig(path string) (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = path
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
}

// podNamespaceFile is where Kubernetes tells a pod its namespace.
const podNamespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// Namespace returns the namespace of the objects that this server shares with its replicas.
// It comes from the kubeconfig, or from the pod. A file that can't be read is reported where
// it is needed.
func Namespace(kubeconfig string) string {
	if kubeconfig == "" {
		if content, err := os.ReadFile(podNamespaceFile); err == nil {
			return strings.TrimSpace(string(content))
		}
		return metav1.NamespaceDefault
	}
	namespace, _, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
		&clientcmd.ClientConfigLoadingRules{ExplicitPath: kubeconfig}, &clientcmd.ConfigOverrides{}).Namespace()
	if err != nil {
		return metav1.NamespaceDefault
	}
	return namespace
}
