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

package requirements

import (
	"context"
	"crypto/x509"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/egressselector"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/certificates"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

// Server describes a server as far as its requirements depend on it.
type Server struct {
	Name string
	// CoreKubeconfig, AuthorizationKubeconfig, and that of Authentication are the files of the
	// clients of kube-apiserver. Egress is how these reach it.
	CoreKubeconfig, AuthorizationKubeconfig string
	Authentication                          *genericoptions.DelegatingAuthenticationOptions
	Egress                                  egressselector.Lookup
	// Plugins are the admission plugins that exist. Admission says which of them run.
	Plugins   []admission.Plugin
	Admission *genericoptions.AdmissionOptions
	// Prioritizes is set if requests are to be limited by priority and fairness.
	Prioritizes bool
	// RunsControllers is set if there are controllers to run.
	RunsControllers bool
	LeaderElection  componentbaseconfig.LeaderElectionConfiguration
	ServingCert     certificates.Config
	// Reads are further resources of the cluster that the server needs permission to list and
	// watch before it starts. ReadsFix says how to grant it.
	Reads    []schema.GroupResource
	ReadsFix string
	// Others are permissions that the server does not wait for.
	Others []cluster.Permission
}

// Granted is the result of Await.
type Granted struct {
	// Core, Authentication and Authorization are the configurations of the clients.
	Core, Authentication, Authorization *rest.Config
	// ClientCAs are the certificate authorities that the cluster trusts.
	ClientCAs []*x509.Certificate
	// Prioritized is set if requests can be limited by the cluster's priorities.
	Prioritized bool
	// ServingCert is nil if the certificate comes from elsewhere.
	ServingCert *certificates.Manager
}

// Await waits until the cluster grants what the server needs before it starts.
func (s *Server) Await(ctx context.Context) (g Granted, err error) {
	extended, err := s.newCluster()
	if err != nil {
		return g, err
	}
	if err := cluster.Await(ctx, "the cluster", extended.check); err != nil {
		return g, err
	}
	g.Core, g.Authentication, g.Authorization = extended.core.config, extended.authentication.config, extended.authorization.config
	g.ClientCAs = extended.clientCAs
	g.Prioritized = extended.unprioritized == nil
	if !g.Prioritized {
		klog.InfoS("Limiting requests by --max-requests-inflight and --max-mutating-requests-inflight, not by the cluster's FlowSchemas and PriorityLevelConfigurations; restart after granting list and watch on them", "reason", extended.unprioritized.Error())
	}
	g.ServingCert, err = s.awaitServingCert(ctx, g.Core)
	return g, err
}

// awaitServingCert returns nil if the certificate is not of the replicas' own certificate
// authority.
func (s *Server) awaitServingCert(ctx context.Context, core *rest.Config) (*certificates.Manager, error) {
	if s.ServingCert.Secret == "" {
		return nil, nil
	}
	manager, err := certificates.New(s.ServingCert, core)
	if err != nil {
		return nil, err
	}
	return manager, cluster.Await(ctx, "the serving certificate", manager.Sync)
}
