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
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// With the definition's objects at kube-apiserver, their UIDs tell which are kept on the way back.
func TestUIDsAtKube(t *testing.T) {
	m := newMigration(t)
	for name, test := range map[string]struct{ atKube, want string }{
		"the same": {usualObject, "notice 1 things.example.com would move back, with their UIDs"},
		"another":  {strings.Replace(usualObject, `"uid": "1"`, `"uid": "2"`, 1), "notice 1 things.example.com would move back, and 1 of them get another UID, since kube-apiserver has no copies with the same: the garbage collector deletes what they own: [default/one]"},
		"none":     {"", "notice 1 things.example.com would move back, and 1 of them get another UID, since kube-apiserver has no copies with the same: the garbage collector deletes what they own: [default/one]"},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.etcd = map[string]string{}
			scene.registered()
			scene.defined, scene.atKube = true, test.atKube
			all, err := scene.migration(t, m.config.Etcd).PlanBack(t.Context())
			require.NoError(t, err)
			var got []string
			for _, finding := range all {
				if finding.Reason == ObjectsMove || finding.Reason == NewUIDs {
					got = append(got, string(finding.Status)+" "+finding.Cause)
				}
			}
			require.Equal(t, []string{test.want}, got, "%+v", all)
		})
	}
}

// A full quota kept "back" from creating objects at kube-apiserver, and the plan said nothing of it.
func TestQuotasOfBack(t *testing.T) {
	m := newMigration(t)
	for name, test := range map[string]struct {
		atKube   string
		kubeEtcd bool
		want     []string
	}{
		"a changed object":      {atKube: usualObject},
		"a new object":          {want: []string{"quotas count the new things.example.com twice while they move back, and may refuse them: default/things"}},
		"a new object, by etcd": {kubeEtcd: true},
	} {
		t.Run(name, func(t *testing.T) {
			scene := usualScene()
			scene.etcd, scene.kubeEtcd = map[string]string{}, test.kubeEtcd
			scene.registered()
			scene.defined, scene.atKube = true, test.atKube
			scene.kube = append(scene.kube, &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "things"},
				Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"count/things.example.com": resource.MustParse("1")}},
			})
			all, err := scene.migration(t, m.config.Etcd).PlanBack(t.Context())
			require.NoError(t, err)
			var got []string
			for _, finding := range all {
				if finding.Reason == Quotas {
					got = append(got, finding.Cause)
				}
			}
			require.Equal(t, test.want, got, "%+v", all)
		})
	}
}
