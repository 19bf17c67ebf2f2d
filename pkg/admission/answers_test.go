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
	"io"
	"net/http"
	"testing"

	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/rest"
)

// The answer of a webhook without an end was once read without end.
func TestBoundAnswers(t *testing.T) {
	shared, down := &rest.Config{}, errors.New("down")
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
	for how, resolve := range map[string]func() (*rest.Config, error){
		"by URL":     func() (*rest.Config, error) { return resolver.ClientConfigFor("webhook:443") },
		"by Service": func() (*rest.Config, error) { return resolver.ClientConfigForService("webhook", "default", 443) },
	} {
		for bytes, wantErr := range map[answer]string{0: "", maxAnswerBytes: "", maxAnswerBytes + 1: "the answer is longer than 16777216 bytes"} {
			config, err := resolve()
			if err != nil {
				t.Fatal(err)
			}
			response, err := config.WrapTransport(bytes).RoundTrip(nil)
			if err != nil {
				t.Fatal(err)
			}
			n, err := io.Copy(io.Discard, response.Body)
			switch {
			case wantErr == "" && (err != nil || n != int64(bytes)), wantErr != "" && (err == nil || err.Error() != wantErr):
				t.Errorf("%s: got %d of %d bytes and the error %v, want %q", how, n, bytes, err, wantErr)
			}
		}
	}
	if _, err := resolver.ClientConfigFor("down"); !errors.Is(err, down) {
		t.Errorf("got %v, want the error of the other resolver", err)
	}
	if shared.WrapTransport != nil {
		t.Error("a configuration that others use, too, has been changed")
	}
}

// answer is a transport whose answers have that many bytes.
type answer int64

func (a answer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Body: io.NopCloser(io.LimitReader(zeros{}, int64(a)))}, nil
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }
