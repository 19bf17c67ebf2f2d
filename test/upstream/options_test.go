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
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/apis/apiserver"
	apiserverinstall "k8s.io/apiserver/pkg/apis/apiserver/install"
	"k8s.io/apiserver/pkg/apis/example"
	examplev1 "k8s.io/apiserver/pkg/apis/example/v1"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/egressselector"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	encryption "k8s.io/apiserver/pkg/server/options/encryptionconfig"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/apiserver/pkg/storage/value"
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

func TestEncryptionOfNothingIsAccepted(t *testing.T) {
	const config = `
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [pod.example.apiserver.k8s.io]
  providers: [{aescbc: {keys: [{name: key, secret: c2VjcmV0IGlzIHNlY3VyZQ==}]}}]
`
	options := newEtcdOptions()
	options.EncryptionProviderConfigFilepath = writeFile(t, config)
	wantNoErrors(t, "an encryption configuration that names no resource of the server", options.Validate())
	loaded, err := encryption.LoadEncryptionConfig(t.Context(), options.EncryptionProviderConfigFilepath, false, "server")
	if err != nil {
		fixed(t, "an encryption configuration that names no resource of the server can't be loaded: %v", err)
		return
	}
	transformer := encryption.StaticTransformers(loaded.Transformers).TransformerForResource(pods)
	stored, err := transformer.TransformToStorage(t.Context(), []byte("secret"), value.DefaultContext("key"))
	if err != nil || string(stored) != "secret" {
		fixed(t, "a resource that an encryption configuration does not name is stored as %q (%v)", stored, err)
	}
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

func TestEgressOverPlainTCPPanics(t *testing.T) {
	config := &apiserver.EgressSelectorConfiguration{EgressSelections: []apiserver.EgressSelection{{
		Name: "cluster",
		Connection: apiserver.Connection{
			ProxyProtocol: apiserver.ProtocolHTTPConnect,
			Transport:     &apiserver.Transport{TCP: &apiserver.TCPTransport{URL: "http://localhost:1"}},
		},
	}}}
	if errs := egressselector.ValidateEgressSelectorConfiguration(config); len(errs) > 0 {
		fixed(t, "a proxy without TLS is refused: %v", errs)
		return
	}
	defer func() {
		if cause := recover(); cause == nil {
			fixed(t, "a proxy without TLS is valid, and does not panic")
		}
	}()
	_, _ = egressselector.NewEgressSelector(config)
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

func TestUnknownAdmissionPluginIsIgnored(t *testing.T) {
	const config = `
apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: Nonsense
`
	options := genericoptions.NewAdmissionOptions()
	options.ConfigFile = writeFile(t, config)
	wantNoErrors(t, "the configuration of an unknown admission plugin", options.Validate())
	scheme := runtime.NewScheme()
	apiserverinstall.Install(scheme)
	if _, err := admission.ReadAdmissionConfiguration([]string{"NamespaceLifecycle"}, options.ConfigFile, scheme); err != nil {
		fixed(t, "the configuration of an unknown admission plugin is refused: %v", err)
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

func TestPortIsLostWithItsListener(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	options := genericoptions.NewSecureServingOptions()
	options.BindAddress = net.IPv4(127, 0, 0, 1)
	options.BindPort = listener.Addr().(*net.TCPAddr).Port
	var info *genericapiserver.SecureServingInfo
	if err := options.ApplyTo(&info); err == nil {
		t.Fatal("a port is listened on twice")
	}
	if options.BindPort != 0 {
		fixed(t, "the port that could not be listened on is still known: %d", options.BindPort)
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

func TestGroupsShareAStorageVersion(t *testing.T) {
	options := newEtcdOptions()
	config, _, codecs := newConfig(t)
	options.StorageConfig.Codec = codecs.LegacyCodec(examplev1.SchemeGroupVersion)
	options.SkipHealthEndpoints = true
	if err := options.ApplyTo(&config.Config); err != nil {
		t.Fatal(err)
	}
	other, err := config.RESTOptionsGetter.GetRESTOptions(schema.GroupResource{Group: "other.example.com", Resource: "others"}, &example.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	if other.StorageConfig.Codec.Identifier() != options.StorageConfig.Codec.Identifier() {
		fixed(t, "EtcdOptions.ApplyTo stores another group in a version of its own")
	}
}

func TestLivezDependsOnEtcd(t *testing.T) {
	config, _, _ := newConfig(t)
	options := newEtcdOptions()
	if err := options.ApplyTo(&config.Config); err != nil {
		t.Fatal(err)
	}
	for _, check := range config.LivezChecks {
		if check.Name() == "etcd" {
			return
		}
	}
	fixed(t, "/livez has no check of etcd")
}

func TestWatchesAreNotEndedByDefault(t *testing.T) {
	if period := genericoptions.NewServerRunOptions().ShutdownWatchTerminationGracePeriod; period != 0 {
		fixed(t, "watches are ended within %s by default", period)
	}
}

// recommended applies the recommended options with these.
func recommended(t *testing.T, configure func(*genericoptions.RecommendedOptions)) *genericapiserver.RecommendedConfig {
	t.Helper()
	config, _, codecs := newConfig(t)
	config.LoopbackClientConfig = nil
	options := genericoptions.NewRecommendedOptions("/registry", codecs.LegacyCodec(examplev1.SchemeGroupVersion))
	options.Etcd.SkipHealthEndpoints = true
	options.Etcd.StorageConfig.Transport.ServerList = []string{"http://localhost:1"}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	options.SecureServing.Listener = listener
	options.SecureServing.ServerCert.CertDirectory = ""
	if err := options.SecureServing.MaybeDefaultWithSelfSignedCerts("localhost", nil, nil); err != nil {
		t.Fatal(err)
	}
	options.Authentication, options.Authorization, options.Admission = nil, nil, nil
	options.CoreAPI.CoreAPIKubeconfigPath = writeFile(t, `{apiVersion: v1, kind: Config, clusters: [{name: a, cluster: {server: "https://localhost:1"}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`)
	options.Features.EnablePriorityAndFairness = false
	configure(options)
	if err := options.ApplyTo(config); err != nil {
		t.Fatal(err)
	}
	return config
}

// TestRecommendedOptions has an egress selection and tracing.
func TestRecommendedOptions(t *testing.T) {
	config := recommended(t, func(options *genericoptions.RecommendedOptions) {
		options.EgressSelector.ConfigFile = writeFile(t, `
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: controlplane
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /nowhere}}}
- name: etcd
  connection: {proxyProtocol: HTTPConnect, transport: {uds: {udsName: /nowhere}}}
`)
		options.Traces.ConfigFile = writeFile(t, "apiVersion: apiserver.config.k8s.io/v1\nkind: TracingConfiguration\nsamplingRatePerMillion: 1000000\n")
	})
	stored, err := config.RESTOptionsGetter.GetRESTOptions(pods, &example.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	etcd, loopback := stored.StorageConfig.Transport, config.LoopbackClientConfig
	each(t, map[int]bool{
		47: config.ClientConfig.Dial == nil && etcd.EgressLookup == nil,
		48: etcd.TracerProvider != config.TracerProvider && loopback.WrapTransport == nil,
		52: loopback.Proxy == nil,
		53: loopback.WarningHandler == nil && loopback.WarningHandlerWithContext == nil,
	}, func(t *testing.T, is bool) {
		if !is {
			fixed(t, "the recommended options have another effect")
		}
	})
}
