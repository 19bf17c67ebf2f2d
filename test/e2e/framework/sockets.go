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

package framework

import (
	"context"
	"net/http"
	"strings"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"
)

// DialSocket opens a WebSocket, as browsers do.
func DialSocket(ctx context.Context, config *rest.Config, path string) (*websocket.Conn, error) {
	tls, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	dialer := websocket.Dialer{TLSClientConfig: tls}
	socket, response, err := dialer.DialContext(ctx, strings.Replace(config.Host, "https://", "wss://", 1)+path, http.Header{"Origin": {config.Host}})
	if response != nil && response.Body != nil {
		_ = response.Body.Close()
	}
	return socket, err
}
