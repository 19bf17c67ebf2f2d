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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
)

// Paths of the API.
const (
	GroupPath  = "/apis/" + restaurant.GroupName
	PizzasPath = GroupPath + "/v1/namespaces/default/pizzas"
)

// RoundTripper is a function that sends a request.
type RoundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f RoundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// HTTPClient returns a client that keeps its connections until the test ends.
func HTTPClient(t *testing.T, config *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// FrontProxy returns the configuration of a front proxy that forwards the requests of a user. Its
// certificate is of the given certificate authority.
func FrontProxy(t *testing.T, cp *controlplane.ControlPlane, at *controlplane.Component, ca *controlplane.CA, user string, groups ...string) *rest.Config {
	t.Helper()
	pair, err := ca.Issue(controlplane.Certificate{User: "front-proxy-client"})
	require.NoError(t, err)
	config := ConfigFor(t, cp, at, "nobody")
	config.CertData, config.KeyData = pair.Cert, pair.Key
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return RoundTripper(func(request *http.Request) (*http.Response, error) {
			request = request.Clone(request.Context())
			request.Header["X-Remote-User"], request.Header["X-Remote-Group"] = []string{user}, groups
			return next.RoundTrip(request)
		})
	})
	return config
}

// Send sends a request, and returns the code, the message and Retry-After of the answer.
func Send(config *rest.Config, method, path, contentType, body string) (string, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return "", err
	}
	defer client.CloseIdleConnections()
	request, err := http.NewRequest(method, config.Host+path, strings.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", contentType)
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	var status metav1.Status
	err = json.NewDecoder(response.Body).Decode(&status)
	return fmt.Sprintf("%d %s, Retry-After: %s", response.StatusCode, status.Message, response.Header.Get("Retry-After")), err
}

// Next returns the next event of a watch, which must not have ended.
func Next(t *testing.T, watcher watch.Interface) watch.Event {
	t.Helper()
	select {
	case event, ok := <-watcher.ResultChan():
		require.True(t, ok, "The watch has ended.")
		return event
	case <-time.After(controlplane.Patience):
		t.Fatal("The watch is silent.")
		return watch.Event{}
	}
}

// AuditEvents returns the events of an audit log that contain a text.
func AuditEvents(t *testing.T, path, text string) []auditv1.Event {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	var events []auditv1.Event
	for line := range bytes.Lines(content) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // The server is still writing the line.
		}
		if !bytes.Contains(line, []byte(text)) {
			continue
		}
		var event auditv1.Event
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		require.NoError(t, decoder.Decode(&event), "%s", line)
		require.Equal(t, metav1.TypeMeta{APIVersion: "audit.k8s.io/v1", Kind: "Event"}, event.TypeMeta)
		events = append(events, event)
	}
	return events
}

// RegisterAtEnd restores the Service and the APIServices of the control plane's own
// server when the test ends.
func RegisterAtEnd(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, cp.Register(context.WithoutCancel(t.Context()), cp.APIServer)) })
}
