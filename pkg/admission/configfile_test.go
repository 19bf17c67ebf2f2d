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
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestValidateConfigFile(t *testing.T) {
	const header = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\n"
	for name, test := range map[string]struct {
		content string
		// want are the errors. DIR stands for the directory of the file.
		want []string
	}{
		"no plugins":       {header, nil},
		"a configuration":  {header + "plugins:\n- name: Quota\n  configuration: {apiVersion: v1, kind: Any}\n", nil},
		"a file":           {header + "plugins:\n- name: Quota\n  path: quota.yaml\n", nil},
		"an absolute path": {header + "plugins:\n- name: Quota\n  path: DIR/quota.yaml\n", nil},
		"an older version": {"apiVersion: apiserver.k8s.io/v1alpha1\nkind: AdmissionConfiguration\n", nil},
		"several mistakes": {
			header + "plugins:\n- name: Quotas\n- name: Quota\n  path: missing.yaml\n- name: Webhook\n  path: /missing.yaml\n",
			[]string{
				`--admission-control-config-file: DIR/config.yaml configures a plugin "Quotas" that does not exist; there are Quota, Webhook`,
				"--admission-control-config-file: the configuration of the plugin Quota, named in DIR/config.yaml, can't be read: open DIR/missing.yaml: no such file or directory",
				"--admission-control-config-file: the configuration of the plugin Webhook, named in DIR/config.yaml, can't be read: open /missing.yaml: no such file or directory",
			},
		},
		"another kind":       {strings.Replace(header, "AdmissionC", "TracingC", 1), []string{"--admission-control-config-file can't be used: DIR/config.yaml has the kind TracingConfiguration instead of AdmissionConfiguration"}},
		"an unknown kind":    {"apiVersion: v1\nkind: Pizza\n", []string{`--admission-control-config-file can't be used: DIR/config.yaml: no kind "Pizza" is registered for version "v1" in scheme`}},
		"no kind":            {"plugins: []", []string{`--admission-control-config-file can't be used: DIR/config.yaml: Object 'Kind' is missing in 'plugins: []'`}},
		"a misspelled field": {header + "plugin: []\n", []string{`--admission-control-config-file can't be used: DIR/config.yaml: strict decoding error: unknown field "plugin"`}},
		"no YAML":            {"\t", []string{"--admission-control-config-file can't be used: DIR/config.yaml: yaml: found character that cannot start any token"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, content := range map[string]string{"config.yaml": test.content, "quota.yaml": ""} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(strings.ReplaceAll(content, "DIR", dir)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, err := range ValidateConfigFile(filepath.Join(dir, "config.yaml"), []string{"Quota", "Webhook"}) {
				message, _, _ := strings.Cut(strings.ReplaceAll(err.Error(), dir, "DIR"), ` "pkg/runtime/scheme.go`)
				got = append(got, message)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("unexpected errors (-want +got):\n%s", diff)
			}
		})
	}

	if errs := ValidateConfigFile("", nil); errs != nil {
		t.Errorf("got %v without a file", errs)
	}
	want := "--admission-control-config-file can't be used: open missing.yaml: no such file or directory"
	if errs := ValidateConfigFile("missing.yaml", nil); len(errs) != 1 || errs[0].Error() != want {
		t.Errorf("got %v for a file that is missing, want %s", errs, want)
	}
}
