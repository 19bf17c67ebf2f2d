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
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
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
			refuse(recorder, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(test.body)))
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
			if review.Kind != "AdmissionReview" || response.UID != "1" || response.Allowed || response.Result.Code != http.StatusTooManyRequests || response.Result.Details.RetryAfterSeconds != 1 {
				t.Errorf("got %s, want a refusal with 429 and a second to wait", recorder.Body)
			}
		})
	}
}
