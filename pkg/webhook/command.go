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
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	// Without this import --logging-format=json would not exist.
	_ "k8s.io/component-base/logs/json/register"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// options are set by flags, whose usages describe them.
type options struct {
	serving       *genericoptions.SecureServingOptions
	logs          *logsapi.LoggingConfiguration
	kubeconfig    string
	shutdownDelay time.Duration
	pathFile      string
	clientCAFile  string
	clientTokens  bool
	clientNames   []string
}

// NewCommand returns the command of a server for webhooks. They are made with the
// configuration of clients. It serves until the context ends, then finishes its work and
// returns nil.
func NewCommand(ctx context.Context, webhooks func(*rest.Config) (Webhooks, error)) *cobra.Command {
	options := newOptions()
	cmd := &cobra.Command{
		Use:          "webhook",
		Short:        "Serves the webhooks of an API group to a Kubernetes cluster",
		Long:         "Fills in, refuses and converts objects of an API group: at /admit and /validate for admission, at /convert for custom resources that are stored in another version.",
		Args:         cobra.NoArgs,
		Version:      version.Get().GitVersion,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return options.run(cmd.Context(), webhooks)
		},
	}
	cmd.SetContext(ctx)

	sections := options.flags()
	sections.FlagSet("global").Bool("version", false, "Print the version and exit.")
	globalflag.AddGlobalFlags(sections.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, section := range sections.FlagSets {
		cmd.Flags().AddFlagSet(section)
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sections, width)
	return cmd
}

func (o *options) run(ctx context.Context, webhooks func(*rest.Config) (Webhooks, error)) error {
	var errs []error
	if err := logsapi.ValidateAndApply(o.logs, nil); err != nil {
		errs = append(errs, fmt.Errorf("--logging-format, or another flag of the logs: %w", err))
	}
	klog.InfoS("Starting", "version", version.Get().GitVersion)
	if errs = append(errs, o.validate()...); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	config, err := cluster.Kubeconfig("kubeconfig", o.kubeconfig)
	if err != nil {
		return err
	}
	hooks, err := webhooks(config)
	if err != nil {
		return err
	}
	var serving *genericapiserver.SecureServingInfo
	if err := o.serving.ApplyTo(&serving); err != nil {
		return fmt.Errorf("HTTPS can't be served; check --bind-address, --secure-port, --tls-cert-file, --tls-private-key-file and the other --tls flags: %w", err)
	}
	callers, err := o.callers(serving, config)
	if err != nil {
		return err
	}
	return serve(ctx, serving, hooks, callers, o.shutdownDelay)
}

func newOptions() *options {
	serving := genericoptions.NewSecureServingOptions()
	serving.Required = true
	return &options{serving: serving, logs: logsapi.NewLoggingConfiguration()}
}

// flags returns the flags in the sections of --help.
func (o *options) flags() (sections cliflag.NamedFlagSets) {
	serving := sections.FlagSet("secure serving")
	o.serving.AddFlags(serving)
	// The text of the library offers certificates that are generated, which
	// kube-apiserver has no reason to trust.
	serving.Lookup("cert-dir").Hidden = true
	serving.Lookup("secure-port").Usage = "The port on which to serve HTTPS."
	serving.Lookup("tls-cert-file").Usage = "File with the certificate for HTTPS, followed by those of intermediate certificate authorities. Required. When the file changes, new connections get the new certificate."
	serving.DurationVar(&o.shutdownDelay, "shutdown-delay-duration", o.shutdownDelay, ""+
		"How long to go on answering, with /readyz failing, when told to stop, so that load balancers can take notice.")
	callers := sections.FlagSet("authentication")
	callers.StringVar(&o.pathFile, "path-file", o.pathFile, ""+
		"File with a secret path, such as 26 random small letters. Reviews are answered at /PATH/admit, /PATH/validate and /PATH/convert only, which kube-apiserver reads in clientConfig.service.path; every other path is 404. A change takes effect without a restart. By default, there is no such path, so that everybody may call.")
	callers.StringVar(&o.clientCAFile, "client-ca-file", o.clientCAFile, ""+
		"File with the certificate authorities of the callers of /admit and /validate, which are refused without a client certificate. A change takes effect without a restart. kube-apiserver presents the certificate that the kubeconfig in its AdmissionConfiguration names. By default, everybody may call.")
	callers.BoolVar(&o.clientTokens, "client-tokens", o.clientTokens, ""+
		"Whether callers of /admit and /validate may have a bearer token of the cluster, such as a service account's, instead of a certificate. Needs --client-allowed-names, since every pod has one, and permission to create tokenreviews.")
	callers.StringSliceVar(&o.clientNames, "client-allowed-names", o.clientNames, ""+
		"Names of the callers that are accepted: common names of client certificates, and users of tokens, such as system:serviceaccount:NAMESPACE:NAME. By default, all that --client-ca-file has issued.")
	sections.FlagSet("cluster").StringVar(&o.kubeconfig, "kubeconfig", o.kubeconfig, ""+
		"Kubeconfig for the cluster's kube-apiserver. Optional in a pod, where the service account is used.")
	logsapi.AddFlags(o.logs, sections.FlagSet("logs"))
	return sections
}

// validate returns everything that is wrong, each error with its flag.
func (o *options) validate() []error {
	errs := o.serving.Validate()
	if certificate := o.serving.ServerCert.CertKey; certificate.CertFile == "" || certificate.KeyFile == "" {
		errs = append(errs, errors.New("--tls-cert-file and --tls-private-key-file must both be set: kube-apiserver calls only webhooks whose certificate it can verify"))
	}
	if o.shutdownDelay < 0 {
		errs = append(errs, fmt.Errorf("--shutdown-delay-duration must not be below 0, but is %s", o.shutdownDelay))
	}
	if len(o.clientNames) > 0 && o.clientCAFile == "" && !o.clientTokens {
		errs = append(errs, errors.New("--client-allowed-names needs --client-ca-file or --client-tokens: without them, nobody is asked for a name"))
	}
	if o.clientTokens && len(o.clientNames) == 0 {
		errs = append(errs, errors.New("--client-tokens needs --client-allowed-names: every pod of the cluster has a token"))
	}
	return errs
}
