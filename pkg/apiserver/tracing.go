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
	"cmp"
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"google.golang.org/grpc"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/component-base/tracing"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	baseversion "k8s.io/component-base/version"

	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"
)

// tracesFlushTimeout bounds how long a server that stops waits for the collector of its
// traces.
const tracesFlushTimeout = 2 * time.Second

// tracerProvider bounds the time of its shutdown. k8s.io/apiserver tries for ten seconds to send
// each batch of spans, and there can be several.
type tracerProvider struct {
	tracing.TracerProvider
}

// Shutdown sends the remaining spans, for at most tracesFlushTimeout.
// Upstream fault 58.
func (p tracerProvider) Shutdown(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, tracesFlushTimeout)
	defer cancel()
	return p.TracerProvider.Shutdown(ctx)
}

// tracingConfiguration reads the file of --tracing-config-file. It returns nil if none
// is named.
// Upstream fault 41.
func (o CompletedOptions) tracingConfiguration() (*tracingapi.TracingConfiguration, error) {
	if o.Traces.ConfigFile == "" {
		return nil, nil
	}
	configuration, err := genericoptions.ReadTracingConfiguration(o.Traces.ConfigFile)
	if err == nil {
		err = tracingapi.ValidateTracingConfiguration(configuration, o.FeatureGate(), nil).ToAggregate()
	}
	if err != nil {
		return nil, fmt.Errorf("--tracing-config-file %s can't be used: it must hold a TracingConfiguration of apiserver.config.k8s.io: %w", o.Traces.ConfigFile, err)
	}
	return configuration, nil
}

// serviceName names a server by its groups, or without any by its own name.
func serviceName(name string, groups []registry.Group) string {
	names := make([]string, 0, len(groups))
	for _, group := range groups {
		names = append(names, group.Name)
	}
	return cmp.Or(strings.Join(names, ","), name)
}

// applyTraces is TracingOptions.ApplyTo of k8s.io/apiserver, but names the service after its
// groups. k8s.io/apiserver has the same name for each API server, so that one could not be told
// from kube-apiserver in a trace of both.
// Upstream fault 59.
func (o CompletedOptions) applyTraces(ctx context.Context, config *genericapiserver.Config) error {
	configuration, err := o.tracingConfiguration()
	if err != nil || configuration == nil {
		return err
	}
	var exporter []otlptracegrpc.Option
	if config.EgressSelector != nil {
		dial, err := config.EgressSelector.Lookup(egressselector.ControlPlane.AsNetworkContext())
		if err != nil {
			return err
		}
		if dial != nil {
			exporter = append(exporter, otlptracegrpc.WithDialOption(grpc.WithContextDialer(
				func(ctx context.Context, address string) (net.Conn, error) { return dial(ctx, "tcp", address) })))
		}
	}
	provider, err := tracing.NewProvider(ctx, configuration, exporter, []resource.Option{
		resource.WithAttributes(
			semconv.ServiceName(serviceName(o.name, o.groups)),
			semconv.ServiceVersion(baseversion.Get().GitVersion),
			semconv.ServiceInstanceID(config.APIServerID),
		),
		// OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES.
		resource.WithFromEnv(),
	})
	if err != nil {
		return fmt.Errorf("--tracing-config-file %s can't be used: %w", o.Traces.ConfigFile, err)
	}
	config.TracerProvider = tracerProvider{provider}
	config.LoopbackClientConfig.Wrap(tracing.WrapperFor(config.TracerProvider))
	return nil
}
