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
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/compatibility"
)

// recommended returns the config of a server in a cluster at an address.
func recommended(kubeAPIServer string) *genericapiserver.RecommendedConfig {
	config := genericapiserver.NewRecommendedConfig(serializer.NewCodecFactory(runtime.NewScheme()))
	config.EffectiveVersion = compatibility.NewEffectiveVersionFromString("1.37", "", "")
	config.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	config.ClientConfig = &rest.Config{Host: kubeAPIServer}
	config.SharedInformerFactory = informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	return config
}

// With the initializers, a chain of all plugins is valid. Without them, it is
// not.
func TestInitializers(t *testing.T) {
	for name, test := range map[string]struct {
		without bool
		wantErr string
	}{
		"with them":    {false, ""},
		"without them": {true, `failed to initialize admission plugin "ResourceQuota": missing quotaConfiguration`},
	} {
		t.Run(name, func(t *testing.T) {
			config, client := recommended("https://kube-apiserver.example.com"), dynamicfake.NewSimpleDynamicClient(runtime.NewScheme())
			initializers, err := Initializers(config, client)
			if err != nil {
				t.Fatal(err)
			}
			if test.without {
				initializers = nil
			}
			kube, err := kubernetes.NewForConfig(config.ClientConfig) // Nothing is sent.
			if err != nil {
				t.Fatal(err)
			}
			err = Options(Plugins()).ApplyTo(&config.Config, config.SharedInformerFactory, kube, client,
				utilfeature.DefaultFeatureGate, config.EffectiveVersion, initializers...)
			if (err != nil || test.wantErr != "") && (err == nil || !strings.Contains(err.Error(), test.wantErr)) {
				t.Errorf("got the error %v, want %q", err, test.wantErr)
			}
		})
	}
	const want = `the address of kube-apiserver: host must be a URL or a host:port pair: "https://kube-apiserver:port"`
	if _, err := Initializers(recommended("https://kube-apiserver:port"), nil); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
