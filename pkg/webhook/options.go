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
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	authentication "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
)

const (
	// tokenTTL is how long a token's review is valid, and tokenTimeout how long one may take.
	tokenTTL     = 10 * time.Second
	tokenTimeout = 5 * time.Second
)

// Options are the operator's choices, set by flags.
type Options struct {
	SecureServing *genericoptions.SecureServingOptions
	// Kubeconfig is empty in a pod, which has a service account.
	Kubeconfig string
	// ShutdownDelay is how long the server goes on as before, but for /readyz, when
	// it is told to stop.
	ShutdownDelay time.Duration
	Logs          *logsapi.LoggingConfiguration
	// PathFile has the secret path of reviews. If it is empty, reviews are answered to any
	// client, except those of admission with ClientCAFile or ClientTokens.
	PathFile string
	// ClientCAFile has the certificate authorities of clients that may ask for admission. If it
	// is empty, no certificate is accepted or needed.
	ClientCAFile string
	// ClientTokens lets clients have a bearer token of the cluster instead.
	ClientTokens bool
	// ClientNames are the allowed names of clients. Empty allows any.
	ClientNames []string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	serving := genericoptions.NewSecureServingOptions()
	serving.Required = true
	return &Options{SecureServing: serving, Logs: logsapi.NewLoggingConfiguration()}
}

// Flags returns the flags in the sections of --help.
func (o *Options) Flags() (sections cliflag.NamedFlagSets) {
	serving := sections.FlagSet("secure serving")
	o.SecureServing.AddFlags(serving)
	// The text of the library offers certificates that are generated, which
	// kube-apiserver has no reason to trust.
	serving.Lookup("cert-dir").Hidden = true
	serving.Lookup("secure-port").Usage = "The port on which to serve HTTPS."
	serving.Lookup("tls-cert-file").Usage = "File with the certificate for HTTPS, followed by those of intermediate certificate authorities. Required. When the file changes, new connections get the new certificate."
	serving.DurationVar(&o.ShutdownDelay, "shutdown-delay-duration", o.ShutdownDelay, ""+
		"How long to go on answering, with /readyz failing, when told to stop, so that load balancers can take notice.")
	callers := sections.FlagSet("authentication")
	callers.StringVar(&o.PathFile, "path-file", o.PathFile, ""+
		"File with a secret path, such as 26 random small letters. Reviews are answered at /PATH/admit, /PATH/validate and /PATH/convert only, which kube-apiserver reads in clientConfig.service.path; every other path is 404. A change takes effect without a restart. By default, there is no such path, so that everybody may call.")
	callers.StringVar(&o.ClientCAFile, "client-ca-file", o.ClientCAFile, ""+
		"File with the certificate authorities of the callers of /admit and /validate, which are refused without a client certificate. A change takes effect without a restart. kube-apiserver presents the certificate that the kubeconfig in its AdmissionConfiguration names. By default, everybody may call.")
	callers.BoolVar(&o.ClientTokens, "client-tokens", o.ClientTokens, ""+
		"Whether callers of /admit and /validate may have a bearer token of the cluster, such as a service account's, instead of a certificate. Needs --client-allowed-names, since every pod has one, and permission to create tokenreviews.")
	callers.StringSliceVar(&o.ClientNames, "client-allowed-names", o.ClientNames, ""+
		"Names of the callers that are accepted: common names of client certificates, and users of tokens, such as system:serviceaccount:NAMESPACE:NAME. By default, all that --client-ca-file has issued.")
	sections.FlagSet("cluster").StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, ""+
		"Kubeconfig for the cluster's kube-apiserver. Optional in a pod, where the service account is used.")
	logsapi.AddFlags(o.Logs, sections.FlagSet("logs"))
	return sections
}

// Validate returns everything that is wrong, each error with its flag.
func (o *Options) Validate() []error {
	errs := o.SecureServing.Validate()
	if certificate := o.SecureServing.ServerCert.CertKey; certificate.CertFile == "" || certificate.KeyFile == "" {
		errs = append(errs, errors.New("--tls-cert-file and --tls-private-key-file must both be set: kube-apiserver calls only webhooks whose certificate it can verify"))
	}
	if o.ShutdownDelay < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-delay-duration must not be below 0, but is %s", o.ShutdownDelay))
	}
	if len(o.ClientNames) > 0 && o.ClientCAFile == "" && !o.ClientTokens {
		errs = append(errs, errors.New("--client-allowed-names needs --client-ca-file or --client-tokens: without them, nobody is asked for a name"))
	}
	if o.ClientTokens && len(o.ClientNames) == 0 {
		errs = append(errs, errors.New("--client-tokens needs --client-allowed-names: every pod of the cluster has a token"))
	}
	return errs
}

// callers makes the server ask for client certificates, and returns the callers that it
// accepts. Tokens are reviewed with a client of the configuration.
func (o *Options) callers(serving *genericapiserver.SecureServingInfo, config *rest.Config) (callers, error) {
	if o.PathFile != "" {
		if _, err := readPath(o.PathFile); err != nil {
			return callers{}, err
		}
	}
	if o.ClientCAFile == "" && !o.ClientTokens {
		return callers{pathFile: o.PathFile}, nil
	}
	accepted := authenticatorfactory.DelegatingAuthenticatorConfig{
		CacheTTL: tokenTTL, TokenAccessReviewTimeout: tokenTimeout, WebhookRetryBackoff: genericoptions.DefaultAuthWebhookRetryBackoff(),
	}
	var ways []string
	if o.ClientCAFile != "" {
		authority, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca", o.ClientCAFile)
		if err != nil {
			return callers{}, fmt.Errorf("reading the file of --client-ca-file: %w", err)
		}
		serving.ClientCA = authority
		accepted.ClientCertificateCAContentProvider = authority
		ways = append(ways, "a client certificate of the certificate authority in --client-ca-file")
	}
	if o.ClientTokens {
		client, err := authentication.NewForConfig(config)
		if err != nil {
			return callers{}, err
		}
		accepted.TokenAccessReviewClient = client
		ways = append(ways, "a bearer token")
	}
	authenticator, _, err := accepted.New()
	return callers{o.PathFile, authenticator, o.ClientNames, strings.Join(ways, " or ")}, err
}
