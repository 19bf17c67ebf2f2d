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

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/path"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/client-go/rest"
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
	authentication := &config.Authentication
	if err := o.Authentication.ApplyTo(authentication, config.SecureServing, config.OpenAPIConfig); err != nil {
		return err
	}
	if authentication.RequestHeaderConfig != nil {
		proxy := newFrontProxy(authentication.Authenticator, authentication.RequestHeaderConfig, config.SecureServing.ClientCA)
		authentication.Authenticator = proxy
		config.AddReadyzChecks(healthz.NamedCheck("front-proxy-ca", func(*http.Request) error { return proxy.check() }))
	}
	if authentication.Authenticator, err = newIdentified(authentication.Authenticator, o.Authorization.AlwaysAllowPaths); err != nil {
		return fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	return nil
}

// identified refuses requests without an identity, whatever the cluster's rules
// let everybody do: they are meant for kube-apiserver, whose front proxy passes
// anonymous users on by name. Only the paths that need no authorization are open.
type identified struct {
	authenticator.Request
	open authorizer.Authorizer
}

func newIdentified(inner authenticator.Request, openPaths []string) (*identified, error) {
	open, err := path.NewAuthorizer(openPaths)
	return &identified{inner, open}, err
}

// AuthenticateRequest returns who makes the request.
func (a *identified) AuthenticateRequest(req *http.Request) (*authenticator.Response, bool, error) {
	response, ok, err := a.Request.AuthenticateRequest(req)
	// Who presents a certificate is the front proxy, and says that its client is
	// anonymous.
	if !ok || err != nil || response.User.GetName() != user.Anonymous || len(req.TLS.PeerCertificates) > 0 {
		return response, ok, err
	}
	decision, _, err := a.open.Authorize(req.Context(), authorizer.AttributesRecord{Path: req.URL.Path})
	if err != nil || decision != authorizer.DecisionAllow {
		return nil, false, err
	}
	return response, true, nil
}
