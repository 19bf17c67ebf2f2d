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

// Package apiservices tests what "kubectl apiservices" finds in a cluster with servers of a few lines,
// each with a fault, and three that are healthy: this one, k8s.io/sample-apiserver and metrics-server.
//
// Each has a Service, a Deployment, and a pod that nobody runs. The Service's cluster IP is a
// loopback address, where the test listens in place of kube-proxy.
package apiservices

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

var cp *controlplane.ControlPlane

func TestMain(m *testing.M) {
	flag.Parse()
	claim, err := claimNetwork()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer claim.Close()
	controlplane.Main(m, &cp, controlplane.Config{
		KubeAPIServer: controlplane.ComponentConfig{Flags: []string{"--service-cluster-ip-range=" + network + ".0.0/16"}},
		ControllerManager: controlplane.ComponentConfig{Flags: []string{
			"--controllers=endpointslice-controller,namespace-controller,horizontal-pod-autoscaler-controller", "--horizontal-pod-autoscaler-sync-period=1s", "--cluster-cidr=192.0.2.0/24",
		}},
		APIServer: controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
	}, start)
}

// server is one of those that are examined.
type server struct {
	namespace, name, account, group string
	versions                        []string
	// number is the end of the addresses of the server's Service and pod.
	number    int
	component *controlplane.Component
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

var (
	ours    = &server{namespace: "restaurant-system", name: "apiserver", account: "apiserver", group: "restaurant.programming-kubernetes.info", versions: []string{"v1", "v1beta1", "v1alpha1"}, number: 11}
	sample  = &server{namespace: "wardle", name: "api", account: "apiserver", group: "wardle.example.com", versions: []string{"v1beta1", "v1alpha1"}, number: 12}
	metrics = &server{namespace: "kube-system", name: "metrics-server", account: "metrics-server", group: "metrics.k8s.io", versions: []string{"v1beta1"}, number: 13}
)

// servers are those that run: of others, only the long tests.
func servers() []*server {
	if testing.Short() {
		return []*server{ours}
	}
	return []*server{ours, sample, metrics}
}

func (s *server) clusterIP() string { return fmt.Sprintf("%s.0.%d", network, s.number) }

func (s *server) podIP() string { return fmt.Sprintf("192.0.2.%d", s.number) }

// apiService is the name of the first APIService.
func (s *server) apiService() string { return s.versions[0] + "." + s.group }

func (s *server) host() string { return s.name + "." + s.namespace + ".svc" }

// start starts the servers and registers them.
func start(ctx context.Context, cp *controlplane.ControlPlane) error {
	if err := cp.Install(ctx); err != nil {
		return err
	}
	ours.component = cp.APIServer
	if !testing.Short() {
		if err := newOthers(cp); err != nil {
			return err
		}
	}
	for _, server := range servers() {
		manifest := filepath.Join(cp.KubeAPIServer.Dir(), server.name+".yaml")
		if err := os.WriteFile(manifest, []byte(server.manifests(cp.PKI.ServingCA.CertPEM())), 0o600); err != nil {
			return err
		}
		if err := cp.Apply(ctx, manifest); err != nil {
			return err
		}
		if err := server.component.Launch(); err != nil {
			return err
		}
		if err := errors.Join(server.relay(), server.report(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// relay passes connections to the Service's address on to the server, as kube-proxy does.
func (s *server) relay() error {
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", s.clusterIP(), port))
	if err != nil {
		return err
	}
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", s.component.Port()))
			if err != nil {
				_ = client.Close()
				continue
			}
			go pass(client, server)
			go pass(server, client)
		}
	}()
	return nil
}

// newOthers prepares the servers that other people wrote. "make test-apiservices" builds them.
func newOthers(cp *controlplane.ControlPlane) (err error) {
	for _, server := range []*server{sample, metrics} {
		kubeconfig, err := cp.KubeconfigFor("system:serviceaccount:"+server.namespace+":"+server.account, "system:serviceaccounts", "system:serviceaccounts:"+server.namespace)
		if err != nil {
			return err
		}
		config := controlplane.ComponentConfig{
			Binary: filepath.Join(os.Getenv(controlplane.BinDirVariable), map[string]string{"api": "sample-apiserver", "metrics-server": "metrics-server"}[server.name]),
			Flags:  []string{"--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig},
		}
		if server == metrics {
			config.Flags = append(config.Flags, "--kubelet-insecure-tls")
			server.component, err = cp.NewWebhook("metrics-server", controlplane.WebhookConfig{
				ComponentConfig: config,
				Service:         types.NamespacedName{Namespace: server.namespace, Name: server.name}, Account: types.NamespacedName{Namespace: server.namespace, Name: server.account},
			})
		} else {
			issued, issue := cp.PKI.ServingCA.Issue(controlplane.Certificate{Hosts: []string{server.host(), "127.0.0.1"}})
			cert, key := filepath.Join(cp.KubeAPIServer.Dir(), "sample.crt"), filepath.Join(cp.KubeAPIServer.Dir(), "sample.key")
			if err := errors.Join(issue, os.WriteFile(cert, issued.Cert, 0o600), os.WriteFile(key, issued.Key, 0o600)); err != nil {
				return err
			}
			config.Flags = append(config.Flags, "--tls-cert-file="+cert, "--tls-private-key-file="+key)
			server.component, err = cp.NewAPIServer("sample-apiserver", controlplane.ServerConfig{ComponentConfig: config, Etcd: "etcd", Kubeconfig: kubeconfig})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
