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
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
)

// Long selectors are not part of reviews: a user may do the same to all objects then.
func TestWithoutLongSelectors(t *testing.T) {
	for name, test := range map[string]struct {
		label, field string
		want         bool
	}{
		"none":                  {"", "", true},
		"short":                 {"a=b", "metadata.name=a", true},
		"a long label selector": {"a in (" + strings.Repeat("b,", maxSelectors/2) + "c)", "", false},
		"a long field selector": {"", "metadata.name=" + strings.Repeat("a", maxSelectors), false},
		"long together":         {"a in (" + strings.Repeat("b,", maxSelectors/4) + "c)", "metadata.name=" + strings.Repeat("a", maxSelectors/2), false},
	} {
		t.Run(name, func(t *testing.T) {
			label, err := labels.Parse(test.label)
			require.NoError(t, err)
			labelRequirements, _ := label.Requirements()
			fieldRequirements := fields.ParseSelectorOrDie(test.field).Requirements()
			sent := authorizer.AttributesRecord{ResourceRequest: true, Verb: "list", LabelSelectorRequirements: labelRequirements, FieldSelectorRequirements: fieldRequirements}
			asked := authorizer.AuthorizerFunc(func(_ context.Context, got authorizer.Attributes) (authorizer.Decision, string, error) {
				gotLabels, _ := got.GetLabelSelector()
				gotFields, _ := got.GetFieldSelector()
				if test.want {
					require.Equal(t, labelRequirements, gotLabels)
					require.Equal(t, fieldRequirements, gotFields)
				} else {
					require.Empty(t, gotLabels)
					require.Empty(t, gotFields)
				}
				require.Equal(t, "list", got.GetVerb())
				return authorizer.DecisionAllow, "", nil
			})
			ctx := genericapirequest.WithRequestInfo(t.Context(), &genericapirequest.RequestInfo{LabelSelector: test.label, FieldSelector: test.field})
			decision, _, err := WithoutLongSelectors(asked).Authorize(ctx, sent)
			require.NoError(t, err)
			require.Equal(t, authorizer.DecisionAllow, decision)
		})
	}
}
