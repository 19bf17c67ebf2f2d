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
	"strings"

	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
)

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

// UserAgent is the library's with the name of the server in place of the program's.
func UserAgent(name string) string {
	_, version, _ := strings.Cut(rest.DefaultKubernetesUserAgent(), "/")
	return name + "/" + version
}
