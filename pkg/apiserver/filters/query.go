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

// Package filters holds the HTTP handlers between a client and k8s.io/apiserver's handlers. They
// refuse requests that would cost too much, and answer with a metav1.Status where the
// library does not. They know no group.
package filters

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/klog/v2"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// leastTimeout is the least that a request may have. A request that times out before it is authenticated leaves a line
// in the log, and a client that waits for less gives up by itself.
const leastTimeout = time.Second

// maxCertificates bounds the signatures that crypto/x509 verifies for a request, which are up to a hundred otherwise.
// maxCertificateBytes bounds what the certificates of a client take while it is connected, 16 times their size;
// crypto/tls allows 256 KiB. Real chains have two to four certificates of 1 to 2 KiB.
const maxCertificates, maxCertificateBytes = 4, 32 << 10

// WithRequestBounds refuses requests whose path, query or headers exceed the bounds, or that may come only from the front
// proxy, and ends the wait for a body when the time for a request is over. It works before authentication.
func WithRequestBounds(next http.Handler, serializer runtime.NegotiatedSerializer, bounds limits.Bounds, bodyTime time.Duration, byFrontProxy func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.ContentLength != 0 {
			// k8s.io/apiserver waits as long as the connection lives, over HTTP/1.1 even after its answer.
			// Upstream fault 9.
			if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTime)); err != nil {
				klog.FromContext(req.Context()).Error(err, "A body is waited for without a limit")
			}
		}
		if hasManyCertificates(req.TLS) {
			w.Header().Set("Connection", "close") // They are kept as long. Other refusals may share kube-apiserver's connection.
		}
		values := parameters(req.URL.RawQuery)
		err := checkRequest(bounds, req, values)
		if err == nil && !byFrontProxy(req) {
			err = checkDirect(req)
		}
		if err != nil {
			_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(refusalTime))
			responsewriters.ErrorNegotiated(err, serializer, metav1.Unversioned, w, req)
			return
		}
		if timeout, _ := time.ParseDuration(values.Get("timeout")); timeout > 0 && timeout < leastTimeout {
			values.Set("timeout", leastTimeout.String())
			target := *req.URL
			target.RawQuery = values.Encode()
			req = req.WithContext(req.Context())
			req.URL = &target
		}
		next.ServeHTTP(w, req)
	})
}

func refusal(code int32, reason metav1.StatusReason, message string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason, Message: message}}
}

func hasManyCertificates(state *tls.ConnectionState) bool {
	if state == nil {
		return false
	}
	size := 0
	for _, certificate := range state.PeerCertificates {
		size += len(certificate.Raw)
	}
	return size > maxCertificateBytes || len(state.PeerCertificates) > maxCertificates
}

func checkRequest(b limits.Bounds, req *http.Request, values url.Values) error {
	switch {
	case hasManyCertificates(req.TLS):
		return refusal(http.StatusRequestHeaderFieldsTooLarge, metav1.StatusReasonBadRequest, fmt.Sprintf("a client must not present more than %d certificates, or more than %d bytes of them", maxCertificates, maxCertificateBytes))
	case headerBytes(req.Header) > b.HeaderBytes:
		return refusal(http.StatusRequestHeaderFieldsTooLarge, metav1.StatusReasonBadRequest, fmt.Sprintf("the headers of a request must not have more than %d bytes", b.HeaderBytes))
	case len(req.URL.Path) > b.PathBytes:
		return apierrors.NewBadRequest(fmt.Sprintf("the path of a request must not have more than %d bytes", b.PathBytes))
	case len(req.URL.RawQuery) > b.QueryBytes:
		return apierrors.NewBadRequest(fmt.Sprintf("the query of a request must not have more than %d bytes", b.QueryBytes))
	}
	for name, values := range values {
		if err := checkParameter(b, name, values); err != nil {
			return err
		}
	}
	// k8s.io/apiserver would log the whole request.
	if timeout := values.Get("timeout"); timeout != "" {
		if _, err := time.ParseDuration(timeout); err != nil {
			return apierrors.NewBadRequest(`the query parameter "timeout" must be a duration, such as 30s`)
		}
	}
	return nil
}

// parameters drops those that can't be parsed, as is done everywhere else.
func parameters(query string) url.Values {
	values, _ := url.ParseQuery(query)
	return values
}

func headerBytes(header http.Header) (size int) {
	for name, values := range header {
		for _, value := range values {
			size += len(name) + len(value) + 32
		}
	}
	return size
}

// checkParameter bounds all values of a parameter together, as some may be repeated.
func checkParameter(b limits.Bounds, name string, values []string) error {
	limit, requirements := b.ParameterBytes, false
	switch name {
	case "labelSelector", "fieldSelector":
		limit, requirements = b.SelectorBytes, true
	case "continue":
		limit = b.SelectorBytes
	}
	size, commas := 0, 0
	for _, value := range values {
		size += len(value)
		commas += strings.Count(value, ",")
	}
	switch {
	case len(name) > b.ParameterBytes:
		return apierrors.NewBadRequest(fmt.Sprintf("the name of a query parameter must not have more than %d bytes", b.ParameterBytes))
	case size > limit:
		return apierrors.NewBadRequest(fmt.Sprintf("the query parameter %q must not have more than %d bytes", name, limit))
	case len(values) > b.ParameterBytes:
		return apierrors.NewBadRequest(fmt.Sprintf("the query parameter %q must not be given more than %d times", name, b.ParameterBytes))
	case requirements && commas >= b.SelectorRequirements:
		return apierrors.NewBadRequest(fmt.Sprintf("the query parameter %q must not have more than %d requirements and values", name, b.SelectorRequirements))
	}
	return nil
}

// impersonation is the prefix of all headers that name another user.
const impersonation = "Impersonate-"

// checkDirect leaves impersonation and audit IDs to the front proxy.
//
// It refuses impersonation by other clients. k8s.io/apiserver asks for two SubjectAccessReviews of
// each such request before priority and fairness. With them, a user without any permission could
// keep this server from all others. It also drops audit IDs, since a client could take the one of
// another request.
func checkDirect(req *http.Request) error {
	for name := range req.Header {
		if strings.HasPrefix(name, impersonation) {
			return refusal(http.StatusForbidden, metav1.StatusReasonForbidden, "this server impersonates nobody: send the request to kube-apiserver, which does, and forwards it")
		}
	}
	req.Header.Del(auditinternal.HeaderAuditID)
	return nil
}

// ResolveRequestInfo returns a resolver that treats malformed paths of resources like any other
// path. They are authorized as such and not found.
//
// For /apis/<group>/<version>/watch, and for a namespace such as "..", k8s.io/apiserver would answer 500.
// Upstream fault 16.
// Upstream fault 17.
//
// For /apis/example.com/v1/things.apps it would serve things of apps.example.com to users with
// permission to read things.apps of example.com. It finds a CustomResourceDefinition by the
// resource and the group in one text.
// Upstream fault 81.
func ResolveRequestInfo(delegate genericapirequest.RequestInfoResolver) genericapirequest.RequestInfoResolver {
	return requestInfoResolver{delegate}
}

type requestInfoResolver struct {
	genericapirequest.RequestInfoResolver
}

func (r requestInfoResolver) NewRequestInfo(req *http.Request) (*genericapirequest.RequestInfo, error) {
	info, err := r.RequestInfoResolver.NewRequestInfo(req)
	if err != nil || strings.Contains(info.Resource, ".") || len(content.IsPathSegmentName(info.Namespace)) > 0 {
		//nolint:nilerr // The error says only that the path is not one of a resource.
		return &genericapirequest.RequestInfo{Path: req.URL.Path, Verb: strings.ToLower(req.Method)}, nil
	}
	return info, nil
}
