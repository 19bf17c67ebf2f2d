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
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/authentication"
)

// asked answers by name, and remembers the names.
type asked struct {
	authorizer.Authorizer
	answers map[string]authorizer.Decision
	err     error
	names   []string
}

func (a *asked) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	a.names = append(a.names, attributes.GetName())
	decision, ok := a.answers[attributes.GetName()]
	if !ok {
		decision = authorizer.DecisionNoOpinion
	}
	return decision, "because", a.err
}

func TestAskForAllNames(t *testing.T) {
	const allow, deny, none = authorizer.DecisionAllow, authorizer.DecisionDeny, authorizer.DecisionNoOpinion
	reader := authentication.FrontProxied{Info: &user.DefaultInfo{Name: "reader"}}
	request := genericapirequest.RequestInfo{
		IsResourceRequest: true, Verb: "get", APIGroup: "bakery.example.com", APIVersion: "v1",
		Namespace: "default", Resource: "breads", Subresource: "status", Name: "rye",
	}
	same := authorizer.AttributesRecord{
		ResourceRequest: true, Verb: "get", APIGroup: "bakery.example.com", APIVersion: "v1",
		Namespace: "default", Resource: "breads", Subresource: "status", Name: "rye", User: reader,
	}
	for name, test := range map[string]struct {
		change  func(*authorizer.AttributesRecord)
		answers map[string]authorizer.Decision
		err     error
		names   []string
		want    authorizer.Decision
	}{
		"all names":              {answers: map[string]authorizer.Decision{"": allow}, names: []string{""}, want: allow},
		"this name":              {answers: map[string]authorizer.Decision{"rye": allow}, names: []string{"", "rye"}, want: allow},
		"neither":                {names: []string{"", "rye"}, want: none},
		"denied explicitly":      {answers: map[string]authorizer.Decision{"": deny, "rye": deny}, names: []string{"", "rye"}, want: deny},
		"nobody can be asked":    {err: errors.New("down"), names: []string{""}, want: none},
		"a request without name": {change: func(a *authorizer.AttributesRecord) { a.Name = "" }, answers: map[string]authorizer.Decision{"": allow}, names: []string{""}, want: allow},
		// An authorizer of the cluster may allow all names but forbid this one: only a
		// request that kube-apiserver has authorized is not asked about exactly.
		"a direct request":    {change: func(a *authorizer.AttributesRecord) { a.User = &user.DefaultInfo{Name: "reader"} }, answers: map[string]authorizer.Decision{"": allow, "rye": deny}, names: []string{"rye"}, want: deny},
		"no user":             {change: func(a *authorizer.AttributesRecord) { a.User = nil }, answers: map[string]authorizer.Decision{"": allow}, names: []string{"rye"}, want: none},
		"another verb":        {change: func(a *authorizer.AttributesRecord) { a.Verb = "create" }, answers: map[string]authorizer.Decision{"": allow}, names: []string{"rye"}, want: none},
		"another name":        {change: func(a *authorizer.AttributesRecord) { a.Name = "wheat" }, answers: map[string]authorizer.Decision{"": allow}, names: []string{"wheat"}, want: none},
		"another namespace":   {change: func(a *authorizer.AttributesRecord) { a.Namespace = "other" }, answers: map[string]authorizer.Decision{"": allow}, names: []string{"rye"}, want: none},
		"another group":       {change: func(a *authorizer.AttributesRecord) { a.APIGroup = "" }, answers: map[string]authorizer.Decision{"": allow}, names: []string{"rye"}, want: none},
		"another resource":    {change: func(a *authorizer.AttributesRecord) { a.Resource = "users" }, answers: map[string]authorizer.Decision{"": allow}, names: []string{"rye"}, want: none},
		"another subresource": {change: func(a *authorizer.AttributesRecord) { a.Subresource = "" }, answers: map[string]authorizer.Decision{"": allow}, names: []string{"rye"}, want: none},
		"no resource":         {change: func(a *authorizer.AttributesRecord) { a.ResourceRequest = false }, answers: map[string]authorizer.Decision{"": allow}, names: []string{"rye"}, want: none},
	} {
		t.Run(name, func(t *testing.T) {
			attributes, info := same, request
			if test.change != nil {
				test.change(&attributes)
			}
			if attributes.Name == "" {
				info.Name = ""
			}
			delegate := &asked{answers: test.answers, err: test.err}
			ctx := genericapirequest.WithRequestInfo(t.Context(), &info)
			got, reason, err := AskForAllNames(delegate).Authorize(ctx, attributes)
			require.ErrorIs(t, err, test.err)
			require.Equal(t, test.want, got)
			require.Equal(t, "because", reason)
			require.Equal(t, test.names, delegate.names, "the names that were asked for")
		})
	}
}
