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
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
)

// discoveryAnnotation is an annotation of the APIServices of versions with changed resources.
// It has a hash of the resources, and the server that has written it.
const discoveryAnnotation = "crd-apiserver/discovery"

// announcer makes kube-apiserver read a version's discovery as soon as it has changed.
//
// kube-apiserver reads discovery once a minute, and whenever an APIService changes. Until then
// clients do not know a new kind, although its definition is Established.
//
// kube-apiserver may read a replica that does not serve the kind yet. Therefore each replica
// changes the annotation once it serves the kind, whatever other replicas have written.
type announcer struct {
	registrar *registrar
	replica   string
	queue     workqueue.TypedRateLimitingInterface[string]
	// announced are hashes by the names of APIServices. Only the worker uses it.
	announced map[string]string

	lock sync.Mutex
	// served are the hashes of this server's discovery now.
	served map[string]string
}

func newAnnouncer(registrar *registrar) *announcer {
	return &announcer{
		registrar: registrar,
		replica:   string(uuid.NewUUID()),
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]()),
		announced: map[string]string{},
		served:    map[string]string{},
	}
}

// changed is called for each version in discovery.
func (a *announcer) changed(group string, version apidiscoveryv2.APIVersionDiscovery) {
	content, err := json.Marshal(version.Resources)
	if err != nil {
		klog.ErrorS(err, "A changed version can't be announced: kube-apiserver asks within a minute", "group", group, "version", version.Version)
		return
	}
	name := version.Version + "." + group
	a.lock.Lock()
	a.served[name] = fmt.Sprintf("%x", sha256.Sum256(content))[:16]
	a.lock.Unlock()
	a.queue.Add(name)
}

// announce changes an APIService that leads to this server, unless kube-apiserver knows the
// resources.
func (a *announcer) announce(ctx context.Context, name string) error {
	a.lock.Lock()
	hash := a.served[name]
	a.lock.Unlock()
	before, known := a.announced[name]
	if before == hash {
		return nil
	}
	apiService, err := a.registrar.apiServices.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		written, _, _ := strings.Cut(apiService.Annotations[discoveryAnnotation], "/")
		leadsHere := apiService.Spec.Service != nil && a.registrar.leadsHere(apiService.Spec.Service)
		// A starting server gets no requests before it serves everything.
		if leadsHere && (known || written != hash) {
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, discoveryAnnotation, hash+"/"+a.replica)
			_, err = a.registrar.apiServices.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		}
	}
	switch {
	case apierrors.IsForbidden(err):
		klog.ErrorS(err, "Clients learn of new kinds within a minute only; bind a ClusterRole to the user of this server that allows get and patch on apiservices", "apiService", name)
	case err != nil && !apierrors.IsNotFound(err): // It asks when the version is registered.
		return err
	}
	a.announced[name] = hash
	return nil
}

// observed returns a manager that calls a function for each added version.
func observed(manager aggregated.ResourceManager, added func(group string, version apidiscoveryv2.APIVersionDiscovery)) aggregated.ResourceManager {
	return observedManager{manager, added}
}

type observedManager struct {
	aggregated.ResourceManager
	added func(group string, version apidiscoveryv2.APIVersionDiscovery)
}

func (m observedManager) AddGroupVersion(group string, version apidiscoveryv2.APIVersionDiscovery) {
	m.ResourceManager.AddGroupVersion(group, version)
	m.added(group, version)
}

func (m observedManager) WithSource(source aggregated.Source) aggregated.ResourceManager {
	return observed(m.ResourceManager.WithSource(source), m.added)
}
