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

// Package server has the command of an API server, and below it the commands of its tools.
package server

import (
	"context"
	"fmt"
	"math"
	"runtime/debug"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"

	// Without these imports --logging-format=json and the metrics of the clients
	// to kube-apiserver would not exist.
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	tool "restaurant.programming-kubernetes.info/apiserver/pkg/cmd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/certificates"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/doctor"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/migrate"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/snapshot"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/unregister"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// NewCommand returns the command of a server of this name for the groups, and below it those
// of its tools. It serves until the context ends, then finishes its work and returns nil.
// For the name, see apiserver.NewOptions.
func NewCommand(ctx context.Context, name string, groups ...registry.Group) *cobra.Command {
	return NewCommandWithBase(ctx, name, nil, groups...)
}

// NewCommandWithBase returns the command of a server that also serves the APIs of a base.
func NewCommandWithBase(ctx context.Context, name string, base *apiserver.Base, groups ...registry.Group) *cobra.Command {
	options := apiserver.NewOptions(name, groups...)
	options.Base = base
	logging := logsapi.NewLoggingConfiguration()
	cmd := &cobra.Command{
		Use:          name,
		Short:        "Serves API groups to a Kubernetes cluster",
		Long:         "Adds API groups to a Kubernetes cluster through the aggregation layer: APIService objects make kube-apiserver forward the groups' requests to this server.",
		Args:         cobra.NoArgs,
		Version:      version.Get().GitVersion,
		SilenceUsage: true,
		RunE:         func(cmd *cobra.Command, _ []string) error { return run(cmd.Context(), options, logging, groups) },
	}
	cmd.SetContext(ctx)
	cmd.AddCommand(
		doctor.NewCommand(name, base, groups...),
		tool.AsTool(snapshot.NewCommand(name, base, groups...)),
		tool.WithOwnHelp(certificates.NewCommand()),
		migrate.NewCommand(name, base, groups...),
	)
	if base == nil {
		// A base has groups of its own kind, and its own way to give them back.
		cmd.AddCommand(tool.AsTool(unregister.NewCommand(nil)))
	}
	cmd.Long += fmt.Sprintf("\n\nEvery flag can be set by an environment variable instead, for this command and for those below it: --data-dir by %s.", tool.Variable(name, "data-dir"))
	cmd.Long += "\n\nOther commands, with a --help of their own:"
	for _, other := range cmd.Commands() {
		cmd.Long += fmt.Sprintf("\n  %-12s %s", other.Name(), other.Short)
	}

	flags := tool.ServerFlags(options, logging)
	flags.FlagSet("global").Bool("version", false, "Print the version and exit.")
	globalflag.AddGlobalFlags(flags.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	tool.AddFlags(cmd, flags)
	return tool.WithEnvironment(name, cmd)
}

// run serves until the context ends.
func run(ctx context.Context, options *apiserver.Options, logging *logsapi.LoggingConfiguration, groups []registry.Group) error {
	if err := options.ApplyFeatureGates(); err != nil {
		return err
	}
	var errs []error
	if err := logsapi.ValidateAndApply(logging, options.FeatureGate()); err != nil {
		errs = append(errs, fmt.Errorf("--logging-format, or another flag of the logs: %w", err))
	}
	klog.InfoS("Starting", "version", version.Get().GitVersion)
	leaveMemory()

	completed, err := options.Complete()
	if err != nil {
		return err
	}
	if errs = append(errs, completed.Validate()...); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	config, err := completed.Config(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil //nolint:nilerr // It is no failure to be told to stop while waiting.
		}
		return err
	}
	server, err := config.Complete().New()
	if err != nil {
		return err
	}
	if err := server.Generic.AddPostStartHook("recover-migrations", func(hook genericapiserver.PostStartHookContext) error {
		go func() {
			if err := migrate.Recover(hook, completed, groups...); err != nil {
				utilruntime.HandleErrorWithContext(hook, err, "This server recovers no migration whose command has ended")
			}
		}()
		return nil
	}); err != nil {
		return err
	}
	return server.Run(ctx)
}

// leaveMemory lowers the runtime's limit to nine tenths of GOMEMLIMIT, the limit of a
// container. The runtime does not count all memory. Under load, it exceeds its limit by some
// percent before it has collected enough garbage.
func leaveMemory() {
	if limit := debug.SetMemoryLimit(-1); limit != math.MaxInt64 {
		debug.SetMemoryLimit(limit / 10 * 9)
	}
}
