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

package konnectivity

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// observer is told by a server with these flags what that does. It is where webhooks are.
type observer struct {
	flags  []string
	called chan struct{}
}

func newObserver() observer { return observer{called: make(chan struct{}, 1)} }

func (o observer) call() {
	select {
	case o.called <- struct{}{}:
	default: // Once is enough.
	}
}

func (o observer) requireCalled(t *testing.T) {
	t.Helper()
	select {
	case <-o.called:
	case <-time.After(controlplane.Patience):
		require.Fail(t, "The server does not get through.")
	}
}

// collectSpans is by OTLP, as far as to see what is asked for.
func (c *cluster) collectSpans(t *testing.T) observer {
	t.Helper()
	o := newObserver()
	collector := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		if method, _ := grpc.MethodFromServerStream(stream); method == "/opentelemetry.proto.collector.trace.v1.TraceService/Export" {
			o.call()
		}
		return status.Error(codes.Unimplemented, "not here")
	}))
	listener, err := c.webhook.Listen("tcp", net.JoinHostPort(c.webhook.Address(), "0"))
	require.NoError(t, err)
	go func() { _ = collector.Serve(listener) }()
	t.Cleanup(collector.Stop)
	config := filepath.Join(t.TempDir(), "tracing.yaml")
	writeFile(t, config, fmt.Appendf(nil, "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nendpoint: %s\nsamplingRatePerMillion: 1000000\n", listener.Addr()))
	o.flags = []string{"--tracing-config-file=" + config}
	return o
}
