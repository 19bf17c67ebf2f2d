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
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
)

// A server that stops answers what clients send before they know, and has them use another connection.
func TestRequestOfAStoppingServer(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false")
	config, err := rest.TLSConfigFor(server.ClientConfig)
	require.NoError(t, err)
	address := strings.TrimPrefix(server.ClientConfig.Host, "https://")
	conn, err := tls.Dial("tcp", address, config)
	require.NoError(t, err)
	defer conn.Close()

	_, err = io.WriteString(conn, "GET /version HTTP/1.1\r\nHost: localhost\r\n")
	require.NoError(t, err)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Stop() }()
	others := http.Client{Transport: &http.Transport{TLSClientConfig: config.Clone()}}
	defer others.CloseIdleConnections()
	require.Eventually(t, func() bool {
		response, err := others.Get(server.ClientConfig.Host + "/livez")
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		return response.Close
	}, patience, 10*time.Millisecond)
	_, err = io.WriteString(conn, "\r\n")
	require.NoError(t, err)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode)
	require.True(t, response.Close, "The client may use the connection again.")
	require.NoError(t, response.Body.Close())
	require.NoError(t, <-stopped)
}
