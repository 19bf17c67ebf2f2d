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

package certificates

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/certificates"
)

func TestCertificatesFlags(t *testing.T) {
	const notAName = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character " +
		`(e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`
	for name, test := range map[string]struct {
		certificates []string
		change       func(*options)
		want         []string
		parsed       map[string][]string
	}{
		"servers and a client": {
			certificates: []string{"etcd-server=etcd-0.etcd.default.svc,localhost", "etcd-client"},
			parsed:       map[string][]string{"etcd-server": {"etcd-0.etcd.default.svc", "localhost"}, "etcd-client": nil},
		},
		"none":                     {want: []string{"--certificate must be set at least once"}},
		"no certificate authority": {certificates: []string{"a"}, change: func(o *options) { o.CASecret = "" }, want: []string{`--ca-secret "": ` + notAName}},
		"twice":                    {certificates: []string{"a", "a=localhost"}, want: []string{`--certificate "a=localhost": the Secret a is used already`}},
		"that of the authority": {
			certificates: []string{"ca"},
			want:         []string{`--certificate "ca": the Secret ca is used already`},
		},
		"not a name": {
			certificates: []string{"A=localhost,,*.svc,127.0.0.1"},
			want: []string{
				`--certificate "A=localhost,,*.svc,127.0.0.1": the Secret's name: ` + notAName,
				`--certificate "A=localhost,,*.svc,127.0.0.1": the host "": ` + notAName,
				`--certificate "A=localhost,,*.svc,127.0.0.1": the host "*.svc": ` + notAName,
				`--certificate "A=localhost,,*.svc,127.0.0.1": the host "127.0.0.1" must have a name, not an address only`,
			},
		},
		"a path in one of the Secrets": {certificates: []string{"a"}, change: func(o *options) { o.PathSecret = "a" }},
		"a path in a Secret of its own": {
			certificates: []string{"a"}, change: func(o *options) { o.PathSecret = "b" },
			want: []string{`--webhook-path-secret "b" must be a Secret of --certificate`},
		},
		"durations": {
			certificates: []string{"a"},
			change:       func(o *options) { o.Validity, o.startupTimeout = 2*time.Hour, 0 },
			want: []string{
				"--certificate-validity or --ca-validity: the validity of a certificate (2h0m0s) must be above 0, and that of its certificate authority (2h0m0s) at least twice as long",
				"--startup-timeout must be above 0, not 0s",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options{
				IssuerConfig:   certificates.IssuerConfig{Namespace: "default", CASecret: "ca", CAValidity: 2 * time.Hour, Validity: time.Hour},
				certificates:   test.certificates,
				startupTimeout: time.Second,
			}
			if test.change != nil {
				test.change(&o)
			}
			var got []string
			for _, err := range o.complete() {
				got = append(got, err.Error())
			}
			require.Equal(t, test.want, got)
			if test.parsed != nil {
				require.Equal(t, test.parsed, o.Certificates)
			}
		})
	}
}
