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

package doctor

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// certificateName is the annotation of cert-manager on the Secret of a Certificate.
const certificateName = "cert-manager.io/certificate-name"

// servedSecret is a Secret that the pods of a server may take their certificate from.
type servedSecret struct {
	*corev1.Secret
	chain []*x509.Certificate
}

// checkBundle checks certificates without connecting to the server, and returns when the caBundle
// expires. It looks at that, and at the readable Secrets of the server's pods.
func (e *examination) checkBundle(ctx context.Context, b backend, trust *trust) (results []Finding, end time.Time) {
	bundle := parseCertificates([]byte(trust.bundle))
	named := "caBundle of " + listed(trust.apiServices)
	if len(bundle) == 0 && trust.bundle != "" {
		_, err := trusting([]byte(trust.bundle), named)
		return []Finding{explain(named, Failure, err).by(e.trustServed(ctx, b))}, end
	}
	if len(bundle) > 0 {
		last := slices.MaxFunc(bundle, func(a, b *x509.Certificate) int { return a.NotAfter.Compare(b.NotAfter) })
		end = last.NotAfter
		if time.Now().After(end) {
			return []Finding{failure(fmt.Sprintf("the %s %s", named, expiring(end)), "put the certificate authority that issued the server's certificate into it").by(e.trustServed(ctx, b)).since(metav1.NewTime(end))}, end
		}
		if renewalDue(last, time.Now()) {
			results = append(results, warning(fmt.Sprintf("the %s %s", named, expiring(end)), "renew the certificate authority, and put the new one beside it").by(show(trust.apiServices)))
		}
	}
	if e.unavailable().Type != "" {
		return append(results, skipped("whether kube-apiserver trusts the certificate that %s serves is in what it says of its availability", b)), end
	}
	return append(results, e.checkSecrets(ctx, b, trust, bundle, e.servedSecrets(ctx, b))...), end
}

// checkSecrets looks for certificates that would be served, but soon expire or are not trusted.
func (e *examination) checkSecrets(ctx context.Context, b backend, trust *trust, bundle []*x509.Certificate, secrets []servedSecret) (results []Finding) {
	roots := x509.NewCertPool()
	for _, certificate := range bundle {
		roots.AddCert(certificate)
	}
	for _, secret := range secrets {
		if len(secret.chain) == 0 || secret.chain[0].VerifyHostname(b.host()) != nil {
			continue // The certificate is for something else, since kube-apiserver trusts the server.
		}
		leaf := secret.chain[0]
		if renewalDue(leaf, time.Now()) {
			results = append(results, warning(fmt.Sprintf("the certificate in the Secret %s/%s %s", secret.Namespace, secret.Name, expiring(leaf.NotAfter)), "renew it").
				by(e.reissue(ctx, b)))
			continue
		}
		intermediates := x509.NewCertPool()
		for _, certificate := range secret.chain[1:] {
			intermediates.AddCert(certificate)
		}
		if _, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: intermediates}); err != nil && len(bundle) > 0 {
			results = append(results, warning(fmt.Sprintf("the certificate in the Secret %s/%s is not of caBundle, so that kube-apiserver refuses the server once it serves that (%v)", secret.Namespace, secret.Name, err),
				"put the certificate authority that issued it into caBundle of "+listed(trust.apiServices)+", beside the present one").
				by(kubectl("get", "secret", secret.Name, b.flag(), `--output=jsonpath={.data.ca\.crt}`)))
		}
	}
	return results
}

// servedSecrets returns the Secrets that the server's pods mount.
func (e *examination) servedSecrets(ctx context.Context, b backend) (secrets []servedSecret) {
	found, _ := e.look(ctx, b)
	for _, volume := range found.podSpec().Volumes {
		if volume.Secret == nil {
			continue
		}
		secret, err := e.kube.CoreV1().Secrets(b.namespace).Get(ctx, volume.Secret.SecretName, metav1.GetOptions{})
		if err != nil {
			continue
		}
		secrets = append(secrets, servedSecret{secret, parseCertificates(secret.Data[corev1.TLSCertKey])})
	}
	return secrets
}

// parseCertificates returns the certificates in PEM data.
func parseCertificates(data []byte) (certificates []*x509.Certificate) {
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil {
			certificates = append(certificates, certificate)
		}
	}
	return certificates
}

// trustServed returns a command that makes the unavailable APIServices of a Service trust the
// certificate authority of a Secret of the server's pods. Without one, it shows the APIServices.
func (e *examination) trustServed(ctx context.Context, b backend) string {
	unavailable := slices.DeleteFunc(e.leadingTo(b), func(apiService *apiregistrationv1.APIService) bool {
		return availability(apiService).Status == apiregistrationv1.ConditionTrue || apiService.Spec.InsecureSkipTLSVerify
	})
	for _, secret := range e.servedSecrets(ctx, b) {
		if len(secret.Data["ca.crt"]) > 0 && len(unavailable) > 0 {
			return kubectl(slices.Concat([]string{"patch", "apiservice"}, namesOf(unavailable), []string{"--type=merge"})...) +
				` --patch='{"spec":{"caBundle":"'$(` + kubectl("get", "secret", secret.Name, b.flag(), `--output=jsonpath={.data.ca\.crt}`) + `)'"}}'`
		}
	}
	return show(e.leadingTo(b))
}

// show returns a command that shows APIServices.
func show(apiServices []*apiregistrationv1.APIService) string {
	return kubectl(slices.Concat([]string{"get", "apiservice"}, namesOf(apiServices), []string{"--output=yaml"})...)
}

// reissue returns a command that shows why cert-manager does not issue the certificate again, or
// has the server do so itself.
func (e *examination) reissue(ctx context.Context, b backend) string {
	for _, secret := range e.servedSecrets(ctx, b) {
		if name := secret.Annotations[certificateName]; name != "" {
			return kubectl("describe", "certificates.cert-manager.io", name, b.flag())
		}
	}
	return e.restart(ctx, b)
}
