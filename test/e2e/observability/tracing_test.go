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

package observability

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// traceCollector receives spans by OTLP, as collectors do.
type traceCollector struct {
	collectorpb.UnimplementedTraceServiceServer
	address string

	mu    sync.Mutex
	spans []span
}

// span is what matters of one here.
type span struct {
	service, name, target string
	trace, id, parent     string
}

func newTraceCollector(t *testing.T) *traceCollector {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	collector := &traceCollector{address: listener.Addr().String()}
	server := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(server, collector)
	t.Cleanup(server.Stop)
	go func() { _ = server.Serve(listener) }()
	return collector
}

// Export takes spans.
func (c *traceCollector) Export(_ context.Context, request *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range request.GetResourceSpans() {
		var service string
		for _, attribute := range resource.GetResource().GetAttributes() {
			if attribute.GetKey() == "service.name" {
				service = attribute.GetValue().GetStringValue()
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, received := range scope.GetSpans() {
				span := span{
					service: service,
					name:    received.GetName(),
					trace:   hex.EncodeToString(received.GetTraceId()),
					id:      hex.EncodeToString(received.GetSpanId()),
					parent:  hex.EncodeToString(received.GetParentSpanId()),
				}
				for _, attribute := range received.GetAttributes() {
					switch attribute.GetKey() {
					case "url.full", "http.target":
						span.target = attribute.GetValue().GetStringValue()
					}
				}
				c.spans = append(c.spans, span)
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

// of returns the spans that have arrived of a trace, by their ids.
func (c *traceCollector) of(trace string) map[string]span {
	c.mu.Lock()
	defer c.mu.Unlock()
	spans := map[string]span{}
	for _, span := range c.spans {
		if span.trace == trace {
			spans[span.id] = span
		}
	}
	return spans
}

// callers returns the services through which a span was reached, without repetitions,
// its own first, and the span that everything began with.
func callers(spans map[string]span, of span) (services []string, beginning string) {
	for {
		if len(services) == 0 || services[len(services)-1] != of.service {
			services = append(services, of.service)
		}
		parent, ok := spans[of.parent]
		if !ok {
			return services, of.parent
		}
		of = parent
	}
}

func tracingConfig(t *testing.T, collector *traceCollector, perMillion int) string {
	t.Helper()
	return framework.File(t, fmt.Sprintf(`apiVersion: apiserver.config.k8s.io/v1
kind: TracingConfiguration
endpoint: %s
samplingRatePerMillion: %d
`, collector.address, perMillion))
}

// sendTraced sends a request as part of a trace and returns the code of the answer.
func sendTraced(t *testing.T, config *rest.Config, trace, method, path, body string) int {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), method, config.Host+path, strings.NewReader(body))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Traceparent", "00-"+trace+"-"+clientSpan+"-01")
	response, err := client.Do(request)
	require.NoError(t, err)
	require.NoError(t, response.Body.Close())
	return response.StatusCode
}

// clientSpan is the span of a client that a trace begins with.
const clientSpan = "00f067aa0ba902b7"

// One trace shows a request on its way through all servers, each under its own name.
func TestTraces(t *testing.T) {
	framework.Long(t, "traces are collected from all servers")
	t.Parallel()
	collector := newTraceCollector(t)
	tracing := controlplane.ComponentConfig{Flags: []string{"--tracing-config-file=" + tracingConfig(t, collector, 1e6)}}
	cp := controlplane.ForTest(t, controlplane.Config{
		KubeAPIServer:     tracing,
		ControllerManager: controlplane.ComponentConfig{Off: true},
		APIServer:         controlplane.ServerConfig{ComponentConfig: controlplane.ComponentConfig{Off: true}},
	})
	require.NoError(t, cp.Install(t.Context()))
	server := framework.NewServer(t, cp, controlplane.ServerConfig{Etcd: "traced", ComponentConfig: tracing})
	etcd := cp.Component("traced")
	etcd.SetFlags("--enable-distributed-tracing=true", "--distributed-tracing-address="+collector.address)
	require.NoError(t, etcd.Start(t.Context()))
	require.NoError(t, server.Start(t.Context()))
	require.NoError(t, cp.Register(t.Context(), server))

	admin := framework.AdminConfig(t, cp, cp.KubeAPIServer)
	const toppings = framework.GroupPath + "/v1/toppings"
	t.Run("from kube-apiserver to etcd", func(t *testing.T) {
		const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
		require.Equal(t, http.StatusCreated, sendTraced(t, admin, trace, "POST", toppings, `{"metadata":{"name":"basil"},"spec":{"cost":"1"}}`))
		controlplane.Eventually(t, func() error {
			spans := collector.of(trace)
			for _, span := range spans {
				services, beginning := callers(spans, span)
				call := spans[span.parent]
				if span.service == "etcd" && call.service == restaurant.GroupName && call.name == "etcdserverpb.KV/Txn" && strings.Join(services, " ") == "etcd "+restaurant.GroupName+" apiserver" && beginning == clientSpan {
					return nil
				}
			}
			return fmt.Errorf("there is no way from etcd through the server and kube-apiserver to the client in %v", spans)
		})
	})
	t.Run("admission's reads from the server itself", func(t *testing.T) {
		const trace = "5bf92f3577b34da6a3ce929d0e0e4736"
		require.Equal(t, http.StatusOK, sendTraced(t, admin, trace, "DELETE", toppings+"/basil", ""))
		controlplane.Eventually(t, func() error {
			for _, span := range collector.of(trace) {
				if span.service == restaurant.GroupName && strings.HasPrefix(span.target, framework.GroupPath+"/v1/pizzas") {
					return nil
				}
			}
			return fmt.Errorf("the list of pizzas that use the topping is not in %v", collector.of(trace))
		})
	})
}
