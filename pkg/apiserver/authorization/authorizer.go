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

// Package authorization makes fewer SubjectAccessReviews answer more requests.
package authorization

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// BoundReviews keeps answers to reviews larger than ReviewBytes out of the library's cache.
// The cache holds a fixed number of answers by the whole text of their reviews. Its own
// size limit counts neither selectors nor the user's groups.
func BoundReviews(delegate authorizer.Authorizer, bounds limits.Bounds) authorizer.Authorizer {
	padding := strings.Repeat("/", uncachedBytes)
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		if reviewBytes(attributes) > bounds.ReviewBytes {
			attributes = uncached{attributes, padding}
		}
		return delegate.Authorize(ctx, attributes)
	})
}

// uncachedBytes is a length of attributes that the library does not cache.
const uncachedBytes = 10_000

// uncached attributes are too long for the library's cache. The padding is in a field that
// the library counts but does not send. This is the path of a resource request, or the name
// of another one.
type uncached struct {
	authorizer.Attributes
	padding string
}

// GetPath pads resource requests, whose reviews have no path.
func (a uncached) GetPath() string {
	if a.IsResourceRequest() {
		return a.padding
	}
	return a.Attributes.GetPath()
}

// GetName pads other requests, whose reviews have no name.
func (a uncached) GetName() string {
	if a.IsResourceRequest() {
		return a.Attributes.GetName()
	}
	return a.padding
}

// reviewBytes returns the greatest possible length of the attributes as JSON.
func reviewBytes(attributes authorizer.Attributes) int {
	texts := []string{
		attributes.GetNamespace(), attributes.GetVerb(), attributes.GetAPIGroup(), attributes.GetAPIVersion(),
		attributes.GetResource(), attributes.GetSubresource(), attributes.GetName(), attributes.GetPath(),
	}
	if user := attributes.GetUser(); user != nil {
		texts = append(append(texts, user.GetName(), user.GetUID()), user.GetGroups()...)
		for key, values := range user.GetExtra() {
			texts = append(append(texts, key), values...)
		}
	}
	// The errors are about requirements that are not part of the review.
	fields, _ := attributes.GetFieldSelector()
	for _, field := range fields {
		texts = append(texts, field.Field, field.Value, string(field.Operator))
	}
	labels, _ := attributes.GetLabelSelector()
	for _, label := range labels {
		texts = append(append(texts, label.Key(), string(label.Operator())), label.ValuesUnsorted()...)
	}
	size := 0
	for _, text := range texts {
		size += jsonBytes(text)
	}
	return size
}

// jsonBytes returns the greatest possible length of a text as JSON, with the punctuation of
// a field.
func jsonBytes(text string) int {
	const escaped = len(`\u0000`)
	size := len(`"":"",`)
	for _, c := range text {
		if c < ' ' || c >= utf8.RuneSelf || strings.ContainsRune(`"\<>&`, c) {
			size += escaped
		} else {
			size++
		}
	}
	return size
}

// AskForAllNames returns an authorizer that first asks whether a user may do the same to
// objects of all names. Only if that is not allowed, it asks about the name in the request. So
// a cache in the delegate holds one answer for a user without rules for single names, instead
// of one for each object.
//
// It does so only for requests that the front proxy has sent: kube-apiserver has authorized
// exactly these, name and all, before it forwarded them. The two reviews differ for an
// authorizer of the cluster that allows all names but forbids some. So reviews for direct
// requests, impersonation and admission policies keep the name. RBAC has such a case: a rule
// with the resourceName "" allows the review without a name, but none with a name.
func AskForAllNames(delegate authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		if authorizedByFrontProxy(ctx, attributes) {
			if decision, reason, err := delegate.Authorize(ctx, allNames{attributes}); err != nil || decision == authorizer.DecisionAllow {
				return decision, reason, err
			}
		}
		return delegate.Authorize(ctx, attributes)
	})
}

// authorizedByFrontProxy reports whether the attributes are those of a request for an object
// that the front proxy has sent for the same user.
func authorizedByFrontProxy(ctx context.Context, attributes authorizer.Attributes) bool {
	info, ok := genericapirequest.RequestInfoFrom(ctx)
	return ok && info.IsResourceRequest && attributes.IsResourceRequest() && attributes.GetName() != "" &&
		authentication.ByFrontProxy(attributes.GetUser()) &&
		attributes.GetName() == info.Name && attributes.GetVerb() == info.Verb &&
		attributes.GetNamespace() == info.Namespace && attributes.GetAPIGroup() == info.APIGroup &&
		attributes.GetResource() == info.Resource && attributes.GetSubresource() == info.Subresource
}

// allNames are attributes without the name, which stand for all names.
type allNames struct {
	authorizer.Attributes
}

// GetName returns the empty name.
func (allNames) GetName() string { return "" }

// WithRetryableDenials returns an authorizer that reports requests that kube-apiserver could
// not be asked about. It calls note with the context of such a request. It waits for the
// delegate no longer than the timeout. That also covers watches and streams, which have no deadline
// of their own, and would wait for their turn without a limit.
//
// Upstream fault 20.
func WithRetryableDenials(delegate authorizer.Authorizer, timeout time.Duration, note func(context.Context)) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		decision, reason, err := delegate.Authorize(bounded, attributes)
		if err != nil {
			note(ctx)
		}
		return decision, reason, err
	})
}
