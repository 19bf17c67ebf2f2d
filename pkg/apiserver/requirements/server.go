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
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/server/egressselector"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/kubernetes"
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
	// CoreKubeconfig, AuthorizationKubeconfig and the one in Authentication are the files of the
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

// The flags that name the files of clients of kube-apiserver.
const (
	coreKubeconfig           = "kubeconfig"
	authenticationKubeconfig = "authentication-kubeconfig"
	authorizationKubeconfig  = "authorization-kubeconfig"
)

// clients reach kube-apiserver, each by the kubeconfig of its flag, which is loaded here
// and nowhere else.
type clients struct {
	core, authentication, authorization *client
}

// client reaches a kube-apiserver. Callers copy the config to change it.
type client struct {
	kubernetes.Interface
	config *rest.Config
}

func (s *Server) newClients() (c clients, err error) {
	for _, each := range []struct {
		client     **client
		flag, path string
	}{
		// The others have the same file by default, and problems name the first flag.
		{&c.core, coreKubeconfig, s.CoreKubeconfig},
		{&c.authentication, authenticationKubeconfig, s.Authentication.RemoteKubeConfigFile},
		{&c.authorization, authorizationKubeconfig, s.AuthorizationKubeconfig},
	} {
		config, err := s.kubeconfig(each.flag, each.path)
		if err != nil {
			return clients{}, err
		}
		clientset, err := kubernetes.NewForConfig(config)
		if err != nil {
			return clients{}, err
		}
		*each.client = &client{clientset, config}
	}
	return c, nil
}

// Kubeconfig returns the configuration of the clients of kube-apiserver that are not for
// reviews.
func (s *Server) Kubeconfig() (*rest.Config, error) {
	return s.kubeconfig(coreKubeconfig, s.CoreKubeconfig)
}

// kubeconfig loads the configuration of a client of kube-apiserver, with the dialer of the
// egress selection.
// Upstream fault 47.
func (s *Server) kubeconfig(flag, path string) (*rest.Config, error) {
	config, err := cluster.Kubeconfig(flag, path)
	if err != nil {
		return nil, err
	}
	config.UserAgent = UserAgent(s.Name)
	// kube-apiserver itself says when it is asked too much.
	config.QPS = -1
	// The warnings that kube-apiserver sends are for people.
	config.WarningHandler = rest.NoWarnings{}
	config.Dial, err = s.Egress(egressselector.ControlPlane.AsNetworkContext())
	return config, err
}

// UserAgent is client-go's with the name of the server in place of the program's.
func UserAgent(name string) string {
	_, version, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	return name + "/" + version
}
