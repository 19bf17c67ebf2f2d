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
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	encryptionHeader = "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\n"
	tracingHeader    = "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\n"
	stranger         = "apiVersion: v1\nkind: Config\n"
)

func encrypting(resources ...string) string {
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	return fmt.Sprintf("%sresources: [{resources: [%s], providers: [{secretbox: {keys: [{name: mine, secret: %s}]}}]}]\n",
		encryptionHeader, strings.Join(resources, ", "), key)
}

// inScheme is the place in a library where a scheme was made.
var inScheme = regexp.MustCompile(` in scheme "[^"]+"`)

// TestValidateFiles is about files that k8s.io/apiserver reads too late, or misreads.
func TestValidateFiles(t *testing.T) {
	const (
		encryption = "encryption-provider-config"
		audit      = "audit-policy-file"
		tracing    = "tracing-config-file"
		stored     = "machines.workshop.example.com, prototypes.workshop.example.com, sites.workshop.example.com"
		notPolicy  = "it must hold a Policy of audit.k8s.io/v1: "
		notTraces  = "it must hold a TracingConfiguration of apiserver.config.k8s.io: "
	)
	for name, test := range map[string]struct {
		// content is in the file of the flag, which is missing if there is none.
		flag, content string
		// want is the error without its beginning, with FILE for the file's path.
		want string
	}{
		"everything is encrypted": {encryption, encrypting("'*.*'"), ""},
		"a group is encrypted":    {encryption, encrypting("'*.workshop.example.com'"), ""},
		"a kind is encrypted":     {encryption, encrypting("machines.workshop.example.com"), ""},
		// One file may be for several servers.
		"also a kind of another server is encrypted": {encryption, encrypting("secrets", "machines.workshop.example.com"), ""},
		"only a kind of another server is encrypted": {encryption, encrypting("secrets"),
			"nothing would be encrypted, since it names nothing that this server stores: add " + stored + `, or "*.*" for everything`},
		"a misspelt kind": {encryption, encrypting("sites.workshop.example.com", "machine.workshop.example.com"),
			`resources[0].resources[1] is "machine.workshop.example.com", but this server stores ` + stored + " only: correct or remove it"},
		"a kind that is not stored": {encryption, encrypting("estimates.workshop.example.com"),
			`resources[0].resources[0] is "estimates.workshop.example.com", but this server stores ` + stored + " only: correct or remove it"},
		"a short key": {encryption, encryptionHeader + "resources: [{resources: ['*.*'], providers: [{aescbc: {keys: [{name: short, secret: c2VjcmV0}]}}]}]\n",
			`resources[0].providers[0].aescbc.keys[0].secret: Invalid value: "REDACTED": secret is not of the expected length, got 6, expected one of [16 24 32]`},
		"an encryption that is another kind": {encryption, stranger,
			`it must hold an EncryptionConfiguration of apiserver.config.k8s.io/v1: no kind "Config" is registered for version "v1"`},
		"no encryption": {encryption, "", "open FILE: no such file or directory"},

		"a policy":                      {audit, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n", ""},
		"a policy without rules":        {audit, "apiVersion: audit.k8s.io/v1\nkind: Policy\n", notPolicy + "loaded illegal policy with 0 rules: from file FILE"},
		"a policy that is another kind": {audit, stranger, notPolicy + `failed decoding: no kind "Config" is registered for version "v1": from file FILE`},
		"no policy":                     {audit, "", notPolicy + `failed to read file path "FILE": open FILE: no such file or directory`},

		"tracing":                      {tracing, tracingHeader + "samplingRatePerMillion: 100\n", ""},
		"tracing of too much":          {tracing, tracingHeader + "samplingRatePerMillion: 10000000\n", notTraces + "samplingRatePerMillion: Invalid value: 10000000: sampling rate per million must be less than or equal to one million"},
		"tracing that is another kind": {tracing, stranger, notTraces + `unable to decode tracing configuration data: no kind "Config" is registered for version "v1"`},
		"no tracing":                   {tracing, "", notTraces + `unable to read tracing configuration from "FILE": open FILE: no such file or directory`},
	} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "file")
			if test.content != "" {
				if err := os.WriteFile(file, []byte(test.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var got, want []string
			for _, err := range parse(t, "--"+test.flag+"="+file).Validate() {
				got = append(got, inScheme.ReplaceAllString(err.Error(), ""))
			}
			if test.want != "" {
				want = []string{"--" + test.flag + " " + file + " can't be used: " + strings.ReplaceAll(test.want, "FILE", file)}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("unexpected errors (-want +got):\n%s", diff)
			}
		})
	}
}
