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

package registry

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Review declares a kind with internal type O whose objects can only be created, like a
// SubjectAccessReview. They are answered at once, and never stored.
type Review[O Object] struct {
	// New returns an empty Review.
	New func() O
	// Resource is the plural name in paths, Singular the one for people.
	Resource, Singular string
	// Namespaced is false for Reviews about the whole cluster.
	Namespaced bool
	// Validate checks rules that declarative validation tags can't express.
	Validate func(context.Context, O) field.ErrorList
	// Answer answers Reviews without clients and informers. Use Runtime.Answers for
	// Reviews that need them.
	Answer AnswerFunc[O]
}

// AnswerFunc writes the whole status of a valid Review with internal type O. Admission
// has already admitted the Review. An error without a status becomes an internal error.
type AnswerFunc[O Object] func(ctx context.Context, review O) error

// Answer is an AnswerFunc for Reviews of any type.
type Answer interface {
	// Answer writes the status of a Review.
	Answer(ctx context.Context, review Object) error
}

// Answer implements Answer. A Review of another type is an error.
func (f AnswerFunc[O]) Answer(ctx context.Context, review Object) error {
	o, ok := review.(O)
	if !ok {
		return fmt.Errorf("a %T is to be answered by a %T", review, f)
	}
	return f(ctx, o)
}

var _ Declaration = Review[Object]{}

// Describe implements Declaration.
func (r Review[O]) Describe() Description {
	return Description{Resource: r.Resource, New: func() runtime.Object { return r.New() }}
}

// Storage implements Declaration.
func (r Review[O]) Storage(in Installation) (map[string]rest.Storage, error) {
	answer, found := in.Runtime.Answers[r.Resource]
	var err error
	if r.Answer, err = choose("Answer", r.Answer, r.Answer != nil, answer, found); err != nil {
		return nil, err
	}
	reviews := &Kind[O]{Namespaced: r.Namespaced}
	if r.Validate != nil {
		reviews.Validate = func(ctx context.Context, o, _ O) field.ErrorList { return r.Validate(ctx, o) }
	}
	return map[string]rest.Storage{
		r.Resource: &reviewREST[O]{r, newStrategy(reviews, in.Scheme, in.Versions)},
	}, nil
}

// reviewREST serves a Review.
type reviewREST[O Object] struct {
	Review[O]
	strategy strategy[O]
}

var (
	_ rest.Storage              = &reviewREST[Object]{}
	_ rest.Scoper               = &reviewREST[Object]{}
	_ rest.SingularNameProvider = &reviewREST[Object]{}
	_ rest.Creater              = &reviewREST[Object]{}
)

// New returns an empty Review.
func (r *reviewREST[O]) New() runtime.Object { return r.Review.New() }

// Destroy does nothing: nothing is stored.
func (*reviewREST[O]) Destroy() {}

// NamespaceScoped reports whether Reviews are about a namespace.
func (r *reviewREST[O]) NamespaceScoped() bool { return r.Namespaced }

// GetSingularName returns the name for people.
func (r *reviewREST[O]) GetSingularName() string { return r.Singular }

// Create answers a Review. A dry run makes no difference.
func (r *reviewREST[O]) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	review := obj.(O)
	if err := r.strategy.checkUnstored(ctx, review); err != nil {
		return nil, err
	}
	if err := admit(ctx, review.DeepCopyObject()); err != nil {
		return nil, err
	}
	if err := r.Answer(ctx, review); err != nil {
		var known apierrors.APIStatus
		if !errors.As(err, &known) {
			err = apierrors.NewInternalError(err)
		}
		return nil, err
	}
	return review, nil
}
