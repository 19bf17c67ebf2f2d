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

package controlplane

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
)

// Ranks order the stopping of components: higher ranks stop first.
const (
	rankEtcd = iota
	rankKubeAPIServer
	rankController
	rankServer
)

const (
	// frontProxyUser is the only name that lets kube-apiserver assert other users to extension servers.
	frontProxyUser = "front-proxy-client"

	serviceCIDR = "10.96.0.0/16"
	// kubernetesServiceIP is the first address of serviceCIDR. kube-apiserver gives it to its own Service.
	kubernetesServiceIP = "10.96.0.1"

	// advertiseAddress satisfies kube-apiserver, which refuses a loopback address. It belongs to no machine, and
	// nothing connects to it.
	advertiseAddress = "192.0.2.1"
)

// newEtcd adds an etcd. It accepts only client certificates of PKI.EtcdCA.
func (cp *ControlPlane) newEtcd(name string, config ComponentConfig) (*Component, error) {
	etcd, err := cp.newComponent(name, "etcd", rankEtcd, config)
	if err != nil {
		return nil, err
	}
	client, err := cp.PKI.ensure("etcd-client", cp.PKI.EtcdCA, Certificate{User: "etcd-client"})
	if err != nil {
		return nil, err
	}
	httpClient, err := cp.httpClient(etcd.host, &client)
	if err != nil {
		return nil, err
	}
	etcd.check = CheckURL(httpClient, etcd.URL()+"/readyz")
	etcd.args = func() ([]string, error) {
		serving, err := cp.serving(etcd)
		if err != nil {
			return nil, err
		}
		// There are no peers. A socket in the working directory saves a port. etcd 3.6 requires a number in its name.
		const peer = "unix://peer:1"
		return []string{
			"--name=" + name,
			"--data-dir=data",
			"--listen-client-urls=" + etcd.URL(),
			"--advertise-client-urls=" + etcd.URL(),
			"--listen-peer-urls=" + peer,
			"--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + name + "=" + peer,
			"--cert-file=" + serving.cert,
			"--key-file=" + serving.key,
			"--client-cert-auth=true",
			"--trusted-ca-file=" + cp.PKI.EtcdCA.File,
		}, nil
	}
	return etcd, nil
}

// NewKubeAPIServer adds another kube-apiserver, which uses the control plane's etcd at a URL. It is not started.
func (cp *ControlPlane) NewKubeAPIServer(name, etcdURL string, config ComponentConfig) (*Component, error) {
	server, err := cp.newComponent(name, kubeAPIServerName, rankKubeAPIServer, config)
	if err != nil {
		return nil, err
	}
	// When it is stopped, it ends watches of its own kinds at once. For watches that it passes on to another server it
	// waits a minute.
	server.lingers = true
	// Flags can forbid anonymous requests.
	client, err := cp.PKI.ensure("probe", cp.PKI.ClientCA, Certificate{User: "probe", Groups: []string{"system:masters"}})
	if err != nil {
		return nil, err
	}
	probe, err := cp.httpClient(server.host, &client)
	if err != nil {
		return nil, err
	}
	server.check = CheckURL(probe, server.URL()+"/readyz")
	server.args = func() ([]string, error) {
		serving, err := cp.serving(server, "kubernetes", "kubernetes.default", "kubernetes.default.svc", kubernetesServiceIP)
		if err != nil {
			return nil, err
		}
		proxy, err := cp.PKI.ensure("front-proxy-client", cp.PKI.FrontProxyCA, Certificate{User: frontProxyUser})
		if err != nil {
			return nil, err
		}
		storage, err := cp.etcdFlags(etcdURL)
		if err != nil {
			return nil, err
		}
		return append(storage,
			"--bind-address="+server.host.Address(),
			fmt.Sprintf("--secure-port=%d", server.port),
			"--advertise-address="+advertiseAddress,
			// Nobody uses the endpoints of the Service "kubernetes" here.
			"--endpoint-reconciler-type=none",
			"--tls-cert-file="+serving.cert,
			"--tls-private-key-file="+serving.key,
			"--client-ca-file="+cp.PKI.ClientCA.File,
			"--authorization-mode=Node,RBAC",
			"--requestheader-client-ca-file="+cp.PKI.FrontProxyCA.File,
			"--requestheader-allowed-names="+frontProxyUser,
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-uid-headers=X-Remote-Uid",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file="+proxy.cert,
			"--proxy-client-key-file="+proxy.key,
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file="+cp.PKI.serviceAccountKey,
			"--service-account-signing-key-file="+cp.PKI.serviceAccountKey,
			"--service-cluster-ip-range="+serviceCIDR,
			// Without this flag, it waits for watches of its own kinds, too.
			"--shutdown-watch-termination-grace-period=1s",
		), nil
	}
	return server, nil
}

func (cp *ControlPlane) newControllerManager(config ComponentConfig) (*Component, error) {
	manager, err := cp.newComponent(controllerManagerName, controllerManagerName, rankController, config)
	if err != nil {
		return nil, err
	}
	probe, err := cp.httpClient(manager.host, nil)
	if err != nil {
		return nil, err
	}
	manager.check = CheckURL(probe, manager.URL()+"/healthz")
	manager.args = func() ([]string, error) {
		serving, err := cp.serving(manager)
		if err != nil {
			return nil, err
		}
		kubeconfig, err := cp.kubeconfigFor("system:kube-controller-manager", nil, "")
		if err != nil {
			return nil, err
		}
		return []string{
			"--kubeconfig=" + kubeconfig,
			"--authentication-kubeconfig=" + kubeconfig,
			"--authorization-kubeconfig=" + kubeconfig,
			"--bind-address=" + manager.host.Address(),
			fmt.Sprintf("--secure-port=%d", manager.port),
			"--tls-cert-file=" + serving.cert,
			"--tls-private-key-file=" + serving.key,
			"--leader-elect=false",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file=" + cp.PKI.serviceAccountKey,
			"--root-ca-file=" + cp.PKI.ServingCA.File,
		}, nil
	}
	return manager, nil
}

// NewAPIServer adds one more process of an API server, for instance a second replica, or one with other flags. It is
// not started, and kube-apiserver sends it requests only after Register.
func (cp *ControlPlane) NewAPIServer(name string, config ServerConfig) (*Component, error) {
	server, err := cp.newComponent(name, apiServerName, rankServer, config.ComponentConfig)
	if err != nil {
		return nil, err
	}
	if config.Etcd != "" && cp.Component(config.Etcd) == nil {
		if _, err := cp.newEtcd(config.Etcd, ComponentConfig{}); err != nil {
			return nil, err
		}
	}
	probe, err := cp.httpClient(server.host, nil)
	if err != nil {
		return nil, err
	}
	if server.ownCertificate = config.OwnCertificate; server.ownCertificate {
		// A test has to check itself that kube-apiserver trusts the certificate.
		probe = &http.Client{Transport: &http.Transport{
			DialContext: server.host.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true,
		}}
	}
	server.run = config.Run
	server.check = CheckURL(probe, server.URL()+"/readyz")
	server.args = func() ([]string, error) {
		if err := cp.manifests.complete(); err != nil {
			return nil, err
		}
		var certificate []string
		if !config.OwnCertificate {
			serving, err := cp.serving(server, cp.manifests.serviceHost())
			if err != nil {
				return nil, err
			}
			certificate = []string{"--tls-cert-file=" + serving.cert, "--tls-private-key-file=" + serving.key}
		}
		kubeconfig := config.Kubeconfig
		if kubeconfig == "" {
			var err error
			// The server is no administrator, so that it works only if the manifests grant all it needs.
			user, groups := cp.manifests.identity()
			if kubeconfig, err = cp.kubeconfigFor(user, groups, ""); err != nil {
				return nil, err
			}
		}
		storage := []string{"--data-dir=" + filepath.Join(server.dir, "data")}
		if config.Etcd != "" {
			var err error
			if storage, err = cp.etcdFlags(cp.Component(config.Etcd).URL()); err != nil {
				return nil, err
			}
		}
		return slices.Concat(storage, certificate, []string{
			"--bind-address=" + server.host.Address(),
			fmt.Sprintf("--secure-port=%d", server.port),
			"--kubeconfig=" + kubeconfig,
		}), nil
	}
	return server, nil
}

// serving returns a component's serving certificate.
func (cp *ControlPlane) serving(component *Component, names ...string) (pair, error) {
	return cp.PKI.ensure(component.name, cp.PKI.ServingCA,
		Certificate{User: component.name, Hosts: append(names, "localhost", component.host.Address())})
}

// etcdFlags returns the flags of an API server for an etcd at a URL.
func (cp *ControlPlane) etcdFlags(url string) ([]string, error) {
	client, err := cp.PKI.ensure("etcd-client", cp.PKI.EtcdCA, Certificate{User: "etcd-client"})
	if err != nil {
		return nil, err
	}
	return []string{
		"--etcd-servers=" + url,
		"--etcd-cafile=" + cp.PKI.ServingCA.File,
		"--etcd-certfile=" + client.cert,
		"--etcd-keyfile=" + client.key,
	}, nil
}

// EtcdTLS returns a client configuration for the control plane's etcds.
func (cp *ControlPlane) EtcdTLS() (*tls.Config, error) {
	issued, err := cp.PKI.EtcdCA.Issue(Certificate{User: "test"})
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(issued.Cert, issued.Key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: cp.PKI.ServingCA.Pool(), Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}, nil
}

// httpClient returns a client on the host that trusts the components. It presents the given certificate, if any.
func (cp *ControlPlane) httpClient(host Host, client *pair) (*http.Client, error) {
	config := &tls.Config{RootCAs: cp.PKI.ServingCA.Pool()}
	if client != nil {
		certificate, err := tls.LoadX509KeyPair(client.cert, client.key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{certificate}
	}
	// Kept connections would be dead after a restart of the component.
	return &http.Client{Transport: &http.Transport{DialContext: host.DialContext, TLSClientConfig: config, DisableKeepAlives: true}}, nil
}
