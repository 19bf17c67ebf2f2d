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
