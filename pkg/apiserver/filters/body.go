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

package filters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/bodycost"
)

// WithMemoryBounds refuses bodies that cost the library much more to decode than their size
// lets expect, and namespaces that etcd's keys can't have in them, for which it would
// answer 500. It bounds the memory that bodies and lists take, and the time that clients take
// to send and to read them. It belongs behind authorization, so that only who may write makes
// the server read a body.
func WithMemoryBounds(next http.Handler, serializer runtime.NegotiatedSerializer, longRunning genericapirequest.LongRunningRequestCheck, bounds Bounds, maxBody int64) http.Handler {
	memory := newBudget(bounds.RequestMemory, bounds.WaitsPerUser)
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if info, ok := genericapirequest.RequestInfoFrom(req.Context()); ok && info.IsResourceRequest {
			share := memory.share(userName(req))
			share.watch = watchShareOf(req)
			defer share.release()
			w = withPace(w, req, share, longRunning)
			req = req.WithContext(context.WithValue(req.Context(), shareKey{}, listShare{share, listFactorFor(req), objectFactorFor(req, info.Verb)}))
			err := checkNamespace(info.Namespace)
			if err == nil {
				err = bounds.checkBody(w, req, info.Verb, maxBody, share)
			}
			if err != nil {
				version := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
				responsewriters.ErrorNegotiated(err, serializer, version, w, req)
				return
			}
		}
		next.ServeHTTP(w, req)
	})
}

// WithBodyDeadline ends the wait for a body when the time for a request is over. The
// library only answers then: over HTTP/1.1 the answer itself waits for the body, and a
// client that stops in the middle of one keeps its share of the requests in flight from
// all others for as long as it likes.
// Upstream fault 9.
func WithBodyDeadline(next http.Handler, timeout time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength != 0 {
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(timeout)); err != nil {
				klog.FromContext(req.Context()).Error(err, "A body is waited for without a limit")
			}
		}
		next.ServeHTTP(w, req)
	})
}

// Upstream fault 16.
func checkNamespace(namespace string) error {
	if reasons := content.IsPathSegmentName(namespace); len(reasons) > 0 {
		return apierrors.NewBadRequest(fmt.Sprintf("the namespace %q %s", namespace, strings.Join(reasons, ", ")))
	}
	return nil
}

// checkBody reads the body, as far as it is not too large for the handler anyway,
// and puts it back.
func (b Bounds) checkBody(w http.ResponseWriter, req *http.Request, verb string, maxBody int64, share *share) error {
	switch verb {
	case "create", "update", "patch", "delete", "deletecollection":
	default: // The handlers of all others ignore it.
		return nil
	}
	begun, control := time.Now(), http.NewResponseController(w)
	end, limited := req.Context().Deadline()
	wait := share.awaitClient(func() { _ = control.SetReadDeadline(time.Now()) })
	body, err := share.read(io.LimitReader(req.Body, maxBody+1), min(req.ContentLength, maxBody+1), func(read int) {
		deadline := begun.Add(pace(read))
		if limited && end.Before(deadline) {
			deadline = end
		}
		wait.unlessEnded(func() { _ = control.SetReadDeadline(deadline) }) // Without it, there is that of WithBodyDeadline.
	})
	ended := wait.over()
	switch {
	case ended && err != nil:
		return errTooManyWaits(b.WaitsPerUser)
	case errors.Is(err, errBudget):
		return errTooMuchMemory("bodies")
	case err != nil:
		return apierrors.NewBadRequest(fmt.Sprintf("the body can't be read: %v", err))
	}
	// What the connection brings during the work is not awaited.
	_ = control.SetReadDeadline(time.Time{})
	req.Body = readCloser{io.MultiReader(bytes.NewReader(body), req.Body), req.Body}
	if int64(len(body)) > maxBody {
		return nil // The handler says so.
	}
	if err := b.checkText(verb, mediaTypeOf(req), body, maxBody); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	return nil
}

func (b Bounds) checkText(verb, mediaType string, body []byte, maxBody int64) error {
	if verb == "patch" && bodycost.NestingExceeds(body, b.PatchDepth) {
		return fmt.Errorf("the patch is nested more than %d levels deep", b.PatchDepth)
	}
	if err := bodycost.CheckElements(mediaType, body, b.BodyElements, maxBody); err != nil {
		return err
	}
	if mediaType == string(types.StrategicMergePatchType) && bodycost.ListExceeds(body, b.PatchListElements) {
		return fmt.Errorf("the patch has a list of more than %d elements: send a merge patch or an apply patch", b.PatchListElements)
	}
	return bodycost.CheckQuantities(mediaType, body)
}

// listFactorFor returns the factor for a list in the form that a client accepts.
func listFactorFor(req *http.Request) int64 {
	if strings.Contains(req.Header.Get("Accept"), "yaml") {
		return listFactorYAML
	}
	return listFactor
}

// objectFactorFor returns the factor for a single object.
func objectFactorFor(req *http.Request, verb string) int64 {
	if verb == "get" {
		return listFactorFor(req)
	}
	return writeFactor
}

// mediaTypeOf ignores the parameters, as the handler of patches does, even if they
// are malformed: a parser that refuses them would take YAML for something else.
func mediaTypeOf(req *http.Request) string {
	mediaType, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(mediaType))
}

type readCloser struct {
	io.Reader
	io.Closer
}
