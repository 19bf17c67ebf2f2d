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

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"

	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

const (
	baseBuild = "base"
	headBuild = "head"
)

// setUpBuilds starts two builds of the server, each with objects of its own in one etcd. The
// clients are a front proxy that asserts an ordinary user, so that the servers do what they do
// behind kube-apiserver.
func setUpBuilds(ctx context.Context, dir, base string) (_ *bench, err error) {
	b, err := start(ctx, dir, withoutControllers)
	if err != nil {
		return nil, err
	}
	cp := b.cp
	defer func() {
		if err != nil {
			err = errors.Join(err, cp.Stop())
		}
	}()
	if base, err = filepath.Abs(base); err != nil {
		return nil, err
	}
	for _, build := range []struct{ name, binary string }{{baseBuild, base}, {headBuild, ""}} {
		server, err := cp.NewAPIServer(build.name, controlplane.ServerConfig{Etcd: "etcd", ComponentConfig: controlplane.ComponentConfig{
			Binary: build.binary, Flags: []string{withoutControllers, "--etcd-prefix=/" + build.name},
		}})
		if err != nil {
			return nil, err
		}
		if err := server.Start(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", build.name, err)
		}
		direct := cp.RESTConfig()
		direct.Host = server.URL()
		client, err := versioned.NewForConfig(direct)
		if err != nil {
			return nil, err
		}
		if err := fixture.CreateToppings(ctx, client, "mozzarella"); err != nil {
			return nil, err
		}
		b.contenders = append(b.contenders, &contender{
			name: build.name, group: restaurant.GroupName, version: "v1", otherVersion: "v1alpha1", resource: "pizzas", kind: "Pizza",
			content: pizzaContent, protobuf: true, server: server, host: server.URL(), revision: map[string]string{},
		})
	}
	if err := b.bind(ctx); err != nil {
		return nil, err
	}
	b.user, err = b.frontProxy(cp.APIServer, editor)
	return b, err
}

// frontProxy is the configuration of a front proxy that asserts a user.
func (b *bench) frontProxy(at *controlplane.Component, user string) (*rest.Config, error) {
	pair, err := b.cp.PKI.FrontProxyCA.Issue(controlplane.Certificate{User: "front-proxy-client"})
	if err != nil {
		return nil, err
	}
	config := rest.AnonymousClientConfig(b.cp.RESTConfig())
	config.Host, config.QPS = at.URL(), -1
	config.CertData, config.KeyData = pair.Cert, pair.Key
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			request = request.Clone(request.Context())
			request.Header["X-Remote-User"], request.Header["X-Remote-Group"] = []string{user}, []string{"system:authenticated"}
			return next.RoundTrip(request)
		})
	})
	return config, nil
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }
