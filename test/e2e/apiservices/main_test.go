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

// Package apiservices tests what "kubectl apiservices" finds in a cluster with servers of a few lines, each with a fault.
//
// Each has a Service, a Deployment, and a pod that nobody runs. The Service's cluster IP is a
// loopback address, where the test listens in place of kube-proxy.
package apiservices

import (
	"context"
	"fmt"
	"net"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

var cp *controlplane.ControlPlane

func TestMain(m *testing.M) {
	claim, err := claimNetwork()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer claim.Close()
	controlplane.Main(m, &cp, controlplane.Config{
		KubeAPIServer:     controlplane.ComponentConfig{Flags: []string{"--service-cluster-ip-range=" + network + ".0.0/16"}},
		ControllerManager: controlplane.ComponentConfig{Flags: []string{"--controllers=endpointslice-controller,namespace-controller", "--cluster-cidr=192.0.2.0/24"}},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
	}, func(ctx context.Context, cp *controlplane.ControlPlane) error {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Spec: corev1.NodeSpec{PodCIDR: "192.0.2.0/24"}}
		_, err := kubernetes.NewForConfigOrDie(cp.RESTConfig()).CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
}

// Service ports are the same for all.
const port = 8443

// network begins the loopback addresses of this run's Services.
var network string

// claimNetwork sets network to one that no other run on this machine uses until the claim is closed.
func claimNetwork() (claim net.Listener, err error) {
	for n := 96; n < 128; n++ {
		network = fmt.Sprintf("127.%d", n)
		if claim, err = net.Listen("tcp", fmt.Sprintf("%s.0.1:%d", network, port)); err == nil {
			return claim, nil
		}
	}
	return nil, err
}
