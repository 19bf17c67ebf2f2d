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

// Package crdserver has the command of a server of groups that
// CustomResourceDefinitions define.
package crdserver

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	tool "restaurant.programming-kubernetes.info/apiserver/pkg/cmd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/server"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cmd/unregister"
	"restaurant.programming-kubernetes.info/apiserver/pkg/crdserver"
)

// NewCommand returns the command of a server of this name, and below it the commands of its tools.
func NewCommand(ctx context.Context, name string) *cobra.Command {
	options := &crdserver.Options{}
	cmd := server.NewCommandWithBase(ctx, name, options.Base())
	cmd.Short = "Serves custom resources to a Kubernetes cluster from an etcd of its own"
	for _, other := range []*cobra.Command{newRegisterCommand(), unregister.NewCommand(crdserver.Unregister)} {
		cmd.AddCommand(tool.WithEnvironment(name, tool.AsTool(other)))
		cmd.Long += fmt.Sprintf("\n  %-12s %s", other.Name(), other.Short)
	}
	return cmd
}

func newRegisterCommand() *cobra.Command {
	var (
		groups                      []string
		kubeconfig, service, caFile string
		timeout                     time.Duration
		port                        int32
	)
	cmd := &cobra.Command{
		Use:   "register",
		Short: "Makes kube-apiserver send the requests for groups to a running server",
		Long: "Makes kube-apiserver send the requests for groups, which CustomResourceDefinitions define, to a server that runs already, by changing their APIServices. " +
			"Objects that are in the cluster's etcd stay there, and are not seen until the groups are unregistered: register groups without objects, or move the objects.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := cluster.UserKubeconfig(kubeconfig)
			if err != nil {
				return err
			}
			namespace, name, ok := strings.Cut(service, "/")
			if !ok {
				return fmt.Errorf("--service must be namespace/name, not %q", service)
			}
			target := crdserver.Target{Service: apiregistrationv1.ServiceReference{Namespace: namespace, Name: name, Port: &port}}
			if caFile != "" {
				if target.CABundle, err = os.ReadFile(caFile); err != nil {
					return fmt.Errorf("--ca-file: %w", err)
				}
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			warn := func(warning string) { fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s\n", warning) }
			return crdserver.Register(ctx, config, target, warn, groups...)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&groups, "groups", nil, "API groups, such as argoproj.io.")
	flags.StringVar(&kubeconfig, "kubeconfig", "", "Kubeconfig with permissions to read and update CustomResourceDefinitions, and to change APIServices, ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings. By default that of kubectl.")
	flags.DurationVar(&timeout, "timeout", time.Minute, "How long to wait for kube-apiserver.")
	flags.StringVar(&service, "service", "", "Service of the server, as namespace/name.")
	flags.Int32Var(&port, "port", 443, "Port of the Service.")
	flags.StringVar(&caFile, "ca-file", "", "File with the certificate authority of the server's certificate. By default those that kube-apiserver's host trusts.")
	_ = cmd.MarkFlagRequired("groups")
	return cmd
}
