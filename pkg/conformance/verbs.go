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
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The documents that say what Kubernetes does.
const (
	conventions = "https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md"
	concepts    = "https://kubernetes.io/docs/reference/using-api/api-concepts/"
)

func verbChecks() []Check {
	return []Check{{
		ID:     "verbs/create-existing",
		Rule:   "An object of a name that exists is not created: 409, AlreadyExists.",
		Source: conventions + "#http-status-codes",
		Needs:  []string{"create", "get"},
		Run: func(p *Probe) {
			p.Create("a")
			p.Refused(p.Post(p.New("a")), http.StatusConflict, metav1.StatusReasonAlreadyExists)
		},
	}, {
		ID:     "verbs/get-missing",
		Rule:   "An object that does not exist can't be read: 404, NotFound.",
		Source: conventions + "#http-status-codes",
		Needs:  []string{"get"},
		Run: func(p *Probe) {
			status := p.Refused(p.Get(p.Name("missing")), http.StatusNotFound, metav1.StatusReasonNotFound)
			if status.Details == nil || status.Details.Name != p.Name("missing") {
				p.Fail(p.Get(p.Name("missing")), "details with the object's name are expected")
			}
		},
	}}
}
