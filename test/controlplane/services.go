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
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// WebhookConfig configures one process of a webhook server, see package webhook
// in pkg.
type WebhookConfig struct {
	ComponentConfig
	// Service is the Service in the certificate.
	Service types.NamespacedName
	// Account is the service account to run as.
	Account types.NamespacedName
}

// NewWebhook adds a process of a webhook server. Its program is by default "webhook", as that
// of an API server is "apiserver", see ComponentConfig. It is not started. The caller has to
// create the objects that make kube-apiserver call it.
func (cp *ControlPlane) NewWebhook(name string, config WebhookConfig) (*Component, error) {
	return cp.newService(name, "webhook", config, func(*Component) ([]string, error) { return nil, nil })
}

// CRDServerConfig configures one process of the server of custom resources.
type CRDServerConfig struct {
	ComponentConfig
	// Groups are the API groups to serve.
	Groups []string
	// Service is the Service in the certificate.
	Service types.NamespacedName
	// Account is the service account to run as.
	Account types.NamespacedName
	// Etcd is as in ServerConfig.
	Etcd string
}

// NewCRDServer adds a process of the server of custom resources. It is not started. The
// caller has to create the objects that lead kube-apiserver to it.
func (cp *ControlPlane) NewCRDServer(name string, config CRDServerConfig) (*Component, error) {
	if config.Etcd != "" && cp.Component(config.Etcd) == nil {
		if _, err := cp.newEtcd(config.Etcd, ComponentConfig{}); err != nil {
			return nil, err
		}
	}
	return cp.newService(name, "crd-apiserver", WebhookConfig{config.ComponentConfig, config.Service, config.Account}, func(server *Component) ([]string, error) {
		storage, err := []string{"--data-dir=" + filepath.Join(server.dir, "data")}, error(nil)
		if config.Etcd != "" {
			storage, err = cp.etcdFlags(cp.Component(config.Etcd).URL())
		}
		return append(storage, "--groups="+strings.Join(config.Groups, ",")), err
	})
}

// newService adds a process of a program that runs as a service account, behind a Service.
func (cp *ControlPlane) newService(name, program string, config WebhookConfig, flags func(*Component) ([]string, error)) (*Component, error) {
	server, err := cp.newComponent(name, program, rankServer, config.ComponentConfig)
	if err != nil {
		return nil, err
	}
	probe, err := cp.httpClient(server.host, nil)
	if err != nil {
		return nil, err
	}
	server.check = CheckURL(probe, server.URL()+"/readyz")
	server.args = func() ([]string, error) {
		serving, err := cp.serving(server, config.Service.Name+"."+config.Service.Namespace+".svc")
		if err != nil {
			return nil, err
		}
		kubeconfig, err := cp.kubeconfigFor(serviceaccount.MakeUsername(config.Account.Namespace, config.Account.Name),
			serviceaccount.MakeGroupNames(config.Account.Namespace), "")
		if err != nil {
			return nil, err
		}
		own, err := flags(server)
		return slices.Concat(own, []string{
			"--bind-address=" + server.host.Address(),
			fmt.Sprintf("--secure-port=%d", server.port),
			"--tls-cert-file=" + serving.cert,
			"--tls-private-key-file=" + serving.key,
			"--kubeconfig=" + kubeconfig,
		}), err
	}
	return server, nil
}
