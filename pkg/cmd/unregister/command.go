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

// Package unregister has the command that takes a server's APIServices away.
package unregister

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// NewCommand returns the command. A server of groups that CustomResourceDefinitions define gives them
// back by their names, too.
func NewCommand(byNames func(ctx context.Context, config *rest.Config, groups ...string) error) *cobra.Command {
	var (
		service, kubeconfig string
		groups              []string
		timeout             time.Duration
	)
	cmd := &cobra.Command{
		Use:   "unregister",
		Short: "Takes away the APIServices that lead to a Service",
		Long: "Takes away the APIServices that lead to a Service, before its server is uninstalled. kube-apiserver serves a version again that a CustomResourceDefinition defines, from the cluster's etcd, " +
			"and no longer serves the others. An APIService without a server would keep every namespace of the cluster from being deleted.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := cluster.UserKubeconfig(kubeconfig)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			if len(groups) > 0 && service == "" {
				return byNames(ctx, config, groups...)
			}
			namespace, name, _ := strings.Cut(service, "/")
			if namespace == "" || name == "" {
				return fmt.Errorf("--service must be namespace/name, not %q", service)
			}
			names, err := cluster.Unregister(ctx, config, types.NamespacedName{Namespace: namespace, Name: name})
			for _, name := range names {
				fmt.Fprintf(cmd.OutOrStdout(), "APIService %s\n", name)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&service, "service", "", "Service of the server, as namespace/name.")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "Kubeconfig with permissions to change APIServices and to delete ValidatingAdmissionPolicies. By default that of kubectl, or of the pod.")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "How long to wait for kube-apiserver.")
	if byNames == nil {
		_ = cmd.MarkFlagRequired("service")
		return cmd
	}
	cmd.Short = "Makes kube-apiserver serve groups by itself again"
	cmd.Long = "Makes kube-apiserver serve groups by itself again, from the cluster's etcd: those of --groups, or with --service whatever leads to a Service. " +
		"Objects that are in the server's etcd stay there, and are not seen until the groups are registered."
	cmd.Flags().Lookup("service").Usage = "Service of the server, as namespace/name, instead of --groups."
	cmd.Flags().Lookup("kubeconfig").Usage = "Kubeconfig with permissions to read and update CustomResourceDefinitions, and to change APIServices, ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings. By default that of kubectl."
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "API groups, such as argoproj.io.")
	cmd.MarkFlagsOneRequired("service", "groups")
	return cmd
}
