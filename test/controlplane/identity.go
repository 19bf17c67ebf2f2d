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

package controlplane

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// RESTConfig returns a client configuration for the administrator, with all
// permissions.
func (cp *ControlPlane) RESTConfig() *rest.Config {
	return cp.forClient(cp.admin)
}

// RESTConfigFor returns a client configuration for a user with a client certificate. The
// user has the permissions that RBAC grants.
func (cp *ControlPlane) RESTConfigFor(user string, groups ...string) (*rest.Config, error) {
	config, err := cp.restConfigFor(user, groups)
	if err != nil {
		return nil, err
	}
	return cp.forClient(config), nil
}

// RESTConfigForServiceAccount returns a client configuration for a service account, which
// need not exist. The account has the permissions that RBAC grants.
func (cp *ControlPlane) RESTConfigForServiceAccount(namespace, name string) (*rest.Config, error) {
	return cp.RESTConfigFor(serviceaccount.MakeUsername(namespace, name), serviceaccount.MakeGroupNames(namespace)...)
}

// forClient returns the configuration for a client, see Config.Client.
func (cp *ControlPlane) forClient(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	dialFrom(cp.config.Client.Host, config)
	if cp.config.Client.ProxyURL != "" {
		config.Proxy = cp.config.Client.proxy
	}
	return config
}

// dialFrom makes the clients of the configuration run on the host.
func dialFrom(host Host, config *rest.Config) {
	// A configuration with its own dial function shares no connections with others.
	if host != (thisMachine{}) {
		config.Dial, config.Proxy = host.DialContext, http.ProxyURL(nil)
	}
}

// restConfigFor returns a client configuration for kube-apiserver's own host.
func (cp *ControlPlane) restConfigFor(user string, groups []string) (*rest.Config, error) {
	issued, err := cp.PKI.ClientCA.Issue(Certificate{User: user, Groups: groups})
	if err != nil {
		return nil, fmt.Errorf("issuing a client certificate for %s: %w", user, err)
	}
	config := &rest.Config{
		Host: cp.KubeAPIServer.URL(),
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   cp.PKI.ServingCA.CertPEM(),
			CertData: issued.Cert,
			KeyData:  issued.Key,
		},
		// The client must not slow down tests.
		QPS: -1,
	}
	dialFrom(cp.KubeAPIServer.host, config)
	return config, nil
}

// KubeconfigFor writes a kubeconfig for a user and returns its path.
func (cp *ControlPlane) KubeconfigFor(user string, groups ...string) (string, error) {
	return cp.kubeconfigFor(user, groups, cp.config.Client.ProxyURL)
}

// kubeconfigFor writes a kubeconfig for a client that uses the proxy, if any.
func (cp *ControlPlane) kubeconfigFor(user string, groups []string, proxyURL string) (string, error) {
	config, err := cp.restConfigFor(user, groups)
	if err != nil {
		return "", err
	}
	// Names of users may have characters that names of files can't have.
	id := sha256.Sum256([]byte(strings.Join(append([]string{proxyURL, user}, groups...), "\x00")))
	path := filepath.Join(cp.PKI.dir, fmt.Sprintf("user-%x.kubeconfig", id[:8]))
	namespace := ""
	if serviceAccount, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		namespace, _, _ = strings.Cut(serviceAccount, ":")
	}
	return path, writeKubeconfig(path, config, namespace, proxyURL)
}

// writeKubeconfig writes a client configuration in the format of kubectl and all
// components. The namespace and the proxy may be empty.
func writeKubeconfig(path string, config *rest.Config, namespace, proxyURL string) error {
	const name = "local"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[name] = &clientcmdapi.Cluster{
		Server:                   config.Host,
		CertificateAuthorityData: config.CAData,
		ProxyURL:                 proxyURL,
	}
	kubeconfig.AuthInfos[name] = &clientcmdapi.AuthInfo{
		ClientCertificateData: config.CertData,
		ClientKeyData:         config.KeyData,
	}
	kubeconfig.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	kubeconfig.CurrentContext = name
	data, err := clientcmd.Write(*kubeconfig)
	if err != nil {
		return err
	}
	return writeFile(path, data, 0o600)
}
