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

package authentication

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/apiserver"
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

// ConfigMap is the ConfigMap in kube-system in which kube-apiserver
// publishes how it authenticates itself as a front proxy.
const ConfigMap = "extension-apiserver-authentication"

// Limits on the requests for TokenReviews per second that no cache answers.
const (
	tokenReviewQPS   = 200
	tokenReviewBurst = 400
)

// Delegation is how kube-apiserver is asked who its clients are.
type Delegation struct {
	*genericoptions.DelegatingAuthenticationOptions

	// AlwaysAllowPaths are open to requests without an identity.
	AlwaysAllowPaths []string
	// TokensPerClient and NoteTooManyTokens are those of BoundTokens.
	TokensPerClient   int
	NoteTooManyTokens func(context.Context)
}

// ApplyTo does what DelegatingAuthenticationOptions.ApplyTo of the library does
// with a client that exists already, where the library loads a kubeconfig of its own, and
// guards what comes of it.
func (o Delegation) ApplyTo(config *genericapiserver.Config, cluster *rest.Config) error {
	reviewer, err := o.tokenReviewer(cluster)
	if err != nil {
		return err
	}
	factory := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                &apiserver.AnonymousAuthConfig{Enabled: true},
		TokenAccessReviewClient:  reviewer.AuthenticationV1(),
		TokenAccessReviewTimeout: o.TokenRequestTimeout,
		WebhookRetryBackoff:      o.WebhookRetryBackoff,
		CacheTTL:                 o.CacheTTL,
	}
	if factory.ClientCertificateCAContentProvider, err = o.clientCA(reviewer); err != nil {
		return err
	}
	if factory.RequestHeaderConfig, err = o.requestHeaders(reviewer); err != nil {
		return err
	}
	info := &config.Authentication
	if err := info.ApplyClientCert(factory.ClientCertificateCAContentProvider, config.SecureServing); err != nil {
		return err
	}
	if headers := factory.RequestHeaderConfig; headers != nil {
		info.RequestHeaderConfig = headers
		if err := info.ApplyClientCert(headers.CAContentProvider, config.SecureServing); err != nil {
			return err
		}
	}
	authenticator, definitions, err := factory.New()
	if err != nil {
		return err
	}
	config.OpenAPIConfig.SecurityDefinitions = definitions
	authenticator = BoundTokens(authenticator, o.TokensPerClient, o.NoteTooManyTokens)
	if info.RequestHeaderConfig != nil {
		proxy := NewFrontProxy(authenticator, info.RequestHeaderConfig, config.SecureServing.ClientCA)
		config.AddReadyzChecks(healthz.NamedCheck("front-proxy-ca", func(*http.Request) error { return proxy.Check() }))
		authenticator = transport.TrustConnections(proxy, ByFrontProxy)
	}
	if info.Authenticator, err = RequireIdentity(authenticator, o.AlwaysAllowPaths); err != nil {
		return fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	return nil
}

func (o Delegation) tokenReviewer(cluster *rest.Config) (kubernetes.Interface, error) {
	config := rest.CopyConfig(cluster)
	config.QPS, config.Burst = tokenReviewQPS, tokenReviewBurst
	if wrap := o.CustomRoundTripperFn; wrap != nil {
		config.Wrap(wrap)
	}
	return kubernetes.NewForConfig(config)
}

// clientCA returns the certificate authorities of users: those of --client-ca-file, or those
// that kube-apiserver publishes, or nil.
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

// requestHeaders returns how a front proxy asserts the identity of a user: what the flags
// say, or what kube-apiserver publishes, or nil.
func (o Delegation) requestHeaders(cluster kubernetes.Interface) (*authenticatorfactory.RequestHeaderConfig, error) {
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
	headers, err := publishedRequestHeaders(cluster)
	if err != nil && o.TolerateInClusterLookupFailure {
		klog.ErrorS(err, "No front proxy can assert an identity, which --authentication-tolerate-lookup-failure tolerates")
		return nil, nil
	}
	return headers, err
}

// publishedRequestHeaders follows what kube-apiserver publishes.
func publishedRequestHeaders(cluster kubernetes.Interface) (*authenticatorfactory.RequestHeaderConfig, error) {
	ca, err := dynamiccertificates.NewDynamicCAFromConfigMapController("request-header-ca", metav1.NamespaceSystem, ConfigMap, "requestheader-client-ca-file", cluster)
	if err != nil {
		return nil, err
	}
	published := &genericoptions.DynamicRequestHeaderController{
		ConfigMapCAController: ca,
		RequestHeaderAuthRequestController: headerrequest.NewRequestHeaderAuthRequestController(ConfigMap, metav1.NamespaceSystem, cluster,
			"requestheader-username-headers", "requestheader-uid-headers", "requestheader-group-headers", "requestheader-extra-headers-prefix", "requestheader-allowed-names"),
	}
	if err := published.RunOnce(context.Background()); err != nil {
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
