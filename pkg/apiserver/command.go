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
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	// Without these imports --logging-format=json and the metrics of the clients
	// to kube-apiserver would not exist.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// NewCommand returns the command of a server for the groups. It serves until the
// context ends, then finishes what it is doing and returns nil.
func NewCommand(ctx context.Context, groups ...registry.Group) *cobra.Command {
	options := NewOptions(groups...)
	cmd := &cobra.Command{
		Use:          "apiserver",
		Short:        "Serves API groups to a Kubernetes cluster",
		Long:         "Adds API groups to a Kubernetes cluster through the aggregation layer: APIService objects make kube-apiserver forward the groups' requests to this server.",
		Args:         cobra.NoArgs,
		Version:      version.Get().GitVersion,
		SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			components := options.ServerRun.ComponentGlobalsRegistry
			err := components.Set()
			if err == nil {
				err = utilerrors.NewAggregate(components.Validate())
			}
			if err != nil {
				return fmt.Errorf("--feature-gates, --emulated-version or --min-compatibility-version: %w", err)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			return options.run(cmd.Context())
		},
	}
	cmd.SetContext(ctx)
	cmd.AddCommand(newDoctorCommand(groups...))
	cmd.AddCommand(asTool(newSnapshotCommand()), withOwnHelp(newCertificatesCommand()))
	cmd.Long += "\n\nOther commands, with a --help of their own:"
	for _, other := range cmd.Commands() {
		cmd.Long += fmt.Sprintf("\n  %-12s %s", other.Name(), other.Short)
	}

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

// run starts a server with these options and returns when it has stopped.
func (o *Options) run(ctx context.Context) (err error) {
	var errs []error
	if err := logsapi.ValidateAndApply(o.Logs, o.featureGate()); err != nil {
		errs = append(errs, fmt.Errorf("--logging-format, or another flag of the logs: %w", err))
	}
	klog.InfoS("Starting", "version", version.Get().GitVersion)
	// The warnings that this server sends are for its users, not for its own log.
	rest.SetDefaultWarningHandler(rest.NoWarnings{})

	completed, err := o.Complete()
	if err != nil {
		return err
	}
	if errs = append(errs, completed.Validate()...); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	dependencies, err := completed.start(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil // It is no failure to be told to stop while waiting.
		}
		return err
	}
	// The server is the last user of what it depends on.
	defer func() { err = errors.Join(err, dependencies.Close()) }()

	config, err := completed.Config()
	if err != nil {
		return err
	}
	if err := dependencies.applyTo(&config.Generic.Config); err != nil {
		return err
	}
	server, err := config.Complete().New()
	if err != nil {
		return err
	}
	return server.Run(dependencies.context(ctx))
}
