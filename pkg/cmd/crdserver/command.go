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
	"errors"
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

// NewCommand returns the command of a server of this name, and below it those of its tools.
func NewCommand(ctx context.Context, name string) *cobra.Command {
	options := &crdserver.Options{}
	cmd := server.NewCommandWithBase(ctx, name, options.Base())
	cmd.Short = "Serves custom resources to a Kubernetes cluster from an etcd of its own"
	for _, other := range []*cobra.Command{newRegisterCommand(), newUnregisterCommand()} {
		cmd.AddCommand(tool.WithEnvironment(name, tool.AsTool(other)))
		cmd.Long += fmt.Sprintf("\n  %-12s %s", other.Name(), other.Short)
	}
	return cmd
}

// registration has the flags that the tools have in common.
type registration struct {
	groups     []string
	kubeconfig string
	timeout    time.Duration
}

func (r *registration) addFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringSliceVar(&r.groups, "groups", nil, "API groups, such as argoproj.io.")
	flags.StringVar(&r.kubeconfig, "kubeconfig", "", "Kubeconfig with permissions to read and update CustomResourceDefinitions, and to change APIServices, ValidatingAdmissionPolicies, MutatingAdmissionPolicies and their bindings. By default that of kubectl.")
	flags.DurationVar(&r.timeout, "timeout", time.Minute, "How long to wait for kube-apiserver.")
}

func newRegisterCommand() *cobra.Command {
	var (
		r               registration
		service, caFile string
		port            int32
	)
	cmd := &cobra.Command{
		Use:   "register",
		Short: "Makes kube-apiserver send the requests for groups to a running server",
		Long: "Makes kube-apiserver send the requests for groups, which CustomResourceDefinitions define, to a server that runs already, by changing their APIServices. " +
			"Objects that are in the cluster's etcd stay there, and are not seen until the groups are unregistered: register groups without objects, or move the objects.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(r.groups) == 0 {
				return errors.New("--groups is not set")
			}
			config, err := cluster.UserKubeconfig(r.kubeconfig)
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
			ctx, cancel := context.WithTimeout(cmd.Context(), r.timeout)
			defer cancel()
			warn := func(warning string) { fmt.Fprintf(cmd.ErrOrStderr(), "Warning: %s\n", warning) }
			return crdserver.Register(ctx, config, target, warn, r.groups...)
		},
	}
	r.addFlags(cmd)
	cmd.Flags().StringVar(&service, "service", "", "Service of the server, as namespace/name.")
	cmd.Flags().Int32Var(&port, "port", 443, "Port of the Service.")
	cmd.Flags().StringVar(&caFile, "ca-file", "", "File with the certificate authority of the server's certificate. By default those that kube-apiserver's host trusts.")
	return cmd
}

func newUnregisterCommand() *cobra.Command {
	var (
		r       registration
		service unregister.Service
	)
	cmd := &cobra.Command{
		Use:   "unregister",
		Short: "Makes kube-apiserver serve groups by itself again",
		Long: "Makes kube-apiserver serve groups by itself again, from the cluster's etcd: those of --groups, or with --service whatever leads to a Service. " +
			"Objects that are in the server's etcd stay there, and are not seen until the groups are registered.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(r.groups) == 0 && service.Name == "" {
				return errors.New("--groups or --service must be set")
			}
			config, err := cluster.UserKubeconfig(r.kubeconfig)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), r.timeout)
			defer cancel()
			if service.Name == "" {
				return crdserver.Unregister(ctx, config, r.groups...)
			}
			names, err := cluster.Unregister(ctx, config, service.NamespacedName)
			for _, name := range names {
				fmt.Fprintf(cmd.OutOrStdout(), "APIService %s\n", name)
			}
			return err
		},
	}
	r.addFlags(cmd)
	cmd.Flags().Var(&service, "service", "Service of the server, instead of --groups.")
	return cmd
}
