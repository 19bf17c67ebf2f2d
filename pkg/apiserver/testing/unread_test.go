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
	"bytes"
	"crypto/tls"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
)

// Refusals that their client does not read are ended soon, since they hold seats of priority and fairness.
func TestUnreadAnswers(t *testing.T) {
	t.Parallel()
	server := start(t, "--run-controllers=false")
	server.Cluster.Allow(func(review authorizationv1.SubjectAccessReviewSpec) bool {
		return review.ResourceAttributes == nil || review.User == "reader"
	})
	const long = 8 << 10 // A response of HTTP/2 has a buffer of 4 KiB.
	for name, test := range map[string]struct{ user, path string }{
		"a refusal":                {"stranger", machinesPath + "/" + strings.Repeat("a", long)},
		"a refused watch":          {"watcher", groupPath + "/namespaces/" + strings.Repeat("a", long) + "/machines?watch=1"},
		"a watch that can't begin": {"reader", machinesPath + "?watch=1&fieldSelector=" + strings.Repeat("a", long) + "%3Da"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, uint32(1), unread(t, server.UserConfig(t, test.user), test.path, 1))
		})
	}
}

// unread sends requests and reads no answer. It returns how many the server has reset by the time of the first, with the
// answer to a PING that was sent then.
func unread(t *testing.T, config *rest.Config, path string, requests uint32) (resets uint32) {
	t.Helper()
	host, err := url.Parse(config.Host)
	require.NoError(t, err)
	secure, err := rest.TLSConfigFor(config)
	require.NoError(t, err)
	secure.NextProtos = []string{"h2"}
	conn, err := (&tls.Dialer{Config: secure}).DialContext(t.Context(), "tcp", host.Host)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	const most = 20 * time.Second
	require.NoError(t, conn.SetDeadline(time.Now().Add(most)))
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	framer := http2.NewFramer(conn, conn)
	require.NoError(t, framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}))
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for stream := range requests {
		headers.Reset()
		for _, field := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", host.Host}, {":path", path}} {
			require.NoError(t, encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}))
		}
		require.NoError(t, framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*stream + 1, BlockFragment: headers.Bytes(), EndHeaders: true, EndStream: true}))
	}
	for {
		frame, err := framer.ReadFrame()
		require.NoError(t, err)
		switch frame := frame.(type) {
		case *http2.RSTStreamFrame:
			if resets++; resets == 1 {
				require.NoError(t, framer.WritePing(false, [8]byte{}))
			}
		case *http2.PingFrame:
			if frame.IsAck() {
				return resets
			}
		case *http2.GoAwayFrame:
			require.Failf(t, "the server ended the connection", "%v", frame)
		}
	}
}
