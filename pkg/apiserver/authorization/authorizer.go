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

package authorization

import (
	"context"
	"strings"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authorization/authorizer"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// BoundReviews keeps the authorizer of the library, which asks kube-apiserver, from
// caching the answers to questions that are larger than ReviewBytes. Its cache holds a
// fixed number of answers by the whole text of their questions, and counts neither
// selectors nor the user's groups when it decides what is small enough for it.
func BoundReviews(delegate authorizer.Authorizer, bounds limits.Bounds) authorizer.Authorizer {
	return boundedReviews{delegate, bounds.ReviewBytes, strings.Repeat("/", uncachedBytes)}
}

// uncachedBytes is how long attributes are that the library does not keep in its cache.
const uncachedBytes = 10_000

type boundedReviews struct {
	authorizer.Authorizer
	maxBytes int
	padding  string
}

// Authorize decides whether a request is allowed.
func (r boundedReviews) Authorize(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	return r.Authorizer.Authorize(ctx, r.bound(attributes))
}

// ConditionsAwareAuthorize decides the same for callers who know of conditions.
func (r boundedReviews) ConditionsAwareAuthorize(ctx context.Context, attributes authorizer.Attributes) authorizer.ConditionsAwareDecision {
	return r.Authorizer.ConditionsAwareAuthorize(ctx, r.bound(attributes))
}

func (r boundedReviews) bound(attributes authorizer.Attributes) authorizer.Attributes {
	if reviewBytes(attributes) <= r.maxBytes {
		return attributes
	}
	return uncached{attributes, r.padding}
}

// uncached attributes are too long for the library's cache, by something that it
// counts but does not ask about: the path of a resource, or the name of what is none.
type uncached struct {
	authorizer.Attributes
	padding string
}

// GetPath returns the path, of which a question about a resource has none.
func (a uncached) GetPath() string {
	if a.IsResourceRequest() {
		return a.padding
	}
	return a.Attributes.GetPath()
}

// GetName returns the name, of which a question about a path has none.
func (a uncached) GetName() string {
	if a.IsResourceRequest() {
		return a.Attributes.GetName()
	}
	return a.padding
}

// reviewBytes is how long the attributes are at most as JSON.
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
	// The errors are about what is not part of the question then.
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

// jsonBytes is how long a text is at most as JSON, with quotes, a comma and what names it.
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
