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

package admission

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/utils/ptr"

	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// webhookAnnotations are what webhooks have added to the record of the request that
// created an object.
func webhookAnnotations(t *testing.T, name string) map[string]string {
	t.Helper()
	var event auditv1.Event
	controlplane.Eventually(t, func() error {
		log, err := os.ReadFile(filepath.Join(cp.APIServer.Dir(), auditLog))
		if err != nil {
			return err
		}
		for line := range bytes.Lines(log) {
			if !bytes.Contains(line, []byte(name)) {
				continue
			}
			event = auditv1.Event{} // Unmarshal would add to the previous one.
			// The last line may not be complete yet.
			if err := json.Unmarshal(line, &event); err != nil {
				return err
			}
			if event.Stage == auditv1.StageResponseComplete && event.Verb == "create" && event.ObjectRef.Name == name {
				return nil
			}
		}
		return errors.New("the audit log does not mention the creation of " + name)
	})
	maps.DeleteFunc(event.Annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, "authorization.k8s.io/") || strings.HasPrefix(key, "apiserver.latency.k8s.io/")
	})
	return event.Annotations
}

// TestAuditAnnotations shows what the audit log says of webhooks: which have changed
// the object and which have failed without consequence, and what they say themselves.
// Patches are recorded only where the bodies of requests are.
func TestAuditAnnotations(t *testing.T) {
	s := newScope(t)
	// Annotations have the index of a webhook among all in the cluster. These are the
	// first ones.
	s.ID = "0-" + s.ID
	rules := rule(on("CREATE"), "pizzas", "toppings")
	closed := s.serve(nil)
	closed.Close()

	first := s.webhook(func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		response := allow(request)
		response.AuditAnnotations = map[string]string{"seen": "yes"}
		return response
	}).mutating(rules)
	first.Name = "first.example.com"
	first.ReinvocationPolicy = ptr.To(admissionregistrationv1.IfNeededReinvocationPolicy)
	second := s.webhook(patch(`[{"op":"add","path":"/metadata/labels/a","value":"b"},{"path":"/metadata/labels/a","op":"test","value":"b"}]`)).mutating(rules)
	second.Name = "second.example.com"
	third := first
	third.Name, third.ClientConfig = "third.example.com", clientConfig(closed)
	third.FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
	third.ReinvocationPolicy = nil
	s.registerMutating("audit", first, second, third)

	broken := s.webhook(allow).validating(rules)
	broken.Name, broken.ClientConfig = "broken.example.com", clientConfig(closed)
	broken.FailurePolicy = ptr.To(admissionregistrationv1.Ignore)
	denying := s.webhook(func(request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
		response := allow(request)
		response.Allowed = !strings.HasSuffix(request.Name, "-denied")
		response.AuditAnnotations = map[string]string{"oven": "cold", "why": `"quoted"`}
		return response
	}).validating(rules)
	denying.Name = "denying.example.com"
	s.registerValidating("audit", broken, denying)

	configuration := s.Name("audit")
	metadata := map[string]string{
		"first.example.com/seen":                                          "yes",
		"denying.example.com/oven":                                        "cold",
		"denying.example.com/why":                                         `"quoted"`,
		"mutation.webhook.admission.k8s.io/round_0_index_0":               `{"configuration":"` + configuration + `","webhook":"first.example.com","mutated":false}`,
		"mutation.webhook.admission.k8s.io/round_0_index_1":               `{"configuration":"` + configuration + `","webhook":"second.example.com","mutated":true}`,
		"mutation.webhook.admission.k8s.io/round_0_index_2":               `{"configuration":"` + configuration + `","webhook":"third.example.com","mutated":false}`,
		"mutation.webhook.admission.k8s.io/round_1_index_0":               `{"configuration":"` + configuration + `","webhook":"first.example.com","mutated":false}`,
		"failed-open.mutation.webhook.admission.k8s.io/round_0_index_2":   "third.example.com",
		"failed-open.validating.webhook.admission.k8s.io/round_0_index_0": "broken.example.com",
	}
	request := maps.Clone(metadata)
	request["patch.webhook.admission.k8s.io/round_0_index_1"] = `{"configuration":"` + configuration + `","webhook":"second.example.com",` +
		`"patch":[{"op":"add","path":"/metadata/labels/a","value":"b"},{"op":"test","path":"/metadata/labels/a","value":"b"}],"patchType":"JSONPatch"}`

	require.Equal(t, request, webhookAnnotations(t, s.createPizza("v1", "pizza").GetName()))
	require.Equal(t, metadata, webhookAnnotations(t, s.createTopping("v1", "topping").GetName()))
	_, err := s.pizzas("v1").Create(t.Context(), s.pizza("v1", "denied"), metav1.CreateOptions{})
	framework.RequireStatus(t, err, http.StatusBadRequest, "")
	require.Equal(t, request, webhookAnnotations(t, s.Name("denied")))
}
