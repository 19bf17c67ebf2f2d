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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Review declares a kind of questions with internal type O: they can only be
// created, are answered at once, and never stored, like a SubjectAccessReview.
type Review[O Object] struct {
	// New returns an empty question.
	New func() O
	// Resource is the plural name in paths, Singular the one for people.
	Resource, Singular string
	// Namespaced is false for questions about the whole cluster.
	Namespaced bool
	// Validate says what declarative validation tags can't.
	Validate func(context.Context, O) field.ErrorList
	// Answer writes the whole status of a valid question that admission has let
	// pass. An error that has no status of its own is one of the server's.
	Answer func(context.Context, O) error
}

func (r Review[O]) resource() string { return r.Resource }

func (r Review[O]) object() runtime.Object { return r.New() }

func (Review[O]) fieldLabels() []string { return nil }

func (Review[O]) longRunning() []string { return nil }

func (Review[O]) stored() (version string, ok bool) { return "", false }

func (r Review[O]) storage(group *installedGroup, _ generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	if r.Answer == nil {
		return nil, errors.New("set Answer, without which there is none")
	}
	questions := &Kind[O]{Namespaced: r.Namespaced}
	if r.Validate != nil {
		questions.Validate = func(ctx context.Context, o, _ O) field.ErrorList { return r.Validate(ctx, o) }
	}
	return map[string]rest.Storage{
		r.Resource: &reviewREST[O]{r, newStrategy(questions, group.scheme, group.versions)},
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

// New returns an empty question.
func (r *reviewREST[O]) New() runtime.Object { return r.Review.New() }

// Destroy does nothing: nothing is stored.
func (*reviewREST[O]) Destroy() {}

// NamespaceScoped tells whether questions are about a namespace.
func (r *reviewREST[O]) NamespaceScoped() bool { return r.Namespaced }

// GetSingularName returns the name for people.
func (r *reviewREST[O]) GetSingularName() string { return r.Singular }

// Create answers a question. To try it out makes no difference.
func (r *reviewREST[O]) Create(ctx context.Context, obj runtime.Object, admit rest.ValidateObjectFunc, _ *metav1.CreateOptions) (runtime.Object, error) {
	question := obj.(O)
	if err := r.strategy.checkUnstored(ctx, question); err != nil {
		return nil, err
	}
	if err := admit(ctx, question.DeepCopyObject()); err != nil {
		return nil, err
	}
	if err := r.Answer(ctx, question); err != nil {
		var known apierrors.APIStatus
		if !errors.As(err, &known) {
			err = apierrors.NewInternalError(err)
		}
		return nil, err
	}
	return question, nil
}
