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
	"errors"
	"fmt"
	goruntime "runtime"

	"k8s.io/apimachinery/pkg/runtime"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/filters"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/storage"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/transport"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// Server serves API groups.
type Server struct {
	// Generic is k8s.io/apiserver's server, for hooks and health checks.
	Generic *genericapiserver.GenericAPIServer

	connections *transport.Connections
	// etcd is nil if it does not run inside this server.
	etcd *etcd.Etcd
	// close stops what the server depends on.
	close func() error
}

// New creates the storage of every group and installs it. If it can't, it closes the config.
func (c CompletedConfig) New() (*Server, error) {
	generic, err := c.newGeneric()
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return &Server{generic, c.connections, c.etcd, c.Close}, nil
}

func (c CompletedConfig) newGeneric() (*genericapiserver.GenericAPIServer, error) {
	generic, err := c.newBase()
	if err != nil {
		return nil, err
	}
	parameters := runtime.NewParameterCodec(c.Scheme)
	var groups []*genericapiserver.APIGroupInfo
	for _, group := range c.Groups {
		info := genericapiserver.NewDefaultAPIGroupInfo(group.Name, c.Scheme, parameters, c.Codecs)
		if info.NegotiatedSerializer, err = group.Serializer(c.Scheme, info.NegotiatedSerializer); err != nil {
			return nil, err
		}
		info.NegotiatedSerializer = filters.BoundObjects(info.NegotiatedSerializer, c.Bounds)
		beside := c.Runtimes[group.Name]
		beside.Authorizer = c.generic.Authorization.Authorizer
		if info.VersionedResourcesStorageMap, err = group.Storage(c.Scheme, c.generic.RESTOptionsGetter, beside); err != nil {
			return nil, err
		}
		groups = append(groups, &info)
	}
	// At once, as k8s.io/apiserver builds the models for server-side apply for each call.
	if err := generic.InstallAPIGroups(groups...); err != nil {
		return nil, err
	}
	if len(groups) > 0 {
		if err := generic.AddReadyzChecks(storageReadiness(groups)); err != nil {
			return nil, err
		}
	}
	if err := c.streams.Install(generic); err != nil {
		return nil, err
	}
	if c.etcd != nil {
		storage.PublishQuota(c.Name, c.embeddedEtcd)
	}
	if err := startInformers(generic, c.Runtimes); err != nil {
		return nil, err
	}
	if c.RunControllers && len(c.Groups) > 0 {
		controllers, err := newControllers(c.Runtimes, c.LeaderElection, c.Generic.ClientConfig)
		if err != nil {
			return nil, err
		}
		if err := controllers.install(generic); err != nil {
			return nil, err
		}
	}
	return generic, nil
}

// newBase makes the server that the groups are installed on.
func (c CompletedConfig) newBase() (*genericapiserver.GenericAPIServer, error) {
	if c.base == nil {
		return c.generic.New(c.Name, genericapiserver.NewEmptyDelegate())
	}
	return c.base.New(c.Config)
}

// startInformers makes the server start the informers of the groups, and be ready when
// they have synced.
func startInformers(server *genericapiserver.GenericAPIServer, runtimes map[string]registry.Runtime) error {
	for name, group := range runtimes {
		if err := server.AddReadyzChecks(healthz.NamedCheck("informer-sync-"+name, healthz.NewInformerSyncHealthz(group.Informers).Check)); err != nil {
			return err
		}
	}
	return server.AddPostStartHook("start-informers", func(hook genericapiserver.PostStartHookContext) error {
		for _, group := range runtimes {
			group.Informers.Start(hook.Done())
		}
		return nil
	})
}

// headroom is how many bytes more a server allocates before its garbage is collected. They are never written, so that they
// are not resident by themselves. A server with few objects collects every few hundred requests otherwise.
const headroom = 48 << 20

// Run serves until the context ends and all requests are answered, and then stops what the
// server depends on. If the context has a cause of its own, that is the error.
func (s *Server) Run(ctx context.Context) (err error) {
	// The server is the last user of what it depends on.
	defer func() { err = errors.Join(err, s.close()) }()
	defer goruntime.KeepAlive(make([]byte, headroom))
	ctx = s.whileEtcdRuns(ctx)
	s.connections.Start(ctx, s.Generic)
	prepared := s.Generic.PrepareRun()
	filters.KeepOwnOpenAPI(s.Generic)
	if err := prepared.RunWithContext(ctx); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != ctx.Err() { //nolint:errorlint // A cause may wrap the context's error and say more.
		return cause
	}
	return nil
}

// whileEtcdRuns returns a context that also ends when the embedded etcd has stopped, with
// that cause.
func (s *Server) whileEtcdRuns(ctx context.Context) context.Context {
	if s.etcd == nil {
		return ctx
	}
	ctx, fail := context.WithCancelCause(ctx)
	go func() {
		select {
		case err := <-s.etcd.Err():
			fail(fmt.Errorf("the embedded etcd has stopped: %w", err))
		case <-ctx.Done():
		}
	}()
	return ctx
}
