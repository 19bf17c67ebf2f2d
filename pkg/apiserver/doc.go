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

// Package apiserver makes an API server of declared API groups, in steps that read top down:
//
//	options := apiserver.NewOptions("bakery", bakery.Group()) // and options.Flags()
//	completed, err := options.Complete()
//	errs := completed.Validate()
//	config, err := completed.Config(ctx)   // waits for the cluster, starts the embedded etcd
//	server, err := config.Complete().New() // creates the storage, starts nothing
//	err = server.Run(ctx)                  // serves until the context ends, stops etcd
//
// The steps are in options.go and flags.go, complete.go, validation.go, requirements.go with
// config.go, and server.go. The package server in pkg/cmd makes a command of them. That
// also configures the parts of a process, such as its log.
//
// The package knows no group in particular.
//
// # A request
//
// A connection is accepted by transport, which bounds connections by their IP address, and tells clients when the
// server stops. A request then passes these handlers:
//
//   - WithServerHeader names the server that answers.
//   - Handler counts the requests of a connection, and tells clients of a stopping
//     server to use others.
//   - WithRequestBounds refuses headers, paths, queries and timeouts that no client needs, leaves impersonation and
//     audit IDs to the front proxy, and ends the wait for bodies that do not come.
//   - WithRetryableErrors makes k8s.io/apiserver's texts for "later" a Status with Retry-After.
//   - DefaultBuildHandlerChain is k8s.io/apiserver's: panics, deadlines, authentication, audit,
//     impersonation, priority and fairness, authorization.
//   - WithGate reads the body of a client that may write, refuses one that costs too much, and bounds the memory of
//     large requests.
//   - WithoutProtobuf makes k8s.io/apiserver send objects without protobuf messages as JSON.
//   - WithShutdown ends streams when the server stops.
//   - WithCurrentOpenAPI serves the OpenAPI documents of the server's own groups.
//   - WithReferences lets admission add conditions to the transaction that stores the object.
//
// Package storage says what an object passes on its way to etcd.
package apiserver
