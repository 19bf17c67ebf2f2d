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

// Package conformance has the command that examines an API.
package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"

	"restaurant.programming-kubernetes.info/apiserver/pkg/conformance"
)

// NewCommand returns the command.
func NewCommand(name string) *cobra.Command {
	var options conformance.Options
	var kubeconfig, context, level, format string
	var versions, examples []string
	var clean bool
	cmd := &cobra.Command{
		Use:   name,
		Short: "Finds out where an API differs from Kubernetes",
		Long: "Examines the API of an APIService, a CustomResourceDefinition or a built-in group through kube-apiserver, and prints how it differs from the behaviour that clients of Kubernetes rely on. " +
			"Objects are created in namespaces of its own, and deleted by their names. The exit code is 1 if there is a difference, and 2 if the API could not be examined, or less of it than was asked for.",
		Example: "  conformance --group-version apps/v1 --resource deployments --example deployment.yaml\n" +
			"  conformance --group-version metrics.k8s.io/v1beta1 --read-only -o html >report.html\n" +
			"  conformance --clean",
		Args:         cobra.NoArgs,
		Version:      version.Get().GitVersion,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !slices.Contains(conformance.Formats(), format) {
				return fmt.Errorf("--output must be one of %s, not %q", strings.Join(conformance.Formats(), ", "), format)
			}
			options.Level = conformance.Level(level)
			if !slices.Contains(conformance.Levels(), options.Level) {
				return fmt.Errorf("--level must be basic, full or hostile, not %q", level)
			}
			var err error
			if options.GroupVersions, err = parseVersions(versions); err != nil {
				return err
			}
			if options.Examples, err = conformance.ReadExamples(examples...); err != nil {
				return err
			}
			rules := clientcmd.NewDefaultClientConfigLoadingRules()
			rules.ExplicitPath = kubeconfig
			config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
			if err != nil {
				return fmt.Errorf("no cluster is known (%w): name a kubeconfig with --kubeconfig", err)
			}
			options.Progress = func(line string) { fmt.Fprintln(cmd.ErrOrStderr(), line) }
			if clean {
				return conformance.Clean(cmd.Context(), config, options.Progress)
			}
			report, err := conformance.Run(cmd.Context(), config, options)
			if report == nil {
				return err
			}
			if err := report.Write(cmd.OutOrStdout(), format); err != nil {
				return err
			}
			return judge(report)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&kubeconfig, "kubeconfig", "", "Kubeconfig of the cluster. By default it is found as kubectl finds it.")
	flags.StringVar(&context, "context", "", "Context of the kubeconfig.")
	flags.StringSliceVar(&versions, "group-version", nil, "Group version to examine, for example apps/v1, or v1 for the core group. By default they are those of the examples.")
	flags.StringSliceVar(&options.Resources, "resource", nil, "Resource to examine, for example deployments. By default it is all of the group version but cluster-scoped ones of Kubernetes, whose objects act on the whole cluster.")
	flags.StringArrayVar(&examples, "example", nil, "File or directory with objects that the API accepts. A second object of a kind shows what may be changed. By default examples are made from the schema.")
	flags.StringVar(&level, "level", string(conformance.Full), "How much is asked: basic, full, or hostile, which adds requests that no honest client sends.")
	flags.BoolVar(&options.ReadOnly, "read-only", false, "Leave out all checks that write.")
	flags.StringSliceVar(&options.Only, "check", nil, "Check to run, for example watch/order. By default it is all of the level.")
	flags.StringVar(&options.WebhookAddress, "webhook-address", "", "Host of this machine and port, which may be 0, at which the API's servers reach webhooks of the run. Without it no webhook is examined.")
	flags.StringVar(&options.AuditLog, "audit-log", "", "File to which the API's server writes audit events. Without it audit is not examined.")
	flags.StringVarP(&format, "output", "o", "text", "Format of the report: "+strings.Join(conformance.Formats(), ", ")+".")
	flags.BoolVar(&clean, "clean", false, "Examine nothing, but delete all objects that earlier runs have left because they were killed. No run may go on meanwhile.")
	cmd.MarkFlagsOneRequired("group-version", "example", "clean")
	return cmd
}

// errDiffers is the error of a whole run that has found differences.
var errDiffers = errors.New("the API differs from Kubernetes")

// judge returns an error unless a run has examined all that it should, and all of it is as in Kubernetes.
func judge(report *conformance.Report) error {
	failed := len(report.Having(conformance.Failed))
	switch {
	case len(report.Incomplete()) > 0:
		return fmt.Errorf("not all that was asked for could be examined; %d checks failed", failed)
	case failed > 0:
		return fmt.Errorf("%w: %d checks failed", errDiffers, failed)
	case len(report.Left) > 0:
		return fmt.Errorf("%d objects could not be deleted", len(report.Left))
	}
	return nil
}

// ExitCode returns the exit code for an error of the command: 1 if the API differs, and 2 if it could not be examined.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errDiffers):
		return 1
	}
	return 2
}

// parseVersions takes group versions as kubectl prints them: "apps/v1" or "v1".
func parseVersions(texts []string) ([]schema.GroupVersion, error) {
	var versions []schema.GroupVersion
	for _, text := range texts {
		version, err := schema.ParseGroupVersion(text)
		if err != nil || version.Version == "" {
			return nil, fmt.Errorf("--group-version must be like apps/v1, not %q", text)
		}
		versions = append(versions, version)
	}
	return versions, nil
}
