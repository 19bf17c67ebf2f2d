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

package operations

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// A server that stops tells the followers of streams, has clients use other connections, and answers the requests that
// have begun.
func TestStop(t *testing.T) {
	t.Parallel()
	server := framework.NewServer(t, cp, framework.Flags("--run-controllers=false", "--shutdown-delay-duration=1s"))
	require.NoError(t, server.Start(t.Context()))
	framework.Stock(t, cp, server)
	_, err := framework.ClientAt(t, cp, server).RestaurantV1().Pizzas("default").Create(t.Context(), framework.Pizza("margherita"), metav1.CreateOptions{})
	require.NoError(t, err)
	admin := framework.AdminConfig(t, cp, server)
	client := framework.HTTPClient(t, admin)
	stream, err := client.Get(admin.Host + framework.PizzasPath + "/margherita/track?follow=true&timeoutSeconds=3600")
	require.NoError(t, err)
	defer stream.Body.Close()
	lines := bufio.NewScanner(stream.Body)
	require.True(t, lines.Scan(), "%v", lines.Err())
	require.Equal(t, "0 of 1 baked", lines.Text())

	body, sender := io.Pipe()
	begun, created := make(chan struct{}), make(chan int, 1)
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(begun) }})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, admin.Host+framework.PizzasPath, body)
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Expect", "100-continue")
	go func() {
		response, err := client.Do(request)
		if assert.NoError(t, err) {
			assert.NoError(t, response.Body.Close())
			created <- response.StatusCode
		}
		close(created)
	}()
	<-begun

	secure, err := rest.TLSConfigFor(admin)
	require.NoError(t, err)
	other := http.Client{Transport: &http.Transport{TLSClientConfig: secure}} // It speaks HTTP/1.1.
	stopped := make(chan error, 1)
	go func() { stopped <- server.Stop() }()
	controlplane.Eventually(t, func() error {
		response, err := other.Get(admin.Host + "/livez")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		if !response.Close {
			return errors.New("the client is to use its connection again")
		}
		return nil
	})
	require.True(t, lines.Scan(), "%v", lines.Err())
	require.Equal(t, "the server is shutting down", lines.Text())
	require.False(t, lines.Scan(), "There is more: %q", lines.Text())
	require.NoError(t, lines.Err(), "The stream was cut off.")
	_, err = io.WriteString(sender, `{"metadata":{"name":"begun"},"spec":{"toppings":[{"name":"tomato"}]}}`)
	require.NoError(t, err)
	require.NoError(t, sender.Close())
	require.Equal(t, http.StatusCreated, <-created)
	require.NoError(t, <-stopped)
}
