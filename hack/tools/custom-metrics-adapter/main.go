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

// Command custom-metrics-adapter is the adapter from the tests of custom-metrics-apiserver. Its main
// package accepts values of metrics on all addresses. This one starts with a value.
package main

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/emicklei/go-restful/v3"
	"sigs.k8s.io/custom-metrics-apiserver/pkg/cmd"
	fake "sigs.k8s.io/custom-metrics-apiserver/test-adapter/provider"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	adapter := &cmd.AdapterBase{Name: "custom-metrics-adapter"}
	if err := adapter.Flags().Parse(os.Args); err != nil {
		return err
	}
	client, err := adapter.DynamicClient()
	if err != nil {
		return err
	}
	mapper, err := adapter.RESTMapper()
	if err != nil {
		return err
	}
	metrics, writer := fake.NewFakeProvider(client, mapper)
	value := httptest.NewRequestWithContext(ctx, http.MethodPost, "/write-metrics/namespaces/default/services/kubernetes/requests", strings.NewReader(`"300"`))
	value.Header.Set("Content-Type", "application/json")
	restful.NewContainer().Add(writer).ServeHTTP(httptest.NewRecorder(), value)
	adapter.WithCustomMetrics(metrics)
	adapter.WithExternalMetrics(metrics)
	return adapter.Run(ctx)
}
