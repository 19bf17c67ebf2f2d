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
	"bufio"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

const progressPath = machinesPath + "/drill/progress"

// follow returns the lines about the machine.
func follow(t *testing.T, config *rest.Config) *bufio.Scanner {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, config.Host+progressPath+"?follow=true&timeoutSeconds=3600", http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	t.Cleanup(func() { response.Body.Close() })
	require.Equal(t, http.StatusOK, response.StatusCode)
	return bufio.NewScanner(response.Body)
}

func requireLine(t *testing.T, lines *bufio.Scanner, want string) {
	t.Helper()
	require.True(t, lines.Scan(), "The stream has ended: %v", lines.Err())
	require.Equal(t, want, lines.Text())
}

// A server that stops tells followers of streams, and waits until they know.
func TestStreamsEndWithTheServer(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false", "--max-watches-per-user=2")
	create(t, server.ClientConfig, "drill")
	streams := []*bufio.Scanner{follow(t, server.ClientConfig), follow(t, server.ClientConfig)}
	for _, lines := range streams {
		requireLine(t, lines, "0 of 2 run")
	}
	status, answered := answer(t, server.ClientConfig, progressPath+"?follow=true")
	require.Equal(t, http.StatusTooManyRequests, answered.code)
	require.Contains(t, status.Message, "too many watches and streams for user")

	_, err := machines(t, server.ClientConfig).Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "workshop.example.com/v1", "kind": "Run", "metadata": map[string]any{"name": "drill"}, "spec": map[string]any{"count": int64(1)},
	}}, metav1.CreateOptions{}, "run")
	require.NoError(t, err)
	stopped := make(chan error, 1)
	for _, lines := range streams {
		requireLine(t, lines, "1 of 2 run")
	}
	go func() { stopped <- server.Stop() }()
	for _, lines := range streams {
		requireLine(t, lines, "the server is shutting down")
		require.False(t, lines.Scan(), "There is more: %q", lines.Text())
		require.NoError(t, lines.Err(), "The stream was cut off.")
	}
	require.NoError(t, <-stopped)
}
