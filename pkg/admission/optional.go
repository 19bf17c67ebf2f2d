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
	"context"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// absentRetry is the interval of checks whether kube-apiserver serves a resource. It can
// be upgraded while this server runs.
const absentRetry = 30 * time.Second

// TolerateAbsence makes the factory's informers of admission configurations tolerate
// missing resources. A resource that kube-apiserver does not serve, since it is too old
// or has it disabled, counts as empty. Otherwise, the plugins that read the resource
// would refuse every request for ever. Resources that are served as v1beta1 only are read
// in that version, since kube-apiserver enforces them. Objects with a label are left out, since
// kube-apiserver alone enforces them. The caller must not have used the factory before.
// Upstream fault 64.
func TolerateAbsence(factory informers.SharedInformerFactory, label string) {
	unlabeled := func(options *metav1.ListOptions) { options.LabelSelector = "!" + label }
	for _, optional := range []struct {
		resource     string
		object, list runtime.Object
		beta         bool
	}{
		{"mutatingadmissionpolicies", &admissionregistrationv1.MutatingAdmissionPolicy{}, &admissionregistrationv1.MutatingAdmissionPolicyList{}, true},
		{"mutatingadmissionpolicybindings", &admissionregistrationv1.MutatingAdmissionPolicyBinding{}, &admissionregistrationv1.MutatingAdmissionPolicyBindingList{}, true},
		{"mutatingwebhookconfigurations", &admissionregistrationv1.MutatingWebhookConfiguration{}, &admissionregistrationv1.MutatingWebhookConfigurationList{}, false},
		{"validatingadmissionpolicies", &admissionregistrationv1.ValidatingAdmissionPolicy{}, &admissionregistrationv1.ValidatingAdmissionPolicyList{}, false},
		{"validatingadmissionpolicybindings", &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}, &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}, false},
		{"validatingwebhookconfigurations", &admissionregistrationv1.ValidatingWebhookConfiguration{}, &admissionregistrationv1.ValidatingWebhookConfigurationList{}, false},
	} {
		factory.InformerFor(optional.object, func(client kubernetes.Interface, resync time.Duration) cache.SharedIndexInformer {
			lw := &optionalListWatch{
				ListWatch: cache.NewFilteredListWatchFromClient(client.AdmissionregistrationV1().RESTClient(), optional.resource, metav1.NamespaceAll, unlabeled),
				resource:  optional.resource,
				empty:     optional.list,
			}
			if optional.beta {
				lw.beta = cache.NewFilteredListWatchFromClient(client.AdmissionregistrationV1beta1().RESTClient(), optional.resource, metav1.NamespaceAll, unlabeled)
			}
			// Without an example, it accepts objects of both versions.
			informer := cache.NewSharedIndexInformer(lw, nil, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
			_ = informer.SetTransform(fromBeta) // It fails only after the informer has started.
			return informer
		})
	}
}

// optionalListWatch lists and watches a resource that may not be served.
type optionalListWatch struct {
	*cache.ListWatch
	// beta reads the resource where it is served as v1beta1. It is nil for resources that
	// never were, with the same fields.
	beta            *cache.ListWatch
	resource        string
	empty           runtime.Object
	log, logVersion sync.Once
}

var _ cache.ListerWatcherWithContext = &optionalListWatch{}

// IsWatchListSemanticsUnSupported makes the reflector begin with a list, which can be
// empty, instead of a watch.
func (*optionalListWatch) IsWatchListSemanticsUnSupported() bool { return true }

func (o *optionalListWatch) absent(err error) bool {
	if !apierrors.IsNotFound(err) {
		return false
	}
	o.log.Do(func() {
		klog.InfoS("kube-apiserver does not serve a resource of admissionregistration.k8s.io/v1: no webhook or policy of this kind is enforced until it does",
			"resource", o.resource, "retry", absentRetry)
	})
	return true
}

// ListWithContext returns an empty list if the resource is not served.
func (o *optionalListWatch) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	list, err := o.ListWatch.ListWithContext(ctx, options)
	if apierrors.IsNotFound(err) && o.beta != nil {
		if list, err = o.beta.ListWithContext(ctx, options); err == nil {
			o.logVersion.Do(func() {
				klog.InfoS("kube-apiserver serves a resource as admissionregistration.k8s.io/v1beta1 only; it is read as that", "resource", o.resource)
			})
		}
	}
	if o.absent(err) {
		return o.empty.DeepCopyObject(), nil
	}
	return list, err
}

// WatchWithContext returns a watch without events if the resource is not served. The next
// watch begins with all objects, as the empty list has no version. If the resource was
// served before, an error makes the reflector list it, and forget its objects.
func (o *optionalListWatch) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	w, err := o.ListWatch.WatchWithContext(ctx, options)
	if apierrors.IsNotFound(err) && o.beta != nil {
		w, err = o.beta.WatchWithContext(ctx, options)
	}
	if !o.absent(err) || options.ResourceVersion != "" {
		return w, err
	}
	idle := watch.NewFake()
	time.AfterFunc(absentRetry, idle.Stop)
	return idle, nil
}
