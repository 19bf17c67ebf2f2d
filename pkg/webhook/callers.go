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

package webhook

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
)

const (
	// tokenTTL is how long a token's review is valid, and tokenTimeout how long one may take.
	tokenTTL     = 10 * time.Second
	tokenTimeout = 5 * time.Second
)

// callers are the clients that may ask. They know the path in a file, if there is one. For
// admission, the authenticator must also accept them, if there is one. They must have one
// of the names, if there are any.
type callers struct {
	pathFile      string
	authenticator authenticator.Request
	names         []string
}

// callers makes the server ask for client certificates, and returns the callers that it
// accepts. Tokens are reviewed with a client of the configuration.
func (o *options) callers(serving *genericapiserver.SecureServingInfo, config *rest.Config) (callers, error) {
	if o.pathFile != "" {
		if _, err := readPath(o.pathFile); err != nil {
			return callers{}, err
		}
	}
	if o.clientCAFile == "" && !o.clientTokens {
		return callers{pathFile: o.pathFile}, nil
	}
	accepted := authenticatorfactory.DelegatingAuthenticatorConfig{
		CacheTTL: tokenTTL, TokenAccessReviewTimeout: tokenTimeout, WebhookRetryBackoff: genericoptions.DefaultAuthWebhookRetryBackoff(),
	}
	if o.clientCAFile != "" {
		authority, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", o.clientCAFile)
		if err != nil {
			return callers{}, fmt.Errorf("reading the file of --client-ca-file: %w", err)
		}
		serving.ClientCA = authority
		accepted.ClientCertificateCAContentProvider = authority
	}
	if o.clientTokens {
		client, err := authentication.NewForConfig(config)
		if err != nil {
			return callers{}, err
		}
		accepted.TokenAccessReviewClient = client
	}
	authenticator, _, err := accepted.New()
	return callers{o.pathFile, authenticator, o.clientNames}, err
}

// secretPath is a path that can't be guessed, and that kube-apiserver accepts.
var secretPath = regexp.MustCompile(`^[a-z0-9]{16,}$`)

func readPath(file string) (string, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("reading the file of --path-file: %w", err)
	}
	path := strings.TrimSpace(string(content))
	if !secretPath.MatchString(path) {
		return "", fmt.Errorf("the file of --path-file, %s, must have one path of at least 16 small letters and digits", file)
	}
	return path, nil
}

// trusted exempts the IP addresses of callers from the bound of connections. Each review takes a connection of its own.
func trusted(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		transport.Trust(req)
		next.ServeHTTP(w, req)
	})
}

// belowPath answers with 404 unless the request is for a path below the secret one.
func (c callers) belowPath(next http.Handler) http.Handler {
	if c.pathFile == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		path, err := readPath(c.pathFile)
		if err != nil {
			refuse(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, err.Error())
			return
		}
		http.StripPrefix("/"+path, trusted(next)).ServeHTTP(w, req)
	})
}

func (c callers) authenticated(next http.Handler) http.Handler {
	if c.authenticator == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		caller, ok, err := c.authenticator.AuthenticateRequest(req)
		switch {
		case err != nil:
			refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, fmt.Sprintf("the caller's credentials are not accepted: %v", err))
		case !ok:
			refuse(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "send a client certificate of the certificate authority in --client-ca-file, or a bearer token if --client-tokens is set")
		case len(c.names) > 0 && !slices.Contains(c.names, caller.User.GetName()):
			refuse(w, http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%q is not among --client-allowed-names", caller.User.GetName()))
		default:
			trusted(next).ServeHTTP(w, req)
		}
	})
}
