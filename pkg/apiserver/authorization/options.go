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

package authorization

import (
	"context"
	"fmt"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/apiserver/pkg/authorization/path"
	"k8s.io/apiserver/pkg/authorization/union"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/tracing"
)

// Options add limits on reviews to k8s.io/apiserver's options of authorization by
// SubjectAccessReview. k8s.io/apiserver fixes these limits.
// Upstream fault 50.
type Options struct {
	*genericoptions.DelegatingAuthorizationOptions

	// QPS and Burst bound the requests for reviews per second that no cache answers.
	QPS   float32
	Burst int
}

// NewOptions returns k8s.io/apiserver's options with the default limits.
func NewOptions(options *genericoptions.DelegatingAuthorizationOptions) *Options {
	return &Options{DelegatingAuthorizationOptions: options, QPS: 200, Burst: 400}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.DelegatingAuthorizationOptions.AddFlags(flags)
	flags.Float32Var(&o.QPS, "authorization-qps", o.QPS, ""+
		"How many SubjectAccessReviews per second kube-apiserver is asked for, on average. Further requests wait.")
	flags.IntVar(&o.Burst, "authorization-burst", o.Burst, ""+
		"How many SubjectAccessReviews kube-apiserver is asked for at once, above --authorization-qps.")
	flags.DurationVar(&o.ClientTimeout, "authorization-timeout", o.ClientTimeout, ""+
		"How long kube-apiserver may take for a SubjectAccessReview. It is asked a few times before the request is refused.")
}

// Validate returns everything that is wrong.
func (o *Options) Validate() []error {
	errs := o.DelegatingAuthorizationOptions.Validate()
	if o.QPS <= 0 || o.Burst <= 0 {
		errs = append(errs, fmt.Errorf("--authorization-qps (%v) and --authorization-burst (%d) must be above 0", o.QPS, o.Burst))
	}
	if o.ClientTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--authorization-timeout must be above 0, not %s", o.ClientTimeout))
	}
	return errs
}

// ApplyTo makes the authorizer. Note is passed to WithRetryableDenials.
func (o *Options) ApplyTo(config *genericapiserver.Config, cluster *rest.Config, note func(context.Context)) error {
	reviewer := rest.CopyConfig(cluster)
	reviewer.Wrap(tracing.WrapperFor(config.TracerProvider))
	reviewer.Wrap(ShareReviews)
	authorizer, err := o.authorizer(reviewer)
	if err != nil {
		return err
	}
	config.Authorization.Authorizer = WithRetryableDenials(AskForAllNames(authorizer), config.RequestTimeout, note)
	return nil
}

// authorizer asks kube-apiserver, unless the group or the path of a request is always
// allowed.
func (o *Options) authorizer(config *rest.Config) (authorizer.Authorizer, error) {
	config.QPS, config.Burst, config.Timeout = o.QPS, o.Burst, o.ClientTimeout
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	paths, err := path.NewAuthorizer(o.AlwaysAllowPaths)
	if err != nil {
		return nil, fmt.Errorf("--authorization-always-allow-paths: %w", err)
	}
	delegating, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             o.AllowCacheTTL,
		DenyCacheTTL:              o.DenyCacheTTL,
		WebhookRetryBackoff:       o.WebhookRetryBackoff,
	}.New()
	if err != nil {
		return nil, err
	}
	return union.New(
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/always-allow-groups", Authorizer: authorizerfactory.NewPrivilegedGroups(o.AlwaysAllowGroups...)},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/always-allow-paths", Authorizer: paths},
		union.NamedAuthorizer{AuthorizerName: "kubernetes.io/webhook", Authorizer: WithoutLongSelectors(delegating)},
	)
}
