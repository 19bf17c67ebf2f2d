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

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// webhookName is the name of the program.
const webhookName = "webhook"

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
	server, err := cp.newComponent(name, webhookName, rankServer, config.ComponentConfig)
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
		return []string{
			"--bind-address=" + server.host.Address(),
			fmt.Sprintf("--secure-port=%d", server.port),
			"--tls-cert-file=" + serving.cert,
			"--tls-private-key-file=" + serving.key,
			"--kubeconfig=" + kubeconfig,
		}, nil
	}
	return server, nil
}
