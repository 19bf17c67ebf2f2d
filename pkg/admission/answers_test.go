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

package admission

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// The answer of a webhook without an end was once read without end.
func TestBoundAnswers(t *testing.T) {
	const length = "X-Answer-Length"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var n int64
		_, _ = fmt.Sscan(req.Header.Get(length), &n)
		_, _ = io.CopyN(w, zeros{}, n)
	}))
	t.Cleanup(server.Close)
	shared := &rest.Config{Host: server.URL}
	down := errors.New("down")
	resolver := boundAnswers(func(webhook.AuthenticationInfoResolver) webhook.AuthenticationInfoResolver {
		return &webhook.AuthenticationInfoResolverDelegator{
			ClientConfigForFunc: func(host string) (*rest.Config, error) {
				if host == "down" {
					return nil, down
				}
				return shared, nil
			},
			ClientConfigForServiceFunc: func(string, string, int) (*rest.Config, error) { return shared, nil },
		}
	})(nil)
	for name, test := range map[string]struct {
		bytes   int
		wantErr string
	}{
		"nothing":       {0, ""},
		"the longest":   {maxAnswerBytes, ""},
		"one byte more": {maxAnswerBytes + 1, "the answer is longer than 16777216 bytes"},
	} {
		for how, resolve := range map[string]func() (*rest.Config, error){
			"by URL":     func() (*rest.Config, error) { return resolver.ClientConfigFor("webhook:443") },
			"by Service": func() (*rest.Config, error) { return resolver.ClientConfigForService("webhook", "default", 443) },
		} {
			t.Run(name+" "+how, func(t *testing.T) {
				config, err := resolve()
				if err != nil {
					t.Fatal(err)
				}
				client, err := rest.HTTPClientFor(config)
				if err != nil {
					t.Fatal(err)
				}
				request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, config.Host, http.NoBody)
				if err != nil {
					t.Fatal(err)
				}
				request.Header.Set(length, fmt.Sprint(test.bytes))
				response, err := client.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				defer response.Body.Close()
				n, err := io.Copy(io.Discard, response.Body)
				if test.wantErr != "" {
					if err == nil || err.Error() != test.wantErr {
						t.Errorf("got %v, want %s", err, test.wantErr)
					}
					return
				}
				if err != nil || n != int64(test.bytes) {
					t.Errorf("got %d bytes and the error %v, want %d", n, err, test.bytes)
				}
			})
		}
	}
	if _, err := resolver.ClientConfigFor("down"); !errors.Is(err, down) {
		t.Errorf("got %v, want the error of the other resolver", err)
	}
	if shared.WrapTransport != nil {
		t.Error("a configuration that others use, too, has been changed")
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
