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

package testing

import (
	"context"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/sets"
)

// collector receives spans by OTLP, and remembers the services that sent them.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer

	mu       sync.Mutex
	services sets.Set[string]
}

func (c *collector) Export(_ context.Context, request *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		for _, attribute := range resource.GetResource().GetAttributes() {
			if attribute.GetKey() == "service.name" {
				c.services.Insert(attribute.GetValue().GetStringValue())
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// Traces name the server by its groups, and a server that stops sends what it has sampled.
func TestTraces(t *testing.T) {
	t.Parallel()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	received := &collector{services: sets.New[string]()}
	grpcServer := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(grpcServer, received)
	t.Cleanup(grpcServer.Stop)
	go func() { _ = grpcServer.Serve(listener) }()

	config := file(t, "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: 1000000\nendpoint: "+listener.Addr().String()+"\n")
	server := start(t, "--tracing-config-file="+config, "--run-controllers=false")
	create(t, server.ClientConfig, "drill")
	require.NoError(t, server.Stop())
	received.mu.Lock()
	defer received.mu.Unlock()
	require.Equal(t, sets.New("workshop.example.com"), received.services)
}
