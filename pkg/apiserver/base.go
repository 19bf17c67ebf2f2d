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

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapiserver "k8s.io/apiserver/pkg/server"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kube-openapi/pkg/common"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// Base adds APIs to a server that are not groups in Go. The groups are installed on the
// library's server that New makes. The APIs of both share authentication, authorization,
// admission, audit, bounds and the life cycle. All fields are required.
type Base struct {
	// Scheme and OpenAPI describe the types of k8s.io/apiserver's server.
	Scheme  *runtime.Scheme
	OpenAPI common.GetOpenAPIDefinitions
	// AddFlags adds the flags of the base to the sections of --help.
	AddFlags func(*cliflag.NamedFlagSets)
	// Validate returns everything that is wrong with them.
	Validate func() []error
	// Groups returns the names of the API groups whose objects it stores, once flags are
	// parsed.
	Groups func() []string
	// Reads are the cluster's resources that the server needs permission to list and watch
	// before it starts. ReadsFix says how to grant it.
	Reads    []schema.GroupResource
	ReadsFix string
	// Permissions are further permissions that the server needs in the cluster.
	Permissions []cluster.Permission
	// New makes k8s.io/apiserver's server from a complete config, which it does not change.
	New func(*Config) (*genericapiserver.GenericAPIServer, error)
	// Stores returns where and how the objects are stored, for tools. The config has only the
	// parts that concern etcd, and the configuration of clients. The caller sets Encryption.
	Stores func(context.Context, *Config) ([]keys.Objects, error)
}
