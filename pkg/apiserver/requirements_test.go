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

package apiserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestPermissions compares what flags make a server need with what it needs by default. The
// doctor asks for exactly these, and the roles of the manifests hold them.
func TestPermissions(t *testing.T) {
	const (
		registration = ".admissionregistration.k8s.io"
		flowcontrol  = ".flowcontrol.apiserver.k8s.io"
	)
	needs := func(t *testing.T, args ...string) (all []string) {
		t.Helper()
		for _, permission := range parse(t, args...).Permissions("shop") {
			if permission.Fix == "" {
				t.Errorf("nothing says how to grant %s", permission)
			}
			all = append(all, strings.ReplaceAll(permission.String(), `"`, ""))
		}
		return all
	}
	both := func(verbs []string, resources ...string) (all []string) {
		for _, resource := range resources {
			for _, verb := range verbs {
				all = append(all, verb+" "+resource)
			}
		}
		return all
	}
	informer := []string{"list", "watch"}
	priorities := append(both(informer, "flowschemas"+flowcontrol, "prioritylevelconfigurations"+flowcontrol), "patch flowschemas/status"+flowcontrol)
	lease := []string{
		"create leases.coordination.k8s.io in shop",
		"get leases.coordination.k8s.io test-controllers in shop", "update leases.coordination.k8s.io test-controllers in shop",
	}
	for name, test := range map[string]struct {
		args       []string
		more, less []string
	}{
		"by default":          {},
		"without controllers": {[]string{"--run-controllers=false"}, nil, append([]string{"create events.events.k8s.io"}, lease...)},
		"without an election": {[]string{"--leader-elect=false"}, nil, lease},
		"without priorities":  {[]string{"--enable-priority-and-fairness=false"}, nil, priorities},
		"without quotas": {[]string{"--disable-admission-plugins=ResourceQuota"}, nil,
			[]string{"list resourcequotas", "watch resourcequotas", "update resourcequotas/status"}},
		"without policies": {[]string{"--disable-admission-plugins=ValidatingAdmissionPolicy"}, nil,
			both(informer, "validatingadmissionpolicies"+registration, "validatingadmissionpolicybindings"+registration)},
		"with a certificate authority": {[]string{"--serving-ca-secret=ca"}, []string{
			"get configmaps ca in shop", "update configmaps ca in shop",
			"get secrets ca in shop", "update secrets ca in shop",
			"get apiservices.apiregistration.k8s.io v1.workshop.example.com", "update apiservices.apiregistration.k8s.io v1.workshop.example.com",
			"get apiservices.apiregistration.k8s.io v1alpha1.workshop.example.com", "update apiservices.apiregistration.k8s.io v1alpha1.workshop.example.com",
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			byDefault := []string{
				"create tokenreviews.authentication.k8s.io", "create subjectaccessreviews.authorization.k8s.io",
				"get configmaps extension-apiserver-authentication in kube-system",
				"list configmaps extension-apiserver-authentication in kube-system",
				"watch configmaps extension-apiserver-authentication in kube-system",
			}
			byDefault = append(byDefault, both(informer, "namespaces",
				"mutatingadmissionpolicies"+registration, "mutatingadmissionpolicybindings"+registration,
				"services", "mutatingwebhookconfigurations"+registration,
				"validatingadmissionpolicies"+registration, "validatingadmissionpolicybindings"+registration,
				"validatingwebhookconfigurations"+registration, "resourcequotas")...)
			byDefault = append(byDefault, "get namespaces", "update resourcequotas/status")
			byDefault = append(append(append(byDefault, priorities...), "create events.events.k8s.io"), lease...)
			want := slices.DeleteFunc(byDefault, func(permission string) bool { return slices.Contains(test.less, permission) })
			if diff := cmp.Diff(append(want, test.more...), needs(t, test.args...)); diff != "" {
				t.Errorf("unexpected permissions (-want +got):\n%s", diff)
			}
		})
	}
}
