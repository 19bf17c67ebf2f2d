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

package migrate

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// Writes are frozen if the policy refuses them, and not if only something else does.
func TestTriedWrites(t *testing.T) {
	etcd := newMigration(t).config.Etcd
	status := func(code int, reason metav1.StatusReason, message string) answer {
		body, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message})
		require.NoError(t, err)
		return answered(code, http.Header{"Content-Type": {"application/json"}}, string(body))
	}
	frozen := status(http.StatusForbidden, metav1.StatusReasonForbidden, "ValidatingAdmissionPolicy 'migrate.example.com' with binding 'migrate.example.com' denied request: wait")
	other := status(http.StatusForbidden, metav1.StatusReasonForbidden, "ValidatingAdmissionPolicy 'migrate.example.com.bypass' with binding 'migrate.example.com.bypass' denied request: no")
	invalid := status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, "spec.size: Required value")
	done := answered(http.StatusOK, http.Header{"Content-Type": {"application/json"}}, "{}")
	const refused = "ValidatingAdmissionPolicy 'migrate.example.com' with binding 'migrate.example.com' denied request: wait"
	for name, test := range map[string]struct {
		answers         []answer
		denied, allowed string
	}{
		"frozen":                             {[]answer{frozen}, "", refused},
		"frozen, and an object is not valid": {[]answer{invalid, frozen}, "", refused},
		"not frozen":                         {[]answer{done, done}, "things.example.com can still be written", ""},
		"another policy":                     {[]answer{other, other}, "ValidatingAdmissionPolicy 'migrate.example.com.bypass' with binding 'migrate.example.com.bypass' denied request: no", ""},
	} {
		t.Run(name, func(t *testing.T) {
			m := usualScene().migration(t, etcd)
			for denied, want := range map[bool]string{true: test.denied, false: test.allowed} {
				m.kube = kubernetes.NewForConfigOrDie(&rest.Config{Transport: &answers{left: test.answers}})
				requireError(t, want, m.checkWrites(t.Context(), denied))
			}
		})
	}
}

// A refusal to create an object of a freeze is known before the freeze. A freeze ends even if one
// step of its end is refused for good. If two refusals make its end impossible, that is known
// before, too.
func TestRefusedFreeze(t *testing.T) {
	etcd := newMigration(t).config.Etcd
	for _, test := range []struct {
		refused string
		// planned is part of the error before the freeze, and ended of the error at its end.
		planned, ended string
	}{
		{refused: "patch prioritylevelconfigurations", planned: "applying the PriorityLevelConfiguration migrate.example.com: refused"},
		{refused: "patch flowschemas", planned: "applying the FlowSchema migrate.example.com.own: refused"},
		{refused: "patch validatingadmissionpolicies", planned: "applying the ValidatingAdmissionPolicy crd-apiserver.example.com.own: refused"},
		{refused: "patch validatingadmissionpolicybindings", planned: "applying the ValidatingAdmissionPolicyBinding crd-apiserver.example.com.own: refused"},
		{refused: "delete prioritylevelconfigurations"},
		{refused: "delete flowschemas"},
		{refused: "delete validatingadmissionpolicies"},
		{refused: "delete validatingadmissionpolicybindings"},
		{
			refused: "delete validatingadmissionpolicies, delete validatingadmissionpolicybindings",
			planned: "deleting the validatingadmissionpolicybindings migrate.example.com: refused\ndeleting the validatingadmissionpolicies migrate.example.com: refused",
			ended:   "deleting the validatingadmissionpolicybindings migrate.example.com: refused\ndeleting the validatingadmissionpolicies migrate.example.com: refused",
		},
		{
			refused: "patch prioritylevelconfigurations, delete flowschemas",
			planned: "applying the PriorityLevelConfiguration migrate.example.com: refused",
			ended:   "applying the PriorityLevelConfiguration migrate.example.com: refused\ndeleting the flowschemas migrate.example.com: refused",
		},
	} {
		t.Run(test.refused, func(t *testing.T) {
			scene := usualScene()
			scene.object, scene.refusedFreeze = "", map[string]error{}
			for step := range strings.SplitSeq(test.refused, ", ") {
				scene.refusedFreeze[step] = errors.New("refused")
			}
			scene.kube = append(scene.kube, &flowcontrolv1.PriorityLevelConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "migrate.example.com"}})
			m := scene.migration(t, etcd)
			err := m.rehearse(t.Context(), State{}, false)
			requireError(t, test.planned, err)
			synctest.Test(t, func(t *testing.T) {
				err := m.thaw(t.Context(), time.Time{})
				requireError(t, test.ended, err)
			})
		})
	}
}

// Somebody may delete the priority level, since writes hang. The policy still goes.
func TestThawWithoutPriorityLevel(t *testing.T) {
	scene := usualScene()
	scene.object = ""
	scene.kube = append(scene.kube, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "migrate.example.com"}})
	m := scene.migration(t, newMigration(t).config.Etcd)
	client, ok := m.dynamic.(*dynamicfake.FakeDynamicClient)
	require.True(t, ok)
	synctest.Test(t, func(t *testing.T) { require.NoError(t, m.thaw(t.Context(), time.Time{})) })
	var deleted []string
	for _, action := range client.Actions() {
		if action.GetVerb() == "delete" {
			deleted = append(deleted, action.GetResource().Resource)
		}
	}
	require.Equal(t, []string{"mutatingadmissionpolicybindings", "mutatingadmissionpolicies", "validatingadmissionpolicybindings", "validatingadmissionpolicies", "flowschemas", "flowschemas", "flowschemas", "prioritylevelconfigurations", "prioritylevelconfigurations"}, deleted)
}

// A write may be at a webhook when the freeze begins, and be stored later.
func TestLongestWrite(t *testing.T) {
	etcd := newMigration(t).config.Etcd
	webhook := func(group string, seconds int32) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{TimeoutSeconds: &seconds, Rules: []admissionregistrationv1.RuleWithOperations{{
			Rule: admissionregistrationv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: []string{"*"}},
		}}}
	}
	const none, byWebhook = `"strategy": "None"`, `"strategy": "Webhook"`
	for name, test := range map[string]struct {
		webhooks      []admissionregistrationv1.ValidatingWebhook
		before, after string
		saved         map[string]*apiextensionsv1.CustomResourceConversion
		want          time.Duration
	}{
		"none":                   {},
		"of another group":       {webhooks: []admissionregistrationv1.ValidatingWebhook{webhook("apps", 30)}},
		"the longest":            {webhooks: []admissionregistrationv1.ValidatingWebhook{webhook("example.com", 5), webhook("*", 10), webhook("apps", 30)}, want: 10 * time.Second},
		"one that converts":      {before: none, after: byWebhook, want: writeLimit},
		"one that has converted": {saved: map[string]*apiextensionsv1.CustomResourceConversion{"things.example.com": {Strategy: "Webhook"}}, want: writeLimit},
		"one with nothing to convert": {before: none + `},
		"versions": [{"name": "v1", "served": true, "storage": true}, {"name": "v1beta1", "served": false, "storage": false}]`, after: byWebhook + `}, "versions": [{"name": "v1", "served": true, "storage": true}]`},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.inDefinition(test.before, test.after)
			scene.kube = append(scene.kube, &admissionregistrationv1.ValidatingWebhookConfiguration{Webhooks: test.webhooks})
			m := scene.migration(t, etcd)
			m.state.Conversions = test.saved
			longest, err := m.longestWrite(t.Context())
			require.NoError(t, err)
			require.Equal(t, test.want, longest)
		})
	}
}
