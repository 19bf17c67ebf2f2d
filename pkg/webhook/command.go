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
	"fmt"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
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

// NewCommand returns the command of a server for webhooks. They are made with the
// configuration of clients. It serves until the context ends, then finishes its work and
// returns nil.
func NewCommand(ctx context.Context, webhooks func(*rest.Config) (Webhooks, error)) *cobra.Command {
	options := NewOptions()
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

	flags := options.Flags()
	flags.FlagSet("global").Bool("version", false, "Print the version and exit.")
	globalflag.AddGlobalFlags(flags.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, section := range flags.FlagSets {
		cmd.Flags().AddFlagSet(section)
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, flags, width)
	return cmd
}

func (o *Options) run(ctx context.Context, webhooks func(*rest.Config) (Webhooks, error)) error {
	var errs []error
	if err := logsapi.ValidateAndApply(o.Logs, nil); err != nil {
		errs = append(errs, fmt.Errorf("--logging-format, or another flag of the logs: %w", err))
	}
	klog.InfoS("Starting", "version", version.Get().GitVersion)
	if errs = append(errs, o.Validate()...); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	config, err := cluster.Kubeconfig("kubeconfig", o.Kubeconfig)
	if err != nil {
		return err
	}
	hooks, err := webhooks(config)
	if err != nil {
		return err
	}
	var serving *genericapiserver.SecureServingInfo
	if err := o.SecureServing.ApplyTo(&serving); err != nil {
		return fmt.Errorf("HTTPS can't be served; check --bind-address, --secure-port, --tls-cert-file, --tls-private-key-file and the other --tls flags: %w", err)
	}
	callers, err := o.callers(serving, config)
	if err != nil {
		return err
	}
	return serve(ctx, serving, hooks, callers, o.ShutdownDelay)
}
