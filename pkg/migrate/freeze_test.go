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

package migrate

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func TestRefuse(t *testing.T) {
	for name, test := range map[string]struct {
		body string
		code int
	}{
		"a review":         {`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}}`, http.StatusOK},
		"nothing":          {"", http.StatusBadRequest},
		"no request in it": {"{}", http.StatusBadRequest},
	} {
		t.Run(name, func(t *testing.T) {
			recorder := httptest.NewRecorder()
			f := &freezer{first: func() time.Time { return time.Now().Add(-7 * time.Second) }}
			f.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(test.body)))
			if recorder.Code != test.code {
				t.Fatalf("got the code %d, want %d", recorder.Code, test.code)
			}
			if test.code != http.StatusOK {
				return
			}
			var review admissionv1.AdmissionReview
			if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil {
				t.Fatal(err)
			}
			response := review.Response
			if review.Kind != "AdmissionReview" || response.UID != "1" || response.Allowed || response.Result.Code != http.StatusTooManyRequests || response.Result.Details.RetryAfterSeconds != 3 {
				t.Errorf("got %s, want a refusal with 429 and three seconds to wait", recorder.Body)
			}
		})
	}
}

// TestRetryAfter shows how long client-go's ten retries last that begin with the freeze.
func TestRetryAfter(t *testing.T) {
	var waits []int32
	var waited time.Duration
	for range 10 {
		seconds := retryAfter(waited)
		waits = append(waits, seconds)
		waited += time.Duration(seconds) * time.Second
	}
	require.Equal(t, []int32{1, 1, 1, 1, 2, 3, 4, 6, 9, 14}, waits)
	require.EqualValues(t, 15, retryAfter(time.Hour))
}

// TestQuestionsAfterTheFreeze asks as kube-apiserver does until it knows that writes are not
// frozen any more.
func TestQuestionsAfterTheFreeze(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, free.Close())
	m := &Migration{config: Config{Group: "example.com", FreezeAddress: free.Addr().String()}, kube: fake.NewClientset()}
	f, err := m.listen()
	require.NoError(t, err)
	pool := x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(f.caBundle))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	defer client.CloseIdleConnections()
	ask := func() error {
		response, err := client.Post("https://"+m.config.FreezeAddress, "application/json", strings.NewReader(`{"request":{"uid":"1"}}`))
		if err == nil {
			err = response.Body.Close()
		}
		return err
	}
	require.NoError(t, ask())
	left := make(chan struct{})
	go func() {
		defer close(left)
		m.leave(f)
	}()
	for range 10 {
		require.NoError(t, ask())
		time.Sleep(freezeSettle / 4)
	}
	select {
	case <-left:
	case <-time.After(freezeTimeout):
		t.Fatal("it goes on, although nobody asks")
	}
	require.Error(t, ask())
}
