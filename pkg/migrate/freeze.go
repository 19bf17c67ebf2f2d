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

package migrate

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
)

const (
	// freezeTimeout bounds the wait for kube-apiserver to ask before each write.
	freezeTimeout = 20 * time.Second
	// freezeSettle is how long after that it takes until every other kube-apiserver does.
	freezeSettle = 2 * time.Second
	// minRetryAfter is how many seconds clients wait at first before they try again to write, and
	// maxRetryAfter what that comes to, since it is a half of how long writes have waited. The ten
	// retries of client-go are over after some 40 seconds like this, not after ten.
	minRetryAfter, maxRetryAfter = 1, 15
	// maxReviewBytes is above what kube-apiserver sends: two objects of the largest size.
	maxReviewBytes = 16 << 20
)

// freezer tells kube-apiserver, and the server, that a write has to wait. They ask it as a
// webhook, and pass on its 429 with Retry-After, on which clients try again by themselves. A
// ValidatingAdmissionPolicy can only refuse, and while nobody listens the writes fail, too.
type freezer struct {
	server   *http.Server
	caBundle []byte
	// asked is set when all writers ask this process.
	asked bool
	// questions counts the writes that were to be refused, of which the first came at first.
	questions atomic.Int64
	first     func() time.Time
}

// listen begins to answer.
func (m *Migration) listen() (*freezer, error) {
	host, _, err := net.SplitHostPort(m.config.FreezeAddress)
	if err != nil {
		return nil, fmt.Errorf("the address %q for the time of the freeze must be host:port: %w", m.config.FreezeAddress, err)
	}
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey(host, nil, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", m.config.FreezeAddress)
	if err != nil {
		return nil, fmt.Errorf("listening for the time of the freeze: %w", err)
	}
	f := &freezer{caBundle: certPEM, first: sync.OnceValue(time.Now)}
	f.server = &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, ErrorLog: klog.NewStandardLogger("INFO")}
	tlsListener := tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	go func() { _ = f.server.Serve(tlsListener) }()
	return f, nil
}

// leave ends the answers. If writes are not frozen any more it waits until nobody asks:
// kube-apiserver and the server do for a moment after the webhook has been deleted, and a write
// whose question is not answered fails.
func (m *Migration) leave(f *freezer) {
	defer f.close()
	ctx, cancel := context.WithTimeout(context.Background(), freezeTimeout)
	defer cancel()
	_, err := m.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, m.freezeName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		f.awaitSilence(ctx, freezeSettle)
	}
}

// awaitSilence waits until nobody has asked for some time, if anybody ever has.
func (f *freezer) awaitSilence(ctx context.Context, silence time.Duration) {
	for before := int64(0); ctx.Err() == nil && f.questions.Load() != before; {
		before = f.questions.Load()
		select {
		case <-time.After(silence):
		case <-ctx.Done():
		}
	}
}

// close answers what is on its way before it closes the connections.
func (f *freezer) close() {
	ctx, cancel := context.WithTimeout(context.Background(), freezeSettle)
	defer cancel()
	if f.server.Shutdown(ctx) != nil {
		_ = f.server.Close()
	}
}

// ServeHTTP refuses a write.
func (f *freezer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.questions.Add(1)
	refuse(w, r, retryAfter(time.Since(f.first())))
}

// retryAfter returns how many seconds a client waits that has to after writes have waited so long.
func retryAfter(waited time.Duration) int32 {
	return int32(min(max(waited/(2*time.Second), minRetryAfter), maxRetryAfter))
}

// refuse answers an AdmissionReview.
func refuse(w http.ResponseWriter, r *http.Request, retryAfter int32) {
	var review admissionv1.AdmissionReview
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxReviewBytes))
	if err == nil {
		err = json.Unmarshal(content, &review)
	}
	if err == nil && review.Request == nil {
		err = errors.New("the request is missing")
	}
	if err != nil {
		http.Error(w, "an AdmissionReview is expected: "+err.Error(), http.StatusBadRequest)
		return
	}
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{
		Code:    http.StatusTooManyRequests,
		Reason:  metav1.StatusReasonTooManyRequests,
		Message: "the objects are being moved to another server: try again in a moment",
		Details: &metav1.StatusDetails{RetryAfterSeconds: retryAfter},
	}}
	review.Request = nil
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

// freezeName is the name of the webhook's configuration.
func (m *Migration) freezeName() string { return "migrate." + m.config.Group }

// webhookName is in the error that clients get if nobody listens any more.
func (m *Migration) webhookName() string {
	return "frozen-until-migrate-run-back-or-abort." + m.config.Group
}

// owner says which process freezes writes, and who can end that.
func (m *Migration) owner() map[string]string {
	host, _ := os.Hostname()
	return map[string]string{
		"migrate/owner": fmt.Sprintf("process %d on %s, listening at %s, since %s", os.Getpid(), host, m.config.FreezeAddress, time.Now().UTC().Format(time.RFC3339)),
		"migrate/end":   "if that process has ended, run the same command again, or \"migrate abort\"",
	}
}

// frozenVersions are those in which clients write. In the version of addBypass this process does.
func (m *Migration) frozenVersions(ctx context.Context) ([]string, error) {
	found, err := m.definitions(ctx)
	if err != nil {
		return nil, err
	}
	versions := sets.New[string]()
	for _, d := range found {
		for _, version := range d.Spec.Versions {
			versions.Insert(version.Name)
		}
	}
	for _, store := range m.config.Stores {
		versions.Insert(store.Versions...)
	}
	return sets.List(versions.Delete(BypassVersion)), nil
}

// freeze makes kube-apiserver ask before each write, and returns when it does. Writes fail if
// this process can't be asked, but only from the time on when it could.
func (m *Migration) freeze(ctx context.Context, f *freezer) error {
	if f.asked {
		return nil
	}
	policy := admissionregistrationv1.Fail
	_, err := m.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, m.freezeName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		policy = admissionregistrationv1.Ignore
	case err != nil:
		return fmt.Errorf("reading the webhook that freezes writes: %w", err)
	}
	if err := m.ask(ctx, f, policy); err != nil {
		return err
	}
	if err := eventually(ctx, freezeTimeout, m.frozen); err != nil {
		return fmt.Errorf("kube-apiserver does not reach this process at %s, to ask whether writes are allowed: choose another --freeze-address: %w", m.config.FreezeAddress, err)
	}
	if err := m.ask(ctx, f, admissionregistrationv1.Fail); err != nil {
		return err
	}
	if err := settle(ctx); err != nil {
		return err
	}
	f.asked = true
	return nil
}

// settle waits until all kube-apiservers know what one knows.
func settle(ctx context.Context) error {
	select {
	case <-time.After(freezeSettle):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ask makes kube-apiserver ask this process before each write.
func (m *Migration) ask(ctx context.Context, f *freezer, policy admissionregistrationv1.FailurePolicyType) error {
	none, timeout, force := admissionregistrationv1.SideEffectClassNone, int32(5), true
	url := "https://" + m.config.FreezeAddress + "/"
	versions, err := m.frozenVersions(ctx)
	if err != nil {
		return err
	}
	exact := admissionregistrationv1.Exact
	content, err := json.Marshal(&admissionregistrationv1.ValidatingWebhookConfiguration{
		TypeMeta:   metav1.TypeMeta{APIVersion: admissionregistrationv1.SchemeGroupVersion.String(), Kind: "ValidatingWebhookConfiguration"},
		ObjectMeta: metav1.ObjectMeta{Name: m.freezeName(), Annotations: m.owner()},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    m.webhookName(),
			MatchPolicy:             &exact,
			AdmissionReviewVersions: []string{"v1"},
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &url, CABundle: f.caBundle},
			FailurePolicy:           &policy,
			SideEffects:             &none,
			TimeoutSeconds:          &timeout,
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{m.config.Group}, APIVersions: versions, Resources: []string{"*/*"}},
			}},
		}},
	})
	if err != nil {
		return err
	}
	_, err = m.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().
		Patch(ctx, m.freezeName(), types.ApplyPatchType, content, metav1.PatchOptions{FieldManager: "migrate", Force: &force})
	if err != nil {
		return fmt.Errorf("creating the webhook that freezes writes: %w", err)
	}
	return nil
}

// frozen returns an error unless a write has to wait. It tries one that would change nothing.
func (m *Migration) frozen(ctx context.Context) error {
	moves, err := m.moves(ctx)
	if err != nil {
		return err
	}
	for _, move := range moves {
		err := m.tryWrite(ctx, move)
		if err == nil {
			return fmt.Errorf("%s can still be written", move.GroupResource)
		}
		if !m.waits(err) {
			return err
		}
	}
	return nil
}

// tryWrite is a dry run of two ways to write an object, if there is one. The first could be
// invalid for other reasons, and the second be refused by another webhook.
func (m *Migration) tryWrite(ctx context.Context, move move) error {
	list, err := m.dynamic.Resource(move.from).List(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return apierrors.NewTooManyRequests(m.webhookName()+" has nothing to be tried with", minRetryAfter)
	}
	object := list.Items[0]
	path := []string{"apis", move.from.Group, move.from.Version}
	if move.Namespaced {
		path = append(path, "namespaces", object.GetNamespace())
	}
	path = append(path, move.from.Resource, object.GetName())
	patch := `{"metadata":{"annotations":{"` + m.freezeName() + `":"dry run"}}}`
	client := m.kube.Discovery().RESTClient()
	for _, request := range []*rest.Request{client.Patch(types.MergePatchType).Body([]byte(patch)), client.Delete()} {
		err = request.AbsPath(path...).Param("dryRun", metav1.DryRunAll).MaxRetries(0).Do(ctx).Error()
		if m.waits(err) {
			return err
		}
	}
	return err
}

// waits tells whether an error is what the webhook answers.
func (m *Migration) waits(err error) bool {
	return apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), m.webhookName())
}

// thaw lets clients write again.
func (m *Migration) thaw(ctx context.Context) error {
	err := m.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(ctx, m.freezeName(), metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the webhook that freezes writes: %w", err)
	}
	return nil
}
