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

package main

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
)

// Reviews is how many SubjectAccessReviews a server creates for requests of one user. Each of them
// names another object.
type Reviews struct {
	Contender string  `json:"contender"`
	Verb      string  `json:"verb"`
	Identity  string  `json:"identity"`
	Requests  int     `json:"requests"`
	Seconds   float64 `json:"seconds"`
	Reviews   int     `json:"reviews"`
}

// measureReviews has one user create, read, change and delete objects.
func (b *bench) measureReviews(ctx context.Context, result *Result, s size) error {
	c := b.contender("pizzas")
	if s.reviews == 0 || c == nil {
		return nil
	}
	identity := b.identities[0]
	clients, err := newClients(identity.config, many)
	if err != nil {
		return err
	}
	admin, err := newClients(b.cp.RESTConfig(), 1)
	if err != nil {
		return err
	}
	for _, verb := range verbs {
		progress(fmt.Sprintf("Counting reviews of %d requests: %s", s.reviews, verb.name))
		before, err := countReviews(ctx, admin[0])
		if err != nil {
			return err
		}
		_, took, err := drive(ctx, clients, s.reviews, verb.do(c, "reviewed"))
		if err != nil {
			return fmt.Errorf("%s: %w", verb.name, err)
		}
		after, err := countReviews(ctx, admin[0])
		if err != nil {
			return err
		}
		result.Reviews = append(result.Reviews, Reviews{c.name, verb.name, identity.name, s.reviews, took.Seconds(), after - before})
	}
	return nil
}

var reviewMetric = regexp.MustCompile(`(?m)^apiserver_request_total\{[^}]*resource="subjectaccessreviews"[^}]*\} (\S+)$`)

// countReviews is how many kube-apiserver has been asked for.
func countReviews(ctx context.Context, client client) (count int, err error) {
	metrics, err := client.do(ctx, http.MethodGet, "/metrics", "text/plain", nil)
	if err != nil {
		return 0, err
	}
	for _, match := range reviewMetric.FindAllSubmatch(metrics, -1) {
		value, err := strconv.ParseFloat(string(match[1]), 64)
		if err != nil {
			return 0, err
		}
		count += int(value)
	}
	return count, nil
}
