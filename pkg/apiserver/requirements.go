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
	"context"

	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/requirements"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// requires returns the requirements of the server.
func (o CompletedOptions) requires() *requirements.Server {
	server := &requirements.Server{
		Name:                    o.name,
		CoreKubeconfig:          o.CoreAPI.CoreAPIKubeconfigPath,
		AuthorizationKubeconfig: o.Authorization.RemoteKubeConfigFile,
		Authentication:          o.Authentication,
		Egress:                  o.Egress,
		Plugins:                 o.plugins,
		Admission:               o.Admission,
		Prioritizes:             o.Features.EnablePriorityAndFairness,
		// Controllers belong to groups.
		RunsControllers: o.RunControllers && len(o.groups) > 0,
		LeaderElection:  o.LeaderElection,
		ServingCert:     o.ServingCert,
	}
	if o.Base != nil {
		server.Reads, server.ReadsFix, server.Others = o.Base.Reads, o.Base.ReadsFix, o.Base.Permissions
	}
	return server
}

// Permissions returns all permissions that a server with these options needs in a cluster, if
// it runs in this namespace.
func (o CompletedOptions) Permissions(namespace string) []cluster.Permission {
	return o.requires().Permissions(namespace)
}

// Kubeconfig returns the configuration of the clients of kube-apiserver that are not for
// reviews.
func (o CompletedOptions) Kubeconfig() (*rest.Config, error) { return o.requires().Kubeconfig() }

// awaitPrerequisites waits for the cluster and for an external etcd, or starts the embedded
// one. The caller closes the embedded etcd, which is nil if etcd does not run inside this
// server.
func (o CompletedOptions) awaitPrerequisites(ctx context.Context) (ready requirements.Granted, embedded *etcd.Etcd, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.StartupTimeout)
	defer cancel()
	if ready, err = o.requires().Await(ctx); err != nil {
		return ready, nil, err
	}
	if !o.embeddedEtcd {
		return ready, nil, o.storageConfig().Await(ctx)
	}
	embedded, err = o.EmbeddedEtcd.Start(ctx)
	return ready, embedded, err
}
