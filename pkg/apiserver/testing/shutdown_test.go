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
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptrace"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// A server that stops has its clients use other connections, and answers what has begun.
func TestStoppingServer(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false")
	config, err := rest.TLSConfigFor(server.ClientConfig)
	require.NoError(t, err)
	newClient := func() http.Client {
		transport := &http.Transport{TLSClientConfig: config.Clone(), ExpectContinueTimeout: patience}
		t.Cleanup(transport.CloseIdleConnections)
		return http.Client{Transport: transport}
	}

	content, err := json.Marshal(machine("begun"))
	require.NoError(t, err)
	body, sender := io.Pipe()
	begun := make(chan struct{})
	ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(begun) }})
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, server.ClientConfig.Host+"/apis/workshop.example.com/v1/namespaces/default/machines", body)
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Expect", "100-continue")
	created := make(chan int, 1)
	go func() {
		client, code := newClient(), 0
		if response, err := client.Do(request); err == nil {
			_ = response.Body.Close()
			code = response.StatusCode
		}
		created <- code
	}()
	<-begun

	other := newClient()
	told := func() bool {
		response, err := other.Get(server.ClientConfig.Host + "/livez")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.Close
	}
	require.False(t, told())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Stop() }()
	require.Eventually(t, told, patience, 10*time.Millisecond)
	_, err = sender.Write(content)
	require.NoError(t, err)
	require.NoError(t, sender.Close())
	require.Equal(t, http.StatusCreated, <-created)
	require.NoError(t, <-stopped)
}
