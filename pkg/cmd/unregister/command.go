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
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// Service is the value of the flag --service.
type Service struct{ types.NamespacedName }

func (s *Service) String() string {
	if s.Name == "" {
		return ""
	}
	return s.NamespacedName.String()
}

// Set parses a namespace and a name.
func (s *Service) Set(value string) error {
	namespace, name, ok := strings.Cut(value, "/")
	if !ok || namespace == "" || name == "" {
		return errors.New("it must be namespace/name")
	}
	s.Namespace, s.Name = namespace, name
	return nil
}

// Type names the value in --help.
func (*Service) Type() string { return "namespace/name" }

// NewCommand returns the command. A server of groups that CustomResourceDefinitions define gives them
// back by their names, too.
func NewCommand(byNames func(ctx context.Context, config *rest.Config, groups ...string) error) *cobra.Command {
	var (
		service    Service
		groups     []string
		kubeconfig string
		timeout    time.Duration
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
			if service.Name == "" {
				return byNames(ctx, config, groups...)
			}
			names, err := cluster.Unregister(ctx, config, service.NamespacedName)
			for _, name := range names {
				fmt.Fprintf(cmd.OutOrStdout(), "APIService %s\n", name)
			}
			return err
		},
	}
	cmd.Flags().Var(&service, "service", "Service of the server.")
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "Kubeconfig with permissions to change APIServices and to delete ValidatingAdmissionPolicies. By default that of kubectl, or of the pod.")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "How long to wait for kube-apiserver.")
	if byNames == nil {
		_ = cmd.MarkFlagRequired("service")
		return cmd
	}
	cmd.Short = "Makes kube-apiserver serve groups by itself again"
	cmd.Long = "Makes kube-apiserver serve groups by itself again, from the cluster's etcd: those of --groups, or with --service whatever leads to a Service. " +
		"Objects that are in the server's etcd stay there, and are not seen until the groups are registered."
	cmd.Flags().Lookup("service").Usage = "Service of the server, instead of --groups."
	cmd.Flags().Lookup("kubeconfig").Usage = "Kubeconfig with permissions to read and update CustomResourceDefinitions, and to change APIServices, ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings. By default that of kubectl."
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "API groups, such as argoproj.io.")
	cmd.MarkFlagsOneRequired("service", "groups")
	return cmd
}
