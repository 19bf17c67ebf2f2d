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

package transport

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// The server holds the headers of streams that no handler has until they end. Their headers may be a hundred times as large
// as what the client has sent.
func TestHeldStreams(t *testing.T) {
	const streams = 4
	for name, test := range map[string]struct {
		path, cookie string
		cookies      int
		// open is how many streams count.
		open int64
		// reset is how many were begun and reset before.
		reset uint32
	}{
		"a handler that goes on":                             {"/wait", "", 0, 0, 0},
		"answers that nobody reads":                          {"/", "", 0, streams, 0},
		"refusals of the library":                            {"/wait", strings.Repeat("c", 4000), 100, streams, 0},
		"answers beside handlers whose clients are gone":     {"/", "", 0, streams, streams},
		"handlers that go on beside those of clients before": {"/wait", "", 0, 0, streams},
	} {
		t.Run(name, func(t *testing.T) {
			drain := NewDrain(testStreams, limits.DefaultBounds())
			waiting, goOn := make(chan struct{}, 2*streams), make(chan struct{})
			server := httptest.NewUnstartedServer(drain.Handler(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.URL.Path == "/wait" {
					waiting <- struct{}{}
					<-goOn
				}
				_, _ = io.WriteString(w, "an answer")
			})))
			server.EnableHTTP2 = true
			bounded := BoundConnections(server.Listener, limits.DefaultBounds()).(*boundedListener)
			server.Listener = drain.Listener(bounded)
			server.StartTLS()
			defer server.Close()
			defer close(goOn)
			requireHeld := func(streams int64) {
				t.Helper()
				require.Eventually(t, func() bool { return bounded.holds("127.0.0.1") == streams*bounded.streamBytes }, time.Minute, time.Millisecond)
			}

			conn, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}}).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
			require.NoError(t, err)
			defer func() { _ = conn.Close() }()
			go func() { _, _ = io.Copy(io.Discard, conn) }()
			_, err = io.WriteString(conn, http2.ClientPreface)
			require.NoError(t, err)
			framer := http2.NewFramer(conn, nil)
			require.NoError(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
			var block bytes.Buffer
			encoder := hpack.NewEncoder(&block)
			for stream := range test.reset + streams {
				block.Reset()
				path, cookies := test.path, test.cookies
				if stream < test.reset {
					path, cookies = "/wait", 0
				}
				fields := []string{":method", "GET", ":scheme", "https", ":authority", "server", ":path", path}
				for range cookies {
					fields = append(fields, "cookie", test.cookie)
				}
				for i := 0; i < len(fields); i += 2 {
					require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}))
				}
				require.Less(t, block.Len(), 16<<10)
				require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1 + 2*stream, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true}))
				if stream < test.reset {
					<-waiting
					require.NoError(t, framer.WriteRSTStream(1+2*stream, http2.ErrCodeCancel))
				}
			}
			requireHeld(test.open)
			for stream := range uint32(streams) {
				require.NoError(t, framer.WriteRSTStream(1+2*(test.reset+stream), http2.ErrCodeCancel))
			}
			requireHeld(0)
		})
	}
}
