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

// Package authentication guards k8s.io/apiserver's authenticators. Request headers are believed
// only while no user could send them. The client CAs are known before the first connection.
// Requests without an identity are refused.
package authentication

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/request/headerrequest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
)

// ConfigMap is where kube-apiserver publishes, in kube-system, how it authenticates itself as a
// front proxy.
const ConfigMap = "extension-apiserver-authentication"

// Limits on the requests for TokenReviews per second that no cache answers.
const (
	tokenReviewQPS   = 200
	tokenReviewBurst = 400
)

// Delegation configures authentication by kube-apiserver.
type Delegation struct {
	*genericoptions.DelegatingAuthenticationOptions

	// AlwaysAllowPaths are open to requests without an identity.
	AlwaysAllowPaths []string
	// Audiences are the server's: a token has to be for one of them. If there are none, it has to be
	// for kube-apiserver's.
	Audiences []string
	// TokensPerClient and NoteTooManyTokens are passed to BoundTokens.
	TokensPerClient   int
	NoteTooManyTokens func(context.Context)
}

// ApplyTo configures the authentication of a server. Unlike DelegatingAuthenticationOptions.ApplyTo
// of k8s.io/apiserver, it uses an existing client configuration, and guards k8s.io/apiserver's authenticators.
// The FrontProxy is nil if no headers are believed.
func (o Delegation) ApplyTo(ctx context.Context, config *genericapiserver.Config, cluster *rest.Config) (*FrontProxy, error) {
	reviewer, err := o.tokenReviewer(cluster)
	if err != nil {
		return nil, err
	}
	clientCA, err := o.clientCA(reviewer)
	if err != nil {
		return nil, err
	}
	headers, err := o.requestHeaders(ctx, reviewer)
	if err != nil {
		return nil, err
	}
	info := &config.Authentication
	info.APIAudiences, info.RequestHeaderConfig = o.Audiences, headers
	if err := info.ApplyClientCert(clientCA, config.SecureServing); err != nil {
		return nil, err
	}
	if headers != nil {
		if err := info.ApplyClientCert(headers.CAContentProvider, config.SecureServing); err != nil {
			return nil, err
		}
	}
	authenticated, security, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                          o.Anonymous,
		TokenAccessReviewClient:            reviewer.AuthenticationV1(),
		TokenAccessReviewTimeout:           o.TokenRequestTimeout,
		WebhookRetryBackoff:                o.WebhookRetryBackoff,
		CacheTTL:                           o.CacheTTL,
		ClientCertificateCAContentProvider: clientCA,
		APIAudiences:                       o.Audiences,
		RequestHeaderConfig:                headers,
	}.New()
	if err != nil {
		return nil, err
	}
	config.OpenAPIConfig.SecurityDefinitions = security
	authenticated = BoundTokens(authenticated, o.TokensPerClient, transport.ClientOf, o.NoteTooManyTokens)
	var proxy *FrontProxy
	if headers != nil {
		proxy = NewFrontProxy(authenticated, headers, config.SecureServing.ClientCA)
		config.AddReadyzChecks(healthz.NamedCheck("front-proxy-ca", func(*http.Request) error { return proxy.Check() }))
		authenticated = proxy
	}
	if info.Authenticator, err = RequireIdentity(authenticated, o.AlwaysAllowPaths); err != nil {
		return nil, fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	return proxy, nil
}

func (o Delegation) tokenReviewer(cluster *rest.Config) (kubernetes.Interface, error) {
	config := rest.CopyConfig(cluster)
	config.QPS, config.Burst = tokenReviewQPS, tokenReviewBurst
	if wrap := o.CustomRoundTripperFn; wrap != nil {
		config.Wrap(wrap)
	}
	return kubernetes.NewForConfig(config)
}

// clientCA returns the client CAs of --client-ca-file, or those that kube-apiserver publishes, or
// nil.
func (o Delegation) clientCA(cluster kubernetes.Interface) (dynamiccertificates.CAContentProvider, error) {
	if own := o.ClientCert; own != (genericoptions.ClientCertAuthenticationOptions{}) {
		ca, err := own.GetClientCAContentProvider()
		if err != nil {
			return nil, fmt.Errorf("--client-ca-file: %w", err)
		}
		return ca, nil
	}
	if o.SkipInClusterLookup {
		return nil, nil
	}
	return dynamiccertificates.NewDynamicCAFromConfigMapController("client-ca", metav1.NamespaceSystem, ConfigMap, "client-ca-file", cluster)
}

// requestHeaders returns how front proxies assert identities, from the flags or as kube-apiserver
// publishes it, or nil.
func (o Delegation) requestHeaders(ctx context.Context, cluster kubernetes.Interface) (*authenticatorfactory.RequestHeaderConfig, error) {
	if o.RequestHeader.ClientCAFile != "" {
		headers, err := o.RequestHeader.ToAuthenticationRequestHeaderConfig()
		if err != nil {
			return nil, fmt.Errorf("--requestheader-client-ca-file: %w", err)
		}
		return headers, nil
	}
	if o.SkipInClusterLookup {
		return nil, nil
	}
	headers, err := publishedRequestHeaders(ctx, cluster)
	if err != nil && o.TolerateInClusterLookupFailure {
		klog.ErrorS(err, "No front proxy can assert an identity, which --authentication-tolerate-lookup-failure tolerates")
		return nil, nil
	}
	return headers, err
}

// publishedRequestHeaders follows the configuration that kube-apiserver publishes.
func publishedRequestHeaders(ctx context.Context, cluster kubernetes.Interface) (*authenticatorfactory.RequestHeaderConfig, error) {
	ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("request-header-ca", metav1.NamespaceSystem, ConfigMap, "requestheader-client-ca-file", cluster)
	if err != nil {
		return nil, err
	}
	published := &genericoptions.DynamicRequestHeaderController{
		ConfigMapCAController: ca,
		RequestHeaderAuthRequestController: headerrequest.NewRequestHeaderAuthRequestController(ConfigMap, metav1.NamespaceSystem, cluster,
			"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix", "requestheader-allowed-names"),
	}
	if err := published.RunOnce(ctx); err != nil {
		return nil, fmt.Errorf("reading the ConfigMap %s in kube-system: %w", ConfigMap, err)
	}
	return &authenticatorfactory.RequestHeaderConfig{
		CAContentProvider:   published,
		UsernameHeaders:     headerrequest.StringSliceProviderFunc(published.UsernameHeaders),
		UIDHeaders:          headerrequest.StringSliceProviderFunc(published.UIDHeaders),
		GroupHeaders:        headerrequest.StringSliceProviderFunc(published.GroupHeaders),
		ExtraHeaderPrefixes: headerrequest.StringSliceProviderFunc(published.ExtraHeaderPrefixes),
		AllowedClientNames:  headerrequest.StringSliceProviderFunc(published.AllowedClientNames),
	}, nil
}
