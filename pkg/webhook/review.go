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

package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

var errNoRequest = errors.New("the review has no request")

const (
	// decodeFactor is how many times its size a review takes while it is answered: a list of empty objects takes most.
	decodeFactor = 60
	// bodyTime is how long a client may take to send a body. kube-apiserver has the body before it calls.
	bodyTime = 5 * time.Second
)

// memory bounds the memory of all reviews in work. A client may hold no more of it than is left for others: any pod can
// reach the port. Reviews wait for it when their bodies have arrived, which transport.Connections bounds.
type memory struct {
	*limits.Shares
	// most is what a review takes at most.
	most int64
}

func newMemory(bytes int64) memory { return memory{limits.NewShares(bytes, bytes, 0), bytes / 4} }

// wait takes memory for a client once there is enough.
func (m memory) wait(ctx context.Context, client string, bytes int64) error {
	for !m.Take(client, bytes) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return nil
}

// handleReviews answers the reviews of a kind in v1 and v1beta1, each in its version. Other bodies
// are refused with a Status and not passed on.
func handleReviews[Review any, Pointer interface {
	*Review
	GetObjectKind() schema.ObjectKind
}](kind schema.GroupKind, memory memory, maxBody int64, answer func(context.Context, Pointer) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			refuse(w, http.StatusMethodNotAllowed, metav1.StatusReasonMethodNotAllowed, "send a POST")
			return
		}
		if mediaType, _, err := mime.ParseMediaType(req.Header.Get("Content-Type")); err != nil || mediaType != runtime.ContentTypeJSON {
			refuse(w, http.StatusUnsupportedMediaType, metav1.StatusReasonUnsupportedMediaType, "send "+runtime.ContentTypeJSON)
			return
		}
		deadline := time.Now().Add(bodyTime)
		if end, ok := req.Context().Deadline(); ok && end.Before(deadline) {
			deadline = end
		}
		_ = http.NewResponseController(w).SetReadDeadline(deadline) // withTimeout has tried it.
		body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			refuse(w, http.StatusRequestEntityTooLarge, metav1.StatusReasonRequestEntityTooLarge, fmt.Sprintf("a review may have %d bytes", tooLarge.Limit))
			return
		}
		if err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("the body can't be read: %v", err))
			return
		}
		client, taken := limits.ClientAddress(req.RemoteAddr), min(int64(len(body))*decodeFactor, memory.most)
		if err := memory.wait(req.Context(), client, taken); err != nil {
			refuse(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "other reviews take all the memory that there is for them: try again")
			return
		}
		defer memory.Give(client, taken)
		review := Pointer(new(Review))
		if err := utiljson.Unmarshal(body, review); err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("the body is no %s: %v", kind, err))
			return
		}
		if got := review.GetObjectKind().GroupVersionKind(); got.GroupKind() != kind || got.Version != "v1" && got.Version != "v1beta1" {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, fmt.Sprintf("the body is no %s in v1 or v1beta1, but %q", kind, got))
			return
		}
		if err := answer(req.Context(), review); err != nil {
			refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error())
			return
		}
		respond(w, http.StatusOK, review)
	})
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	respond(w, int(code), &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	})
}

func respond(w http.ResponseWriter, code int, body any) {
	data, err := marshal(body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	_, _ = w.Write(data) // It fails if the client has gone.
}

// marshal leaves characters that mean something in HTML as they are: escaped, they take six times as
// much.
func marshal(value any) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(value)
	return bytes.TrimSuffix(text.Bytes(), []byte("\n")), err
}
