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
	"crypto/x509"

	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/certificates"
	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
)

// prerequisites are there before the server is made.
type prerequisites struct {
	clients clients
	// clientCAs are the certificate authorities that the cluster trusts.
	clientCAs []*x509.Certificate
	// prioritized is set if requests can be limited by the cluster's priorities.
	prioritized bool
	// servingCert is nil if the certificate comes from elsewhere.
	servingCert *certificates.Manager
	// etcd is nil if it does not run inside this server.
	etcd *etcd.Etcd
}

// awaitPrerequisites waits for the cluster and for an external etcd, or starts the embedded
// one, which is the caller's to close.
func (o CompletedOptions) awaitPrerequisites(ctx context.Context) (p prerequisites, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.StartupTimeout)
	defer cancel()
	cluster, err := o.newCluster()
	if err != nil {
		return p, err
	}
	if err := cluster.wait(ctx); err != nil {
		return p, err
	}
	p.clients, p.clientCAs = cluster.clients, cluster.clientCAs
	p.prioritized = cluster.unprioritized == nil
	if !p.prioritized {
		klog.InfoS("Limiting requests by --max-requests-inflight and --max-mutating-requests-inflight, not by the cluster's FlowSchemas and PriorityLevelConfigurations; restart after granting list and watch on them", "reason", cluster.unprioritized.Error())
	}
	if p.servingCert, err = o.awaitServingCert(ctx, p.clients.core); err != nil {
		return p, err
	}
	if !o.embeddedEtcd {
		return p, o.awaitEtcd(ctx)
	}
	p.etcd, err = o.EmbeddedEtcd.Start(ctx)
	return p, err
}

// awaitServingCert returns nil if the certificate is not of the replicas' own certificate
// authority.
func (o CompletedOptions) awaitServingCert(ctx context.Context, core *client) (*certificates.Manager, error) {
	if o.ServingCert.Secret == "" {
		return nil, nil
	}
	manager, err := certificates.New(o.ServingCert, core.config)
	if err != nil {
		return nil, err
	}
	return manager, cluster.Await(ctx, "the serving certificate", manager.Sync)
}
