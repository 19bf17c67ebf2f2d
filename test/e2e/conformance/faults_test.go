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

package conformance

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/apis/restaurant"
	"restaurant.programming-kubernetes.info/apiserver/pkg/conformance"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestOthersKeepTheirObjects examines a resource without namespaces of a server that ignores selectors and dry runs.
func TestOthersKeepTheirObjects(t *testing.T) {
	collections := regexp.MustCompile("^/apis/" + regexp.QuoteMeta(restaurant.GroupName) + "/[^/]+/toppings/*$")
	ignoring := query("((label|field)Selector|dryRun)=[^&]*&?", "", path("^/apis/"+restaurant.GroupName))
	seeing := func(next http.RoundTripper) http.RoundTripper {
		return ignoring(roundTripper(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodDelete && collections.MatchString(request.URL.Path) {
				assert.Fail(t, "a collection would be deleted")
				return nil, errors.New("a collection would be deleted")
			}
			return next.RoundTrip(request)
		}))
	}
	before := toppings(t)
	require.NotEmpty(t, before)
	report, err := examineBroken(t, seeing, of("toppings", options(t, group+"v1\nkind: Topping\nspec: {cost: 1500m}")))
	require.NoError(t, err)
	require.Empty(t, report.Left)
	require.Equal(t, before, toppings(t))
}

// toppings returns the names of all toppings.
func toppings(t *testing.T) (names []string) {
	t.Helper()
	list, err := dynamic.NewForConfigOrDie(framework.Config(cp)).Resource(schema.GroupVersionResource{Group: restaurant.GroupName, Version: "v1", Resource: "toppings"}).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, item := range list.Items {
		names = append(names, item.GetName())
	}
	return names
}

// TestInterrupted ends a run early: it reports what it has found, and leaves nothing.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var lines atomic.Int64
	options := of("toppings", options(t, group+"v1\nkind: Topping\nspec: {cost: 1500m}"))
	options.Progress = func(string) {
		if lines.Add(1) == 60 {
			cancel()
		}
	}
	var id string
	report, err := conformance.Run(ctx, watched(&id, nil), options)
	require.ErrorIs(t, err, context.Canceled)
	require.NotEmpty(t, report.Having(conformance.Passed))
	require.NotEmpty(t, report.Having(conformance.NotChecked))
	require.Contains(t, report.Incomplete()[0], "the run has been interrupted")
	require.Empty(t, report.Having(conformance.Failed))
	require.Empty(t, report.Left)
	require.Empty(t, labeled(t, id))
}

// TestClean deletes what a run has left that could delete nothing, as if it had been killed.
func TestClean(t *testing.T) {
	var id string
	var killed atomic.Bool
	options := of("toppings", options(t, group+"v1\nkind: Topping\nspec: {cost: 1500m}"))
	options.Only = []string{"verbs/create", "writes/finalizers", "security/one-verb", "security/validating-policy", "security/validating-webhook"}
	config := watched(&id, func(request *http.Request) bool {
		return killed.Load() || method(http.MethodDelete)(request) && killed.CompareAndSwap(false, true)
	})
	report, err := conformance.Run(t.Context(), config, options)
	require.NoError(t, err)
	require.NotEmpty(t, report.Left)
	require.NotEmpty(t, labeled(t, id))
	before := toppings(t)
	var lines []string
	require.NoError(t, conformance.Clean(t.Context(), cp.RESTConfig(), func(line string) { lines = append(lines, line) }))
	require.NotEmpty(t, lines)
	require.Empty(t, labeled(t, id))
	for _, name := range toppings(t) {
		require.Contains(t, before, name)
	}
	require.Len(t, toppings(t), len(before)-strings.Count(strings.Join(before, " "), id))
}

// watched returns a configuration whose requests show the ID of the run. It fails requests that are cut.
func watched(id *string, cut match) *rest.Config {
	config, pattern := rest.CopyConfig(cp.RESTConfig()), regexp.MustCompile("conformance-[a-z0-9]{5}")
	var once sync.Mutex
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) {
			once.Lock()
			if found := pattern.FindString(request.URL.Path); found != "" {
				*id = found
			}
			once.Unlock()
			if cut != nil && cut(request) {
				return nil, errors.New("the run has been killed")
			}
			return next.RoundTrip(request)
		})
	})
	return config
}

// labeled returns the objects of a run without namespaces that still exist. Namespaces that are being deleted go by
// themselves.
func labeled(t *testing.T, id string) (found []string) {
	t.Helper()
	require.NotEmpty(t, id)
	lists, err := framework.Kube(cp).Discovery().ServerPreferredResources()
	require.NoError(t, err)
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		require.NoError(t, err)
		for _, entry := range list.APIResources {
			if entry.Namespaced || !bytes.Contains([]byte(entry.Verbs.String()), []byte("list")) {
				continue
			}
			objects, err := dynamic.NewForConfigOrDie(framework.Config(cp)).Resource(version.WithResource(entry.Name)).List(t.Context(), metav1.ListOptions{LabelSelector: conformance.Label})
			if apierrors.IsMethodNotSupported(err) {
				continue
			}
			require.NoError(t, err)
			for _, object := range objects.Items {
				if strings.HasPrefix(object.GetName(), id) && (entry.Name != "namespaces" || object.GetDeletionTimestamp() == nil) {
					found = append(found, entry.Name+"/"+object.GetName())
				}
			}
		}
	}
	return found
}
