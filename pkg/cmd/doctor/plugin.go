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

package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/component-base/version"

	tool "restaurant.programming-kubernetes.info/apiserver/pkg/cmd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/doctor"
)

// NewPlugin returns the command of the plugin "kubectl apiservices".
func NewPlugin() *cobra.Command {
	var report report
	rules, overrides := clientcmd.NewDefaultClientConfigLoadingRules(), &clientcmd.ConfigOverrides{}
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, overrides)
	cmd := &cobra.Command{
		Use:   "kubectl-apiservices [NAME ...]",
		Short: "Says what is wrong with APIServices and the servers behind them",
		Long: "Examines the APIServices that are named, or all that lead to a server, and prints what is wrong, since when, and how to fix it, " +
			"with a command that cures it or shows more. It changes nothing, and connects to kube-apiserver only. The exit code is 1 if there is a failure.",
		Example:     "  kubectl apiservices\n  kubectl apiservices v1beta1.metrics.k8s.io --output=json",
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl apiservices"},
		Version:     version.Get().GitVersion,
		RunE: func(cmd *cobra.Command, names []string) error {
			cluster, err := config.ClientConfig()
			if err != nil {
				return err
			}
			return report.run(cmd, func(ctx context.Context) ([]doctor.Result, error) {
				return doctor.ExamineAPIServices(ctx, cluster, names...)
			})
		},
		SilenceUsage: true,
	}
	cmd.Flags().StringVar(&rules.ExplicitPath, "kubeconfig", "", "File with the configuration of kubectl.")
	clientcmd.BindOverrideFlags(overrides, cmd.Flags(), clientcmd.RecommendedConfigOverrideFlags(""))
	report.addFlags(cmd.Flags())
	return tool.AsTool(cmd)
}

// report is how results are printed, and how often.
type report struct {
	format string
	pause  time.Duration
	quiet  bool
}

func (r *report) addFlags(flags *pflag.FlagSet) {
	flags.DurationVar(&r.pause, "watch", 0, ""+
		"How long to wait before examining again, for instance 5m, until Ctrl-C. After the first time, only what has changed is printed. 0 examines once.")
	flags.BoolVarP(&r.quiet, "quiet", "q", false, ""+
		"Whether to leave out what is ok or skipped.")
	flags.StringVarP(&r.format, "output", "o", "", `"json" for programs.`)
}

func (r *report) check() error {
	if r.pause < 0 {
		return errors.New("--watch must be longer than nothing, for instance 5m")
	}
	return tool.CheckFormat(r.format)
}

// run examines and prints. The error says so if there are failures.
func (r *report) run(cmd *cobra.Command, examine func(context.Context) ([]doctor.Result, error)) error {
	if err := r.check(); err != nil {
		return err
	}
	if r.pause != 0 {
		return doctor.Watch(cmd.Context(), examine, r.pause, func(results []doctor.Result) error {
			now := time.Now().UTC().Format(time.RFC3339)
			out := cmd.OutOrStdout()
			if r.format != tool.FormatJSON {
				if _, err := fmt.Fprintln(out, now); err != nil {
					return err
				}
			}
			return r.print(out, results, map[string]any{"time": now})
		})
	}
	results, err := examine(cmd.Context())
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	err = r.print(out, results, map[string]any{})
	if err == nil && r.format != tool.FormatJSON {
		_, err = fmt.Fprintf(out, "\n%s\n", doctor.Summary(results))
	}
	return errors.Join(err, failures(results))
}

// print prints results. With JSON, they become a field of the document.
func (r *report) print(out io.Writer, results []doctor.Result, document map[string]any) error {
	shown := results
	if r.quiet {
		shown = slices.DeleteFunc(slices.Clone(results), func(result doctor.Result) bool {
			return result.Status == doctor.OK || result.Status == doctor.Skipped
		})
	}
	if r.format == tool.FormatJSON {
		document["results"] = shown
		return tool.PrintJSON(out, document)
	}
	return doctor.Print(out, shown)
}
