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

package upstream

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/apiserver"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/klog/v2"
)

// writeFile writes a file, and returns its path.
func writeFile(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// wantNoErrors fails the test if a mistake in the options is reported by now.
func wantNoErrors(t *testing.T, what string, errs []error) {
	t.Helper()
	if len(errs) > 0 {
		fixed(t, "%s is reported when options are validated: %v", what, errs)
	}
}

func newEtcdOptions() *genericoptions.EtcdOptions {
	options := genericoptions.NewEtcdOptions(storagebackend.NewDefaultConfig("/registry", nil))
	options.StorageConfig.Transport.ServerList = []string{"http://localhost:1"}
	return options
}

// TestUnvalidatedOptions has mistakes that are found out only after all that a server waits for.
func TestUnvalidatedOptions(t *testing.T) {
	nonsense := writeFile(t, "nonsense")
	each(t, map[int]func() []error{
		36: func() []error {
			options := newEtcdOptions()
			options.EncryptionProviderConfigFilepath = nonsense
			return options.Validate()
		},
		38: func() []error {
			options := genericoptions.NewAuditOptions()
			options.PolicyFile = nonsense
			return options.Validate()
		},
		40: func() []error { return (&genericoptions.EgressSelectorOptions{ConfigFile: nonsense}).Validate() },
		41: func() []error { return (&genericoptions.TracingOptions{ConfigFile: nonsense}).Validate() },
		42: func() []error {
			options := newEtcdOptions()
			options.WatchCacheSizes = []string{"nonsense"}
			return options.Validate()
		},
	}, func(t *testing.T, validate func() []error) { wantNoErrors(t, "the mistake", validate()) })
}

func TestAuditWithoutPolicyRecordsNothing(t *testing.T) {
	options := genericoptions.NewAuditOptions()
	options.LogOptions.Path = filepath.Join(t.TempDir(), "log")
	wantNoErrors(t, "an audit log without a policy", options.Validate())
	config, _, _ := newConfig(t)
	if err := options.ApplyTo(&config.Config); err != nil || config.AuditBackend != nil {
		fixed(t, "an audit log without a policy is accepted with %v and has the backend %v", err, config.AuditBackend)
	}
}

func TestNoRequestsInFlightAreNotValidated(t *testing.T) {
	features, run := genericoptions.NewFeatureOptions(), genericoptions.NewServerRunOptions()
	run.MaxRequestsInFlight, run.MaxMutatingRequestsInFlight = 0, 0
	config, _, _ := newConfig(t)
	if err := run.ApplyTo(&config.Config); err != nil {
		t.Fatal(err)
	}
	wantNoErrors(t, "priority and fairness without requests in flight", slices.Concat(features.Validate(), run.Validate()))
	if err := features.ApplyTo(&config.Config, fake.NewClientset(), config.SharedInformerFactory); err == nil {
		fixed(t, "priority and fairness without requests in flight is possible")
	}
}

func TestUnreadableAdmissionFileEndsTheProcess(t *testing.T) {
	exit := klog.OsExit
	t.Cleanup(func() { klog.OsExit = exit })
	ended := false
	klog.OsExit = func(int) { ended = true }
	_, err := admission.GetAdmissionPluginConfigurationFor(apiserver.AdmissionPluginConfiguration{Path: filepath.Join(t.TempDir(), "missing")})
	if !ended {
		fixed(t, "a file that does not exist is answered with an error: %v", err)
	}
}

func TestSubjectAccessReviewsHaveFixedLimits(t *testing.T) {
	var names []string
	for field := range reflect.TypeFor[genericoptions.DelegatingAuthorizationOptions]().Fields() {
		names = append(names, field.Name)
	}
	known := []string{"RemoteKubeConfigFile", "RemoteKubeConfigFileOptional", "AllowCacheTTL", "DenyCacheTTL", "AlwaysAllowPaths", "AlwaysAllowGroups", "ClientTimeout", "WebhookRetryBackoff", "CustomRoundTripperFn"}
	if !slices.Equal(names, known) {
		fixed(t, "DelegatingAuthorizationOptions has the fields %v: some of them may be the limits of its client", names)
	}
}

func TestWatchesAreNotEndedByDefault(t *testing.T) {
	if period := genericoptions.NewServerRunOptions().ShutdownWatchTerminationGracePeriod; period != 0 {
		fixed(t, "watches are ended within %s by default", period)
	}
}
