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
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"

	"restaurant.programming-kubernetes.info/apiserver/test/workshop"
)

// parse returns completed options from command line arguments.
func parse(t *testing.T, args ...string) CompletedOptions {
	t.Helper()
	options := NewOptions("test", workshop.Group())
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	for _, section := range options.Flags().FlagSets {
		flags.AddFlagSet(section)
	}
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	completed, err := options.Complete()
	if err != nil {
		t.Fatal(err)
	}
	return completed
}

func TestValidate(t *testing.T) {
	long := "/" + strings.Repeat("x", 100)
	for name, test := range map[string]struct {
		args []string
		// want are the errors. One that ends in "…" goes on.
		want []string
	}{
		"defaults":         {nil, nil},
		"an external etcd": {[]string{"--etcd-servers=https://etcd:2379", "--etcd-cafile=ca.crt", "--data-dir="}, nil},
		"no etcd":          {[]string{"--data-dir="}, []string{"--data-dir must name a directory for the embedded etcd…"}},
		"no requests": {
			[]string{"--max-requests-inflight=0", "--max-mutating-requests-inflight=0"},
			[]string{"--max-requests-inflight and --max-mutating-requests-inflight must not both be 0, unless --enable-priority-and-fairness is false"},
		},
		"requests without a limit": {[]string{"--max-requests-inflight=0", "--max-mutating-requests-inflight=0", "--enable-priority-and-fairness=false"}, nil},
		"a plugin on and off": {
			[]string{"--enable-admission-plugins=ResourceQuota,NamespaceLifecycle", "--disable-admission-plugins=ResourceQuota"},
			[]string{"[ResourceQuota] in enable-admission-plugins and disable-admission-plugins overlapped"},
		},
		"everything is reported at once, with its flag": {
			[]string{
				"--data-dir=" + long, "--etcd-quota-backend-bytes=0", "--etcd-cafile=ca.crt", "--etcd-certfile=x.crt", "--etcd-keyfile=x.key",
				"--startup-timeout=0s", "--authentication-skip-lookup", "--max-requests-inflight=-1", "--watch-cache-sizes=pizzas",
				"--storage-media-type=text/plain", "--secure-port=0", "--enable-admission-plugins=Nonsense",
				"--disable-admission-plugins=Rubbish", "--admission-control-config-file=missing.yaml",
				"--audit-log-path=-", "--audit-log-maxage=-1", "--authorization-qps=0", "--authorization-timeout=0s",
				"--serving-ca-secret=the/ca", "--serving-service=the.service", "--tls-cert-file=x.crt", "--tls-private-key-file=x.key", "--serving-cert-validity=400h", "--serving-ca-validity=500h",
				"--egress-selector-config-file=missing.yaml",
				"--leader-elect-lease-duration=1s", "--leader-elect-resource-name=",
			},
			[]string{
				`--data-dir "` + long + `" is too long by 8 characters…`,
				"--etcd-quota-backend-bytes must be above 0, not 0",
				"--etcd-cafile is for an external etcd: set --etcd-servers too",
				"--etcd-certfile is for an external etcd: set --etcd-servers too",
				"--etcd-keyfile is for an external etcd: set --etcd-servers too",
				"--startup-timeout must be above 0, not 0s",
				"--authentication-skip-lookup needs --requestheader-client-ca-file: without it no front proxy can assert an identity",
				"--serving-ca-secret and --tls-cert-file exclude each other: set only one of them",
				`--serving-ca-secret "the/ca": ` + utilvalidation.IsDNS1123Subdomain("the/ca")[0],
				`--serving-service "the.service": ` + utilvalidation.IsDNS1123Label("the.service")[0],
				"--serving-cert-validity or --serving-ca-validity: the validity of a certificate (400h0m0s) must be above 0, and that of its certificate authority (500h0m0s) at least twice as long",
				"--watch-cache-sizes: invalid value of watch cache size: pizzas",
				`--egress-selector-config-file: unable to read egress selector configuration from "missing.yaml" [open missing.yaml: no such file or directory]`,
				"--leader-elect-lease-duration, or another flag of leader election: leaseDuration: Invalid value: \"10s\": must be greater than `RenewDeadline`",
				"--leader-elect-lease-duration, or another flag of leader election: resourceName: Required value",
				"--max-requests-inflight can not be negative value",
				`--storage-media-type "text/plain" invalid, allowed values: application/json, application/vnd.kubernetes.protobuf, application/yaml`,
				"--secure-port 0 must be between 1 and 65535, inclusive. It cannot be turned off with 0",
				"--authorization-qps (0) and --authorization-burst (400) must be above 0",
				"--authorization-timeout must be above 0, not 0s",
				"--audit-log-maxage -1 can't be a negative number",
				`enable-admission-plugins plugin "Nonsense" is unknown`,
				`disable-admission-plugins plugin "Rubbish" is unknown`,
				"--admission-control-config-file can't be used: open missing.yaml…",
				"--audit-log-path and --audit-webhook-config-file record nothing without --audit-policy-file: set that, too",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for i, err := range parse(t, test.args...).Validate() {
				message := err.Error()
				if i < len(test.want) {
					if start, ok := strings.CutSuffix(test.want[i], "…"); ok && strings.HasPrefix(message, start) {
						message = test.want[i]
					}
				}
				got = append(got, message)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("unexpected errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestComplete(t *testing.T) {
	t.Run("one kubeconfig serves all clients", func(t *testing.T) {
		options := parse(t, "--kubeconfig=main", "--authorization-kubeconfig=own")
		got := []string{options.CoreAPI.CoreAPIKubeconfigPath, options.Authentication.RemoteKubeConfigFile, options.Authorization.RemoteKubeConfigFile}
		if want := []string{"main", "main", "own"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
	t.Run("a relative data directory becomes absolute", func(t *testing.T) {
		options := parse(t, "--data-dir=data")
		want, err := filepath.Abs("data")
		if err != nil {
			t.Fatal(err)
		}
		if options.EmbeddedEtcd.Dir != want {
			t.Errorf("got %q, want %q", options.EmbeddedEtcd.Dir, want)
		}
		if got, want := options.Etcd.StorageConfig.Transport.ServerList, []string{"unix://" + want + "/etcd.sock"}; !slices.Equal(got, want) {
			t.Errorf("got etcd servers %q, want %q", got, want)
		}
	})
	t.Run("an external etcd is left alone", func(t *testing.T) {
		options := parse(t, "--etcd-servers=https://etcd:2379")
		if options.Embedded() {
			t.Error("the embedded etcd would be started")
		}
	})
}

// TestCertificateFlags finds the flags of the own certificate authority in the --help of servers that can have one.
func TestCertificateFlags(t *testing.T) {
	for name, base := range map[string]*Base{"groups in Go": nil, "a base": {AddFlags: func(*cliflag.NamedFlagSets) {}}} {
		t.Run(name, func(t *testing.T) {
			options := NewOptions("test", workshop.Group())
			options.Base = base
			refused := base != nil
			sections := options.Flags()
			if _, found := sections.FlagSets["own certificate authority"]; found == refused {
				t.Errorf("the section exists: %t", found)
			}
			for _, name := range []string{"serving-ca-secret", "serving-service", "serving-ca-validity", "serving-cert-validity"} {
				var found *pflag.Flag
				for _, section := range sections.FlagSets {
					if flag := section.Lookup(name); flag != nil {
						found = flag
					}
				}
				if found == nil || found.Hidden != refused {
					t.Errorf("unexpected flag --%s: %+v", name, found)
				}
			}
		})
	}
}
