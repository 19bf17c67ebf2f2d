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
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"
)

const (
	// logLines and logBytes bound the log of a container, from its end.
	logLines = 20000
	logBytes = 8 << 20
	// metricsBytes bounds the metrics of a process.
	metricsBytes = 8 << 20
)

// namespaced are the resources that are read in the server's namespace, and clusterScoped the resources of
// the cluster that affect requests for the groups.
const (
	namespaced = "pods.v1. services.v1. endpoints.v1. persistentvolumeclaims.v1. configmaps.v1. secrets.v1. serviceaccounts.v1. resourcequotas.v1. events.v1. " +
		"deployments.v1.apps replicasets.v1.apps statefulsets.v1.apps cronjobs.v1.batch jobs.v1.batch leases.v1.coordination.k8s.io endpointslices.v1.discovery.k8s.io " +
		"networkpolicies.v1.networking.k8s.io poddisruptionbudgets.v1.policy roles.v1.rbac.authorization.k8s.io rolebindings.v1.rbac.authorization.k8s.io"
	clusterScoped = "apiservices.v1.apiregistration.k8s.io mutatingwebhookconfigurations.v1.admissionregistration.k8s.io validatingwebhookconfigurations.v1.admissionregistration.k8s.io"
)

// bundle is an archive in the making.
type bundle struct {
	*examination
	redactor
	archive *tar.Writer
	now     time.Time
	// missing says what could not be read, and why.
	missing []string
}

// WriteBundle writes a compressed tar archive that helps others to find a fault. It has results,
// versions, and the readable objects, logs and metrics of the instance. It has no confidential
// values.
func WriteBundle(ctx context.Context, config Config, results []Result, out io.Writer) error {
	e, err := newExamination(ctx, config)
	if err != nil {
		return err
	}
	if e.namespace() == "" {
		return errors.New("the namespace of the server is not known, since none of its APIServices is registered: name it by --namespace")
	}
	compressed := gzip.NewWriter(out)
	b := &bundle{examination: e, archive: tar.NewWriter(compressed), now: time.Now()}
	b.learnSecrets(ctx)
	b.addVersions(ctx)
	if err := b.addObjects(ctx); err != nil {
		return err
	}
	b.addLogs(ctx)
	b.addMetrics(ctx)
	results = slices.Clone(results)
	for i := range results {
		result := &results[i]
		result.Cause, result.Fix, result.Command = b.text(result.Cause), b.text(result.Fix), b.text(result.Command)
	}
	var findings bytes.Buffer
	err = Print(&findings, results)
	b.add("findings.txt", findings.Bytes(), err)
	b.add("missing.txt", []byte(strings.Join(b.missing, "\n")+"\n"), nil)
	return errors.Join(b.archive.Close(), compressed.Close())
}

// add adds a file, or notes the error if its content could not be read. Closing the archive returns
// the first error of writing it.
func (b *bundle) add(name string, content []byte, err error) {
	if err != nil {
		b.miss(name, err)
		return
	}
	text := b.text(string(content))
	_ = b.archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), ModTime: b.now})
	_, _ = io.WriteString(b.archive, text)
}

// miss notes what could not be read.
func (b *bundle) miss(what string, err error) {
	b.missing = append(b.missing, fmt.Sprintf("%s: %v", what, err))
}

// learnSecrets reads the values that must not be in the bundle, if this user may.
func (b *bundle) learnSecrets(ctx context.Context) {
	list, err := b.kube.CoreV1().Secrets(b.namespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		b.miss("the values of Secrets, which would be removed wherever they are", err)
		return
	}
	for _, secret := range list.Items {
		b.learn(secret)
	}
}

func (b *bundle) addVersions(ctx context.Context) {
	doctor, err := json.MarshalIndent(version.Get(), "", "  ")
	b.add("versions/doctor.json", doctor, err)
	theirs, err := b.kube.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	b.add("versions/kube-apiserver.json", theirs, err)
}

func (b *bundle) addObjects(ctx context.Context) error {
	client, err := dynamic.NewForConfig(b.Cluster)
	if err != nil {
		return err
	}
	for _, of := range []struct{ namespace, names string }{{b.namespace(), namespaced}, {metav1.NamespaceAll, clusterScoped}} {
		for _, name := range strings.Fields(of.names) {
			resource, _ := schema.ParseResourceArg(name)
			objects, err := client.Resource(*resource).Namespace(of.namespace).List(ctx, metav1.ListOptions{})
			var content []byte
			if err == nil {
				for i := range objects.Items {
					b.object(objects.Items[i].Object)
				}
				content, err = yaml.Marshal(objects)
			}
			b.add("objects/"+resource.Resource+".yaml", content, err)
		}
	}
	return nil
}

// addLogs adds the logs of all containers of the namespace, and of their previous processes.
func (b *bundle) addLogs(ctx context.Context) {
	pods, err := b.kube.CoreV1().Pods(b.namespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		b.miss("logs", err)
		return
	}
	for _, pod := range pods.Items {
		for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
			for _, suffix := range []string{"", ".previous"} {
				previous := suffix != ""
				if previous && status.RestartCount == 0 {
					continue
				}
				content, err := b.kube.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, &corev1.PodLogOptions{
					Container: status.Name, Previous: previous, Timestamps: true, TailLines: ptr.To[int64](logLines), LimitBytes: ptr.To[int64](logBytes),
				}).DoRaw(ctx)
				b.add(fmt.Sprintf("logs/%s/%s%s.log", pod.Name, status.Name, suffix), content, err)
			}
		}
	}
}

// metricsAccount is the service account of the component doctor, which may read metrics.
const metricsAccount = "doctor"

// addMetrics adds the metrics of all servers and other pods. It asks servers with a token of the
// doctor's service account. It asks others through kube-apiserver, which passes no credentials on.
// This user's own credentials are for kube-apiserver only: a compromised server could use them to
// act as this user.
func (b *bundle) addMetrics(ctx context.Context) {
	for _, backend := range b.backends() {
		token, err := b.metricsToken(ctx)
		if err != nil {
			b.miss(fmt.Sprintf("the metrics of %s, which are read with a token of the service account %s of the component doctor, since this user's credentials are for kube-apiserver only", backend, metricsAccount), err)
			continue
		}
		addresses := []string{b.Address}
		if b.Address == "" {
			if addresses, err = b.resolve(ctx, backend); err != nil {
				b.miss("the metrics of "+backend.String(), err)
			}
		}
		for _, address := range addresses {
			content, err := b.metrics(ctx, address, backend, token)
			b.add("metrics/"+strings.NewReplacer(":", "-", "[", "", "]", "").Replace(address)+".txt", content, err)
		}
	}
	pods, err := b.kube.CoreV1().Pods(b.namespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		b.miss("metrics of pods", err)
		return
	}
	for _, pod := range pods.Items {
		if hasPort(pod, "metrics") {
			content, err := b.kube.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, "metrics", "metrics", nil).DoRaw(ctx)
			b.add("metrics/"+pod.Name+".txt", content, err)
		}
	}
}

func (b *bundle) metricsToken(ctx context.Context) (string, error) {
	request, err := b.kube.CoreV1().ServiceAccounts(b.namespace()).CreateToken(ctx, metricsAccount, &authenticationv1.TokenRequest{
		// Kubernetes allows no shorter time.
		Spec: authenticationv1.TokenRequestSpec{Audiences: b.Audiences, ExpirationSeconds: new(int64(600))},
	}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return request.Status.Token, nil
}

// metrics returns the metrics of a server. Only a server that the APIServices trust gets the token.
func (b *bundle) metrics(ctx context.Context, address string, backend backend, token string) ([]byte, error) {
	trusts := b.trusts(backend)
	i := slices.IndexFunc(trusts, func(t *trust) bool { return !t.anybody })
	if i < 0 {
		return nil, errors.New("insecureSkipTLSVerify is set, so that anybody could get the token")
	}
	client, err := rest.UnversionedRESTClientFor(&rest.Config{
		Host:            "https://" + address,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(trusts[i].bundle), ServerName: backend.host()},
		ContentConfig:   rest.ContentConfig{NegotiatedSerializer: scheme.Codecs},
		Timeout:         checkTimeout,
	})
	if err != nil {
		return nil, err
	}
	metrics, err := client.Get().AbsPath("/metrics").Stream(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = metrics.Close() }()
	return io.ReadAll(io.LimitReader(metrics, metricsBytes))
}
