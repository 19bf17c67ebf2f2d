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

package main

import (
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/registry"

	"example.com/bakery/apis/bakery"
	bakeryv1 "example.com/bakery/apis/bakery/v1"
	bakeryv1alpha1 "example.com/bakery/apis/bakery/v1alpha1"
	"example.com/bakery/baking"
	"example.com/bakery/generated/clientset/versioned"
	"example.com/bakery/generated/informers/externalversions"
	"example.com/bakery/generated/openapi"
	"example.com/bakery/kinds"
	"example.com/bakery/shelves"
)

// bakeryGroup declares bakery.example.com.
func bakeryGroup() registry.Group {
	return registry.Group{
		Name:      bakery.GroupName,
		Install:   install,
		OpenAPI:   openapi.GetOpenAPIDefinitions,
		Kinds:     []registry.Declaration{kinds.Bread()},
		Admission: []admission.Plugin{shelves.Plugin()},
		Runtime:   connect,
	}
}

func install(scheme *runtime.Scheme) {
	utilruntime.Must(bakery.AddToScheme(scheme))
	for _, add := range []func(*runtime.Scheme) error{
		bakeryv1.AddToScheme, bakeryv1.RegisterDefaults,
		bakeryv1alpha1.AddToScheme, bakeryv1alpha1.RegisterDefaults,
	} {
		utilruntime.Must(add(scheme))
	}
	utilruntime.Must(scheme.SetVersionPriority(bakeryv1.SchemeGroupVersion, bakeryv1alpha1.SchemeGroupVersion))
}

// connect makes what uses the API inside the server.
func connect(clients registry.Clients) (registry.Runtime, error) {
	loopback := rest.CopyConfig(clients.Loopback)
	loopback.ContentType = runtime.ContentTypeProtobuf
	client, err := versioned.NewForConfig(loopback)
	if err != nil {
		return registry.Runtime{}, err
	}
	informers := externalversions.NewSharedInformerFactory(client, 0)
	return registry.Runtime{
		Informers:   informers,
		Admission:   shelves.Initializer(client.BakeryV1()),
		Controllers: []registry.Controller{baking.New(client.BakeryV1(), informers.Bakery().V1().Breads())},
	}, nil
}
