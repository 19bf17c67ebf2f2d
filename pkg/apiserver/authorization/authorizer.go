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
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
)

// maxSelectors is how long the selectors of a request may be together to be part of its review. k8s.io/apiserver's cache keeps
// 8192 reviews, whatever their selectors.
const maxSelectors = 2 << 10

// WithoutLongSelectors returns an authorizer that asks whether a user may do the same to all objects if the selectors of a
// request are long.
func WithoutLongSelectors(delegate authorizer.Authorizer) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		if info, ok := genericapirequest.RequestInfoFrom(ctx); ok && len(info.LabelSelector)+len(info.FieldSelector) > maxSelectors {
			attributes = withoutSelectors{attributes}
		}
		return delegate.Authorize(ctx, attributes)
	})
}

// withoutSelectors are attributes that stand for all objects.
type withoutSelectors struct {
	authorizer.Attributes
}

// GetFieldSelector returns no requirements.
func (withoutSelectors) GetFieldSelector() (fields.Requirements, error) { return nil, nil }

// GetLabelSelector returns no requirements.
func (withoutSelectors) GetLabelSelector() (labels.Requirements, error) { return nil, nil }

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

// authorizedByFrontProxy reports whether the attributes belong to a request for an object
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
// delegate no longer than the timeout if the request has no deadline, as watches and streams, which
// would wait for their turn without a limit.
//
// Upstream fault 20.
func WithRetryableDenials(delegate authorizer.Authorizer, timeout time.Duration, note func(context.Context)) authorizer.Authorizer {
	return authorizer.AuthorizerFunc(func(ctx context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
		bounded := ctx
		if _, limited := ctx.Deadline(); !limited {
			var cancel context.CancelFunc
			bounded, cancel = context.WithTimeout(ctx, timeout)
			defer cancel()
		}
		decision, reason, err := delegate.Authorize(bounded, attributes)
		if err != nil {
			note(ctx)
		}
		return decision, reason, err
	})
}
