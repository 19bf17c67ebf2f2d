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

package crdserver

import (
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	library "k8s.io/apiextensions-apiserver/pkg/apiserver"
	libraryoptions "k8s.io/apiextensions-apiserver/pkg/cmd/server/options"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericfilters "k8s.io/apiserver/pkg/endpoints/filters"
	"k8s.io/apiserver/pkg/registry/generic"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	genericoptions "k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/storage"
	flowcontrolrequest "k8s.io/apiserver/pkg/util/flowcontrol/request"
	"k8s.io/apiserver/pkg/util/notfoundhandler"

	"restaurant.programming-kubernetes.info/apiserver/pkg/admission"
	"restaurant.programming-kubernetes.info/apiserver/pkg/apiserver"
	"restaurant.programming-kubernetes.info/apiserver/pkg/crdserver/encodedcache"
)

// newServer returns apiextensions-apiserver's server, which serves the objects of the copies, with the
// mirror that keeps the copies.
func (o *Options) newServer(config *apiserver.Config) (*genericapiserver.GenericAPIServer, error) {
	private := &privateAPI{}
	copies := optionsOfCopies(config)
	objects := libraryoptions.NewCRDRESTOptionsGetter(*config.Etcd, config.Generic.ResourceTransformers, fewSeats{config.Generic.StorageObjectCountTracker})
	mirror, err := newMirror(o, config, copies, objects)
	if err != nil {
		return nil, err
	}
	server, err := newLibraryServer(config, private, mirror.announcer, copies, objects)
	if err != nil {
		mirror.destroy()
		return nil, err
	}
	private.takeFrom(server)
	serveDiscovery(server)
	server.RegisterDestroyFunc(mirror.destroy)
	if err := server.RegisterMuxAndDiscoveryCompleteSignal("DefinitionsNotCopied", mirror.copied); err != nil {
		return nil, err
	}
	if err := server.AddReadyzChecks(healthz.NamedCheck("definition-caches", mirror.caches.check)); err != nil {
		return nil, err
	}
	if err := server.AddPostStartHook("copy-definitions", mirror.start); err != nil {
		return nil, err
	}
	return server, nil
}

func newLibraryServer(config *apiserver.Config, private *privateAPI, announcer *announcer, copies, objects generic.RESTOptionsGetter) (*genericapiserver.GenericAPIServer, error) {
	wrapper, services, err := admission.Webhooks(config.Generic)
	if err != nil {
		return nil, err
	}
	recommended := *config.Generic
	recommended.RESTOptionsGetter = copies
	recommended.MergedResourceConfig = library.DefaultAPIResourceConfigSource()
	recommended.AggregatedDiscoveryGroupManager = observed(aggregated.NewResourceManager("apis"), announcer.changed)
	reads := &encodedcache.Handler{MinRequestTimeout: time.Duration(recommended.MinRequestTimeout) * time.Second}
	recommended.BuildHandlerChainFunc = private.inside(recommended.BuildHandlerChainFunc, reads.Before)
	custom := &library.Config{
		GenericConfig: &recommended,
		ExtraConfig: library.ExtraConfig{
			CRDRESTOptionsGetter: reads.RESTOptions(config.BaseStorage(objects, reads.NewCache)),
			MasterCount:          1,
			ServiceResolver:      services,
			AuthResolverWrapper:  wrapper,
		},
	}
	notFound := notfoundhandler.New(config.Codecs, genericfilters.NoMuxAndDiscoveryIncompleteKey)
	server, err := custom.Complete().New(genericapiserver.NewEmptyDelegateWithCustomHandler(notFound))
	if err != nil {
		return nil, err
	}
	reads.Definitions = server.Informers.Apiextensions().V1().CustomResourceDefinitions().Lister()
	return server.GenericAPIServer, nil
}

// fewSeats has lists of custom resources, and watches that begin with them, take at most two seats of priority and
// fairness. With one, as many watches as there are seats begin at once, and keep the processors busy. With ten, as the
// library estimates, a few lists that are not read keep all seats from other users. It takes no notice of statistics that
// are older than three minutes, as after an outage of etcd.
type fewSeats struct {
	flowcontrolrequest.StorageObjectCountTracker
}

// Set keeps statistics that make two seats at most.
func (t fewSeats) Set(resource string, stats storage.Stats) {
	const most = 2 * 100_000 // apiextensions-apiserver has a seat for each 100 kB.
	stats.EstimatedAverageObjectSizeBytes = min(most, max(1, stats.EstimatedAverageObjectSizeBytes))
	stats.ObjectCount = min(most/stats.EstimatedAverageObjectSizeBytes, stats.ObjectCount)
	t.StorageObjectCountTracker.Set(resource, stats)
}

// optionsOfCopies returns the storage options of the copies, with the keys that the
// definitions have in kube-apiserver.
func optionsOfCopies(config *apiserver.Config) generic.RESTOptionsGetter {
	options := *config.Etcd
	options.StorageConfig.Codec = library.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion)
	return options.CreateRESTOptionsGetter(&genericoptions.SimpleStorageFactory{StorageConfig: options.StorageConfig}, config.Generic.ResourceTransformers)
}

// serveDiscovery serves /apis with the groups of the definitions only. apiextensions-apiserver leaves
// /apis to the server that embeds it.
func serveDiscovery(server *genericapiserver.GenericAPIServer) {
	server.DiscoveryGroupManager.RemoveGroup(apiextensions.GroupName)
	server.AggregatedDiscoveryGroupManager.RemoveGroup(apiextensions.GroupName)
	root := aggregated.WrapAggregatedDiscoveryToHandler(server.DiscoveryGroupManager, server.AggregatedDiscoveryGroupManager, nil)
	server.Handler.GoRestfulContainer.Add(root.GenerateWebService(genericapiserver.APIGroupPrefix, metav1.APIGroupList{}))
}
