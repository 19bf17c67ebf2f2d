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
	"github.com/spf13/pflag"
	cliflag "k8s.io/component-base/cli/flag"
	componentbaseoptions "k8s.io/component-base/config/options"
)

// Flags returns the flags in the sections of --help.
func (o *Options) Flags() (sections cliflag.NamedFlagSets) {
	if o.Base != nil {
		o.Base.AddFlags(&sections)
	}
	o.ServerRun.AddUniversalFlags(sections.FlagSet("generic"))
	o.Etcd.AddFlags(sections.FlagSet("etcd"))
	sections.FlagSet("etcd").BoolVar(&o.EtcdTransactions, "etcd-transactions", o.EtcdTransactions, ""+
		"Whether --etcd-servers have transactions of several keys, which keep references between objects exact when they are created and deleted at the same time. Set to false for kine, which has none.")
	o.SecureServing.AddFlags(sections.FlagSet("secure serving"))
	o.Bounds.AddFlags(sections.FlagSet("bounds"))
	o.Authentication.AddFlags(sections.FlagSet("authentication"))
	sections.FlagSet("authentication").StringSliceVar(&o.APIAudiences, "api-audiences", o.APIAudiences, ""+
		"Audiences of this server, such as SERVICE.NAMESPACE.svc. A bearer token must be issued for one of them, and is then of no use at kube-apiserver. By default, tokens must be for kube-apiserver, as those that pods have by default are.")
	o.Authorization.AddFlags(sections.FlagSet("authorization"))
	o.Audit.AddFlags(sections.FlagSet("auditing"))
	o.Features.AddFlags(sections.FlagSet("features"))
	o.Admission.AddFlags(sections.FlagSet("admission"))
	sections.FlagSet("egress selector").StringVar(&o.EgressSelector.ConfigFile, "egress-selector-config-file", o.EgressSelector.ConfigFile, ""+
		"File with an EgressSelectorConfiguration. It names this server's proxies to kube-apiserver (controlplane), to the webhooks of Services (cluster), and to an external etcd (etcd).")
	o.Traces.AddFlags(sections.FlagSet("traces"))

	o.addCertificateFlags(&sections)

	controllers := sections.FlagSet("controllers")
	controllers.BoolVar(&o.RunControllers, "run-controllers", o.RunControllers, ""+
		"Whether this server runs controllers, such as those that keep the status of objects, when it is elected among its replicas.")
	componentbaseoptions.BindLeaderElectionFlags(&o.LeaderElection, controllers)

	cluster := sections.FlagSet("cluster")
	cluster.StringVar(&o.CoreAPI.CoreAPIKubeconfigPath, "kubeconfig", o.CoreAPI.CoreAPIKubeconfigPath, ""+
		"Kubeconfig for the cluster's kube-apiserver. Optional in a pod, where the service account is used.")
	cluster.DurationVar(&o.StartupTimeout, "startup-timeout", o.StartupTimeout, ""+
		"How long to wait at startup for kube-apiserver, for this server's role bindings, for etcd, and for a previous process to release the data directory.")

	etcd := sections.FlagSet("embedded etcd")
	etcd.StringVar(&o.EmbeddedEtcd.Dir, "data-dir", o.EmbeddedEtcd.Dir, ""+
		"Directory for the data of the embedded etcd, which is used when --etcd-servers is not set.")
	etcd.Int64Var(&o.EmbeddedEtcd.QuotaBytes, "etcd-quota-backend-bytes", o.EmbeddedEtcd.QuotaBytes, ""+
		"Size of the embedded etcd's database in bytes above which it raises an alarm and accepts no writes.")
	return sections
}

// addCertificateFlags adds the flags of the own certificate authority.
func (o *Options) addCertificateFlags(sections *cliflag.NamedFlagSets) {
	certificate := pflag.NewFlagSet("", pflag.ContinueOnError)
	certificate.StringVar(&o.ServingCert.Secret, "serving-ca-secret", o.ServingCert.Secret, ""+
		"Name of a Secret in the namespace of this server. Its replicas keep a certificate authority of their own there, which is created and renewed as needed. The APIServices are made to trust it, and each replica issues a certificate for itself. Not together with --tls-cert-file.")
	certificate.StringVar(&o.ServingCert.Service, "serving-service", o.ServingCert.Service, ""+
		"Name of the Service in the namespace of this server that leads kube-apiserver to it. With --serving-ca-secret only.")
	certificate.DurationVar(&o.ServingCert.CAValidity, "serving-ca-validity", o.ServingCert.CAValidity, ""+
		"How long the certificate authority of --serving-ca-secret is valid for. It is renewed after two thirds of that.")
	certificate.DurationVar(&o.ServingCert.Validity, "serving-cert-validity", o.ServingCert.Validity, ""+
		"How long a certificate issued by the certificate authority of --serving-ca-secret is valid for. It is renewed after two thirds of that.")
	section := "own certificate authority"
	if o.Base != nil {
		// Such a server refuses them, and says why. A section of its own would be an empty one in --help.
		certificate.VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
		section = "secure serving"
	}
	sections.FlagSet(section).AddFlagSet(certificate)
}
