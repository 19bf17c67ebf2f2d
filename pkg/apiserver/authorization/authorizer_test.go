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
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver/limits"
)

// The library's cache once kept 8192 questions of 900 kB each, for any user.
func TestReviewsAreCachedIfSmall(t *testing.T) {
	long := strings.Repeat("a", 3000)
	requirement := fields.OneTermEqualSelector("metadata.name", strings.Repeat("<", 1500))
	var values strings.Builder
	for i := range 150 {
		fmt.Fprintf(&values, "%063d,", i)
	}
	label, err := labels.Parse("a in (" + values.String() + "b)")
	require.NoError(t, err)
	requirements, _ := label.Requirements()
	for name, test := range map[string]struct {
		attributes authorizer.AttributesRecord
		wantAsked  int32
	}{
		"small":               {authorizer.AttributesRecord{ResourceRequest: true, Resource: "things", Verb: "list"}, 1},
		"a small path":        {authorizer.AttributesRecord{Path: "/version", Verb: "get"}, 1},
		"a long name":         {authorizer.AttributesRecord{ResourceRequest: true, Name: strings.Repeat("<", 1500)}, 2},
		"a long path":         {authorizer.AttributesRecord{Path: strings.Repeat("<", 1500)}, 2},
		"a field selector":    {authorizer.AttributesRecord{ResourceRequest: true, FieldSelectorRequirements: requirement.Requirements()}, 2},
		"a label selector":    {authorizer.AttributesRecord{ResourceRequest: true, LabelSelectorRequirements: requirements}, 2},
		"a user's groups":     {authorizer.AttributesRecord{ResourceRequest: true, User: &user.DefaultInfo{Groups: []string{long, long, long}}}, 2},
		"a user's attributes": {authorizer.AttributesRecord{ResourceRequest: true, User: &user.DefaultInfo{Extra: map[string][]string{"a": {long, long, long}}}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int32
			var reviewed []authorizationv1.SubjectAccessReview
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				asked.Add(1)
				var review authorizationv1.SubjectAccessReview
				assert.NoError(t, json.NewDecoder(req.Body).Decode(&review))
				reviewed = append(reviewed, review)
				review.Status.Allowed = true
				w.Header().Set("Content-Type", "application/json")
				assert.NoError(t, json.NewEncoder(w).Encode(review))
			}))
			defer server.Close()
			delegating, err := authorizerfactory.DelegatingAuthorizerConfig{
				SubjectAccessReviewClient: kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL}).AuthorizationV1(),
				AllowCacheTTL:             time.Hour,
				DenyCacheTTL:              time.Hour,
				WebhookRetryBackoff:       &wait.Backoff{Steps: 1},
			}.New()
			require.NoError(t, err)
			bounded := BoundReviews(delegating, limits.DefaultBounds())
			for range 2 {
				decision, _, err := bounded.Authorize(t.Context(), test.attributes)
				require.NoError(t, err)
				require.Equal(t, authorizer.DecisionAllow, decision)
			}
			require.Equal(t, test.wantAsked, asked.Load(), "times that kube-apiserver was asked")
			spec := reviewed[0].Spec
			if resource := spec.ResourceAttributes; resource != nil {
				require.Equal(t, test.attributes.Name, resource.Name)
			}
			if other := spec.NonResourceAttributes; other != nil {
				require.Equal(t, test.attributes.Path, other.Path)
			}
		})
	}
}
