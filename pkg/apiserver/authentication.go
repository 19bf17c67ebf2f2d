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

package apiserver

import (
	"fmt"
	"net/http"

	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
)

// applyAuthentication makes the library's authenticator, and what guards it.
func (o CompletedOptions) applyAuthentication(config *genericapiserver.Config) error {
	reviewer, err := o.kubeconfig(authenticationKubeconfig, o.Authentication.RemoteKubeConfigFile)
	if err != nil {
		return err
	}
	if reviewer.Dial != nil {
		// The library loads the kubeconfig itself, and lets only its transport be replaced.
		transport, err := rest.TransportFor(reviewer)
		if err != nil {
			return err
		}
		o.Authentication.WithCustomRoundTripper(func(http.RoundTripper) http.RoundTripper { return transport })
	}
	info := &config.Authentication
	if err := o.Authentication.ApplyTo(info, config.SecureServing, config.OpenAPIConfig); err != nil {
		return err
	}
	if info.RequestHeaderConfig != nil {
		proxy := authentication.NewFrontProxy(info.Authenticator, info.RequestHeaderConfig, config.SecureServing.ClientCA)
		info.Authenticator = proxy
		config.AddReadyzChecks(healthz.NamedCheck("front-proxy-ca", func(*http.Request) error { return proxy.Check() }))
	}
	if info.Authenticator, err = authentication.RequireIdentity(info.Authenticator, o.Authorization.AlwaysAllowPaths); err != nil {
		return fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	return nil
}
