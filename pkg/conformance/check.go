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

// Package conformance finds differences of an API from the behaviour that clients of Kubernetes
// rely on. It examines any API that kube-apiserver serves: of an APIService, a
// CustomResourceDefinition, or a built-in group.
//
// A Check is one such behaviour. Checks are tables, one for each area, in files that are named like
// the areas. A Probe is to a check what testing.T is to a test. It sends requests, records them
// with their answers, and ends the check with the first finding.
//
//	Run       learns each resource from discovery, then runs its checks side by side
//	Resource  is what discovery and OpenAPI say
//	Example   is an object that the API accepts, and valid changes of it
//	Report    has a result for every check and resource
//
// A run deletes what it has created by names, and nothing by a selector: see clean.go. The tests in test/e2e/conformance
// have a transport for each check that breaks its behaviour.
package conformance

import (
	"slices"
	"strings"
)

// Level says which checks a run has.
type Level string

const (
	// Basic has the checks that take less than a second each.
	Basic Level = "basic"
	// Full has all checks of an API in honest use.
	Full Level = "full"
	// Hostile adds requests that no honest client sends.
	Hostile Level = "hostile"
)

// Levels returns all levels. Each includes those before it.
func Levels() []Level { return []Level{Basic, Full, Hostile} }

// Includes reports whether a run of the level has the checks of another.
func (l Level) Includes(other Level) bool {
	return slices.Index(Levels(), other) <= slices.Index(Levels(), l)
}

// Check is one behaviour of Kubernetes' APIs.
type Check struct {
	// ID identifies the check: its area and its name, for example "watch/bookmarks".
	ID string
	// Rule is a sentence that says what Kubernetes does.
	Rule string
	// Source is the address of the document that says so.
	Source string
	// Level is the lowest level that has the check.
	Level Level
	// Needs are verbs that discovery has to list, such as "create" or "status/update", and names of conditions. A run that
	// only reads has none of the checks that need a verb that writes.
	Needs []string
	// Run makes the check.
	Run func(*Probe)
}

// Area returns the part of the ID before the slash.
func (c Check) Area() string {
	area, _, _ := strings.Cut(c.ID, "/")
	return area
}

// Checks returns all checks, in the order of reports.
func Checks() []Check {
	return slices.Concat(
		discoveryChecks(),
		openAPIChecks(),
		verbChecks(),
		listChecks(),
		watchChecks(),
		writeChecks(),
		applyChecks(),
		versionsChecks(),
		formsChecks(),
		securityChecks(),
		admissionChecks(),
		canceledChecks(),
		hostileChecks(),
	)
}

// basic returns a check that takes less than a second. The needs are separated by spaces.
func basic(id, source, needs, rule string, run func(*Probe)) Check {
	return Check{ID: id, Source: source, Rule: rule, Level: Basic, Needs: strings.Fields(needs), Run: run}
}

// full returns a check that takes longer.
func full(id, source, needs, rule string, run func(*Probe)) Check {
	check := basic(id, source, needs, rule, run)
	check.Level = Full
	return check
}

// unmet returns why a resource does not meet a condition that checks need, or "". For a verb, known is false.
func (r *Resource) unmet(need string) (reason string, known bool) {
	condition, known := map[string]struct {
		met    bool
		reason string
	}{
		"group":      {r.Group != "", "the core group is not below /apis"},
		"namespaces": {r.Namespaced, "the resource has no namespaces"},
		"versions":   {len(r.Versions) > 1, "discovery has one version of the resource only"},
		"kind":       {r.Kind != "", "discovery has subresources of it only"},
		"admission": {
			!slices.Contains([]string{"authentication.k8s.io", "authorization.k8s.io", admissionregistration}, r.Group),
			"kube-apiserver asks no policy and no webhook about its own reviews, webhooks and policies",
		},
	}[need]
	if condition.met {
		return "", known
	}
	return condition.reason, known
}

// notOffered says why a run leaves the check out for a resource, or returns "".
func (c Check) notOffered(options Options, resource *Resource) string {
	if resource.Resource == "" && !slices.Contains([]string{"discovery/resources", "openapi/v3-index"}, c.ID) {
		return "discovery has a resource without a name"
	}
	for _, need := range c.Needs {
		reason, known := resource.unmet(need)
		if !known {
			subresource, verb, found := strings.Cut(need, "/")
			if !found {
				subresource, verb = "", need
			}
			if options.ReadOnly && !slices.Contains([]string{"get", "list", "watch"}, verb) {
				return "the run only reads"
			}
			reason = resource.lacks(subresource, verb)
		}
		if reason != "" {
			return reason
		}
	}
	return ""
}
