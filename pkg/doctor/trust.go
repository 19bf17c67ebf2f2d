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
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// certificateName is the annotation of cert-manager on the Secret of a Certificate.
const certificateName = "cert-manager.io/certificate-name"

// servedSecret is a Secret that the pods of a server may take their certificate from.
type servedSecret struct {
	*corev1.Secret
	chain []*x509.Certificate
}

// checkTrust checks certificates without connecting to the server. It uses the condition Available,
// the caBundles, and the readable Secrets of the server's pods.
func (e *examination) checkTrust(ctx context.Context, b backend) (results []Finding) {
	secrets := e.servedSecrets(ctx, b)
	var expires time.Time
	for _, trust := range e.trusts(b) {
		if trust.anybody {
			results = append(results, warning(listed(trust.apiServices)+" trusts any server, since insecureSkipTLSVerify is set", "set caBundle instead").
				by(show(trust)))
			continue
		}
		found, end := e.checkBundle(ctx, b, trust, secrets)
		results = append(results, found...)
		if expires.IsZero() || end.Before(expires) {
			expires = end
		}
	}
	if expires.IsZero() {
		return orOK(results, "kube-apiserver trusts the server, by the certificate authorities of its machine")
	}
	return orOK(results, "kube-apiserver trusts the server, by a caBundle that is valid until %s", date(expires))
}

// checkBundle checks a caBundle, and returns when it expires.
func (e *examination) checkBundle(ctx context.Context, b backend, trust *trust, secrets []servedSecret) (results []Finding, end time.Time) {
	bundle := parseCertificates([]byte(trust.bundle))
	named := "caBundle of " + listed(trust.apiServices)
	if len(bundle) == 0 && trust.bundle != "" {
		_, err := trusting([]byte(trust.bundle), named)
		return []Finding{explain(named, Failure, err).by(trustCommand(trust, secrets))}, end
	}
	for _, certificate := range bundle {
		if certificate.NotAfter.After(end) {
			end = certificate.NotAfter
		}
	}
	if len(bundle) > 0 && time.Now().After(end) {
		return []Finding{failure(fmt.Sprintf("the %s %s", named, expiring(end)), "put the certificate authority that issued the server's certificate into it").by(trustCommand(trust, secrets)).since(metav1.NewTime(end))}, end
	}
	if found := e.checkHandshake(ctx, b, trust, secrets); len(found) > 0 {
		return found, end
	}
	for _, certificate := range bundle {
		if certificate.NotAfter.Equal(end) && renewalDue(certificate, time.Now()) {
			results = append(results, warning(fmt.Sprintf("the %s %s", named, expiring(end)), "renew the certificate authority, and put the new one beside it").by(show(trust)))
		}
	}
	return append(results, e.checkSecrets(ctx, b, trust, bundle, secrets)...), end
}

// checkHandshake explains kube-apiserver's errors about the server's certificate.
func (e *examination) checkHandshake(ctx context.Context, b backend, trust *trust, secrets []servedSecret) []Finding {
	of := listed(trust.apiServices)
	untrusted, fix := "is of another certificate authority than those of caBundle", "put the one that issued it into caBundle of "+of
	if trust.bundle == "" {
		untrusted, fix = "is of a certificate authority that kube-apiserver's machine does not know, and "+of+" has no caBundle", "set caBundle to the one that issued it"
	}
	for _, apiService := range trust.apiServices {
		condition := availability(apiService)
		for _, kind := range []struct{ message, cause, fix, command string }{
			{`certificate has expired or is not yet valid`, "has expired, or is not valid yet", "renew it", e.reissue(ctx, b, secrets)},
			{`certificate is (not )?valid for|IP SANs|legacy Common Name|not valid for any names`, "is for another name", "issue one for " + b.host(), e.reissue(ctx, b, secrets)},
			{`unknown authority|certificate is not (trusted|standards compliant)|failed to verify certificate`, untrusted, fix, trustCommand(trust, secrets)},
		} {
			if regexp.MustCompile(kind.message).MatchString(condition.Message) {
				return []Finding{failure(fmt.Sprintf("the certificate that the server serves %s (%s)", kind.cause, brief(condition.Message)), kind.fix).by(kind.command)}
			}
		}
	}
	return nil
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
				by(e.reissue(ctx, b, []servedSecret{secret})))
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
	found, err := e.look(ctx, b)
	if err != nil {
		return nil
	}
	var volumes []corev1.Volume
	if len(found.pods) > 0 {
		volumes = found.pods[0].Spec.Volumes
	} else if found.deployment != nil {
		volumes = found.deployment.Spec.Template.Spec.Volumes
	}
	for _, volume := range volumes {
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

// trustCommand returns a command that makes APIServices that trust nothing useful trust the
// certificate authority of a Secret.
func trustCommand(trust *trust, secrets []servedSecret) string {
	for _, secret := range secrets {
		if len(secret.Data["ca.crt"]) > 0 {
			return kubectl(slices.Concat([]string{"patch", "apiservice"}, namesOf(trust.apiServices), []string{"--type=merge"})...) +
				` --patch='{"spec":{"caBundle":"'$(` + kubectl("get", "secret", secret.Name, "--namespace="+secret.Namespace, `--output=jsonpath={.data.ca\.crt}`) + `)'"}}'`
		}
	}
	return show(trust)
}

// show returns a command that shows APIServices.
func show(trust *trust) string {
	return kubectl(slices.Concat([]string{"get", "apiservice"}, namesOf(trust.apiServices), []string{"--output=yaml"})...)
}

// reissue returns a command that shows why cert-manager does not issue the certificate again, or
// has the server do so itself.
func (e *examination) reissue(ctx context.Context, b backend, secrets []servedSecret) string {
	for _, secret := range secrets {
		if name := secret.Annotations[certificateName]; name != "" {
			return kubectl("describe", "certificates.cert-manager.io", name, b.flag())
		}
	}
	return e.restart(ctx, b)
}
