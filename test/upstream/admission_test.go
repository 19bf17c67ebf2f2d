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
	"context"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/configuration"
	"k8s.io/apiserver/pkg/server/healthz"
	"k8s.io/apiserver/pkg/util/webhook"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// enough is more than any answer of a webhook.
const enough = 64 << 20

// endless is an answer that is cut off only by the test.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	if e.read >= enough {
		return 0, errors.New("this has been enough")
	}
	clear(p)
	e.read += len(p)
	return len(p), nil
}

type transportFunc func(*http.Request) (*http.Response, error)

func (f transportFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func TestWebhookAnswerIsReadToItsEnd(t *testing.T) {
	manager, err := webhook.NewClientManager([]schema.GroupVersion{admissionv1.SchemeGroupVersion}, admissionv1.AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	body := &endless{}
	config := &rest.Config{Transport: transportFunc(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(body), Request: req}, nil
	})}
	manager.SetAuthenticationInfoResolver(&webhook.AuthenticationInfoResolverDelegator{
		ClientConfigForFunc: func(string) (*rest.Config, error) { return config, nil },
	})
	manager.SetServiceResolver(webhook.NewDefaultServiceResolver())
	client, err := manager.HookClient(webhook.ClientConfig{Name: "endless", URL: "http://localhost:1"})
	if err != nil {
		t.Fatal(err)
	}
	_ = client.Post().Body(&admissionv1.AdmissionReview{}).Do(t.Context()).Error()
	if body.read < enough {
		fixed(t, "of an endless answer of a webhook, only %d bytes are read", body.read)
	}
}

func TestWebhookServiceIsFoundByDNS(t *testing.T) {
	address, err := webhook.NewDefaultServiceResolver().ResolveEndpoint("default", "webhook", 443)
	if err != nil || address.Hostname() != "webhook.default.svc" {
		fixed(t, "a Service is resolved to %v (%v)", address, err)
	}
}

func TestStoppedInformerDoesNotStartAgain(t *testing.T) {
	factory := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	parameters := corev1.SchemeGroupVersion.WithResource("configmaps")
	first, err := factory.ForResource(parameters)
	if err != nil {
		t.Fatal(err)
	}
	// As the plugin does when the first policy with these parameters comes, and when the
	// last one goes.
	stop := make(chan struct{})
	informer := first.Informer()
	factory.Start(stop)
	close(stop)
	eventually(t, informer.IsStopped)

	again, err := factory.ForResource(parameters)
	if err != nil {
		t.Fatal(err)
	}
	factory.Start(t.Context().Done())
	if !again.Informer().IsStopped() {
		fixed(t, "a shared informer that has been stopped starts again")
	}
}

// refusing returns informers of a kube-apiserver that answers with an error, and waits
// until one has been told so a second time.
func refusing(t *testing.T, reason error, ask func(informers.SharedInformerFactory)) informers.SharedInformerFactory {
	t.Helper()
	client, asked := fake.NewClientset(), make(chan struct{})
	refuse := func(clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case asked <- struct{}{}:
		case <-t.Context().Done():
		}
		return true, nil, reason
	}
	client.PrependReactor("list", "*", refuse)
	factory := informers.NewSharedInformerFactory(client, 0)
	ask(factory)
	factory.Start(t.Context().Done())
	for range 2 {
		select {
		case <-asked:
		case <-time.After(patience):
			fixed(t, "an informer does not ask again after %v", reason)
		}
	}
	return factory
}

// eventually waits for what is going to happen.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, patience, true, func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		t.Fatal(err)
	}
}

func TestForbiddenParametersMakeServerUnready(t *testing.T) {
	factory := refusing(t, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", errors.New("no role")), func(factory informers.SharedInformerFactory) {
		// As a policy with parameters of this kind does.
		if _, err := factory.ForResource(corev1.SchemeGroupVersion.WithResource("configmaps")); err != nil {
			t.Fatal(err)
		}
	})
	if err := healthz.NewInformerSyncHealthz(factory).Check(nil); err == nil {
		fixed(t, "an informer of what is forbidden does not make a server unready")
	}
}

func TestAbsentWebhookConfigurationsNeverSync(t *testing.T) {
	resource := admissionregistrationv1.Resource("validatingwebhookconfigurations")
	synced := func() bool { return true }
	refusing(t, apierrors.NewNotFound(resource, ""), func(factory informers.SharedInformerFactory) {
		synced = configuration.NewValidatingWebhookConfigurationManager(factory, nil).HasSynced
	})
	if synced() {
		fixed(t, "webhooks of a kube-apiserver that does not have the resource count as none")
	}
}
