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
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/initializer"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	webhookinitializer "k8s.io/apiserver/pkg/admission/plugin/webhook/initializer"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	quota "k8s.io/apiserver/pkg/quota/v1/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Webhooks returns the credentials for webhooks, and a resolver of their Services. Clients
// with these credentials read only a bounded part of an answer.
func Webhooks(config *genericapiserver.RecommendedConfig) (webhook.AuthenticationInfoResolverWrapper, webhook.ServiceResolver, error) {
	services, err := newServiceResolver(config.SharedInformerFactory.Core().V1().Services().Lister(), config.ClientConfig)
	if err != nil {
		return nil, nil, err
	}
	wrapper := webhook.NewDefaultAuthenticationInfoResolverWrapper(nil, config.EgressSelector, config.ClientConfig, config.TracerProvider)
	return boundAnswers(wrapper), services, nil
}

// Initializers returns initializers for the plugins that must run after k8s.io/apiserver's own
// one. They add the access to webhooks and to parameters of policies, and the rules for
// counting objects for quota.
func Initializers(config *genericapiserver.RecommendedConfig, client dynamic.Interface) (admission.PluginInitializers, error) {
	wrapper, services, err := Webhooks(config)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(config.ClientConfig)
	if err != nil {
		return nil, err
	}
	namespaces := namespacesFor{kube}
	return admission.PluginInitializers{
		webhookinitializer.NewPluginInitializer(wrapper, services),
		initializeFunc(func(plugin admission.Interface) {
			if wants, ok := plugin.(initializer.WantsQuotaConfiguration); ok {
				// Without evaluators, quota counts all resources by object.
				wants.SetQuotaConfiguration(quota.NewConfiguration(nil, nil))
			}
		}),
		initializeFunc(func(plugin admission.Interface) {
			switch policies := plugin.(type) {
			case mutatingPolicies:
				policies.SetExternalKubeInformerFactory(newParameterInformers(config.SharedInformerFactory, client))
				policies.SetExternalKubeClientSet(namespaces)
			case *validatingpolicy.Plugin:
				policies.SetExternalKubeInformerFactory(newParameterInformers(config.SharedInformerFactory, client))
				policies.SetExternalKubeClientSet(namespaces)
			case *mutatingwebhook.Plugin:
				policies.SetExternalKubeClientSet(namespaces)
			case *validatingwebhook.Plugin:
				policies.SetExternalKubeClientSet(namespaces)
			}
		}),
	}, nil
}

// InitializerFor returns an initializer for the plugins of type P. A group's Runtime gives
// its own plugins their clients and informers with it.
func InitializerFor[P admission.Interface](initialize func(P)) admission.PluginInitializer {
	return initializeFunc(func(plugin admission.Interface) {
		if own, ok := plugin.(P); ok {
			initialize(own)
		}
	})
}

type initializeFunc func(admission.Interface)

func (f initializeFunc) Initialize(plugin admission.Interface) { f(plugin) }
