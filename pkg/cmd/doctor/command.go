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

// Package doctor has the command that finds out what is wrong in a cluster.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	tool "restaurant.programming-kubernetes.info/apiserver/pkg/cmd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/doctor"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// NewCommand returns the command that finds out what is wrong in a cluster with a server of
// this name. The base is nil if it has none.
func NewCommand(name string, base *apiserver.Base, groups ...registry.Group) *cobra.Command {
	options := apiserver.NewOptions(name, groups...)
	options.Base = base
	config := doctor.Config{Groups: groups}
	var (
		report      report
		bundle      string
		apiServices []string
		all         bool
	)
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Finds what keeps this server from working in a cluster",
		Long: "Examines a cluster and prints what is wrong and how to fix it. It changes nothing, and also works before the server is installed. " +
			"Besides its own flags it takes the server's, and checks what a server with these flags needs. The exit code is 1 if there is a failure.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := report.check(); err != nil {
				return err
			}
			if _, _, err := net.SplitHostPort(config.Address); err != nil && config.Address != "" {
				return fmt.Errorf("--server-address must be host:port: %w", err)
			}
			others := all || len(apiServices) > 0
			switch {
			case all && len(apiServices) > 0:
				return errors.New("--all examines every APIService: leave out --apiservice")
			case report.pause != 0 && bundle != "":
				return errors.New("--bundle is written once: leave out --watch")
			case others && bundle != "":
				return errors.New("--bundle is about this server: leave out --apiservice and --all")
			}
			if err := complete(options, &config); err != nil {
				return err
			}
			return report.run(cmd, func(ctx context.Context) ([]doctor.Result, error) {
				if others {
					return doctor.ExamineAPIServices(ctx, config.Cluster, apiServices...)
				}
				results, err := doctor.Examine(ctx, config)
				if err == nil && bundle != "" {
					err = writeBundle(ctx, bundle, config, results)
				}
				return results, err
			})
		},
	}
	own := pflag.NewFlagSet("doctor", pflag.ContinueOnError)
	own.StringVar(&config.Namespace, "namespace", "", ""+
		"Namespace of the server. It may be left out when the server's APIServices are registered.")
	own.StringVar(&config.ServiceAccount, "service-account", name, ""+
		"Service account of the server.")
	own.StringVar(&config.Address, "server-address", "", ""+
		"Where the server can be reached from here, as host:port, for instance by \"kubectl port-forward\". By default the endpoints of its Service are tried.")
	own.StringVar(&bundle, "bundle", "", ""+
		"File to write, for instance support.tar.gz, with what others need to find a fault: findings, versions, and the logs, metrics and objects of the server's namespace, without what is confidential.")
	own.StringArrayVar(&apiServices, "apiservice", nil, ""+
		"Name of an APIService, of this server or any other, for instance v1beta1.metrics.k8s.io. It can be given several times. It and the server that it leads to are examined instead of this server, without its flags.")
	own.BoolVar(&all, "all", false, ""+
		"Whether to examine all APIServices of the cluster that lead to a server, as --apiservice does one.")
	report.addFlags(own)
	tool.AsTool(cmd)
	tool.AddToolFlags(cmd, own, options)
	return cmd
}

// complete fills in the values of the server's options.
func complete(o *apiserver.Options, config *doctor.Config) error {
	completed, err := o.Complete()
	if err != nil {
		return err
	}
	if err := utilerrors.NewAggregate(completed.Validate()); err != nil {
		return err
	}
	config.Cluster, err = completed.Kubeconfig()
	if err != nil {
		return err
	}
	if config.Namespace == "" && o.CoreAPI.CoreAPIKubeconfigPath == "" {
		config.Namespace = cluster.Namespace("") // This is the server's pod.
	}
	if o.Base != nil {
		config.Defined = o.Base.Groups()
	}
	config.Audiences = completed.APIAudiences
	config.Permissions = completed.Permissions
	config.AdmissionOff = completed.AdmissionOff()
	config.EtcdServers = completed.Etcd.StorageConfig.Transport.ServerList
	config.EtcdClient = completed.NewEtcdClient
	config.Stores = completed.Stores
	config.Egress = completed.Egress
	if completed.Embedded() {
		config.EtcdSocket = strings.TrimPrefix(completed.EmbeddedEtcd.Endpoint(), "unix://")
	}
	return nil
}

// writeBundle writes a support bundle into a new file.
func writeBundle(ctx context.Context, file string, config doctor.Config, results []doctor.Result) error {
	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("--bundle must name a new file: %w", err)
	}
	if err := errors.Join(doctor.WriteBundle(ctx, config, results, out), out.Close()); err != nil {
		return errors.Join(err, os.Remove(file))
	}
	return nil
}

// failures returns an error if there are any.
func failures(results []doctor.Result) error {
	count := 0
	for _, result := range results {
		if result.Status == doctor.Failure {
			count++
		}
	}
	if count == 0 {
		return nil
	}
	return fmt.Errorf("%d of %d findings are failures", count, len(results))
}
