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

// Package certificates has the command that keeps certificates in Secrets.
package certificates

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"

	"restaurant.programming-kubernetes.info/apiserver/pkg/certificates"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// options are the flags of the command that keeps certificates.
type options struct {
	certificates.IssuerConfig
	kubeconfig     string
	certificates   []string
	startupTimeout time.Duration
}

// NewCommand returns the command that keeps the certificates of an etcd
// and of its clients, where nothing else in the cluster does.
func NewCommand() *cobra.Command {
	o := options{
		IssuerConfig:   certificates.IssuerConfig{CAValidity: 10 * 365 * 24 * time.Hour, Validity: 365 * 24 * time.Hour},
		startupTimeout: cluster.DefaultTimeout,
	}
	cmd := &cobra.Command{
		Use:   "certificates",
		Short: "Keeps certificates in Secrets, for instance those of an etcd",
		Long: "Keeps a certificate authority (CA) and certificates it issued in Secrets, for programs that read them from files. Runs until it is stopped, and renews each after two thirds of its lifetime. " +
			"A certificate is valid for clients, and for servers if hosts are given. " +
			"A new CA takes over one twelfth of its lifetime after it was created; programs that read ca.crt only at startup must be restarted in between.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", ""+
		"Kubeconfig for the cluster's kube-apiserver. Optional in a pod, where the service account is used.")
	flags.StringVar(&o.Namespace, "namespace", "", ""+
		"Namespace of the Secrets. By default that of the kubeconfig, or of the pod.")
	flags.StringVar(&o.CASecret, "ca-secret", "", ""+
		"Name of the Secret of the certificate authority.")
	flags.StringArrayVar(&o.certificates, "certificate", nil, ""+
		"Name of a Secret, of the type kubernetes.io/tls, for a certificate, which has the same common name; for one of servers followed by = and their hosts, separated by commas. Can be repeated.")
	flags.StringSliceVar(&o.WebhookConfigurations, "webhook-configurations", nil, ""+
		"Names of mutating and validating webhook configurations: the caBundle of their webhooks in the namespace, and their path if --webhook-path-secret is set, are kept up to date.")
	flags.StringSliceVar(&o.CustomResourceDefinitions, "custom-resource-definitions", nil, ""+
		"Names of CustomResourceDefinitions: the caBundle of their conversion webhook, if it is in the namespace, and its path if --webhook-path-secret is set, are kept up to date.")
	flags.StringVar(&o.Service, "service", "", ""+
		"Name of a Service in the namespace: the caBundle of the APIServices that \"register\" or \"migrate\" has led to it is kept up to date.")
	flags.StringVar(&o.PathSecret, "webhook-path-secret", "", ""+
		"Name of a Secret of --certificate that also keeps a random path, for --path-file of the webhook. The path of these webhooks and of these conversion webhooks becomes that, followed by /admit, /validate or /convert. By default, paths are left as they are.")
	flags.DurationVar(&o.CAValidity, "ca-validity", o.CAValidity, ""+
		"How long the certificate authority is valid for.")
	flags.DurationVar(&o.Validity, "certificate-validity", o.Validity, ""+
		"How long a certificate is valid for.")
	flags.DurationVar(&o.startupTimeout, "startup-timeout", o.startupTimeout, ""+
		"How long to wait at startup for kube-apiserver and for this program's role bindings.")
	return cmd
}

func (o *options) run(ctx context.Context) error {
	if errs := o.complete(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	config, err := cluster.Kubeconfig("kubeconfig", o.kubeconfig)
	if err != nil {
		return err
	}
	issuer, err := certificates.NewIssuer(o.IssuerConfig, config)
	if err != nil {
		return err
	}
	started, cancel := context.WithTimeout(ctx, o.startupTimeout)
	defer cancel()
	if err := cluster.Await(started, "the first certificate", issuer.Sync); err != nil {
		if ctx.Err() != nil {
			return nil // It is no failure to be told to stop while waiting.
		}
		return err
	}
	issuer.Run(ctx)
	return nil
}

// complete fills in values that follow from the flags, and returns the errors of the flags.
func (o *options) complete() (errs []error) {
	o.Namespace = cmp.Or(o.Namespace, cluster.Namespace(o.kubeconfig))
	o.APIServices = cluster.RegisteredLabel
	for _, problem := range utilvalidation.IsDNS1123Subdomain(o.CASecret) {
		errs = append(errs, fmt.Errorf("--ca-secret %q: %s", o.CASecret, problem))
	}
	if len(o.certificates) == 0 {
		errs = append(errs, errors.New("--certificate must be set at least once"))
	}
	o.Certificates = map[string][]string{}
	for _, certificate := range o.certificates {
		name, hosts, servers := strings.Cut(certificate, "=")
		for _, problem := range utilvalidation.IsDNS1123Subdomain(name) {
			errs = append(errs, fmt.Errorf("--certificate %q: the Secret's name: %s", certificate, problem))
		}
		if _, twice := o.Certificates[name]; twice || name == o.CASecret {
			errs = append(errs, fmt.Errorf("--certificate %q: the Secret %s is used already", certificate, name))
		}
		o.Certificates[name] = nil
		if !servers {
			continue
		}
		o.Certificates[name] = strings.Split(hosts, ",")
		for _, host := range o.Certificates[name] {
			for _, problem := range utilvalidation.IsDNS1123Subdomain(host) {
				errs = append(errs, fmt.Errorf("--certificate %q: the host %q: %s", certificate, host, problem))
			}
			if net.ParseIP(host) != nil {
				errs = append(errs, fmt.Errorf("--certificate %q: the host %q must have a name, not an address only", certificate, host))
			}
		}
	}
	if _, kept := o.Certificates[o.PathSecret]; o.PathSecret != "" && !kept {
		errs = append(errs, fmt.Errorf("--webhook-path-secret %q must be a Secret of --certificate", o.PathSecret))
	}
	if err := o.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("--certificate-validity or --ca-validity: %w", err))
	}
	if o.startupTimeout <= 0 {
		errs = append(errs, fmt.Errorf("--startup-timeout must be above 0, not %s", o.startupTimeout))
	}
	return errs
}
