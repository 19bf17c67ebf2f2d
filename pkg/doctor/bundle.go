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
	"net/http"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
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

// bundleResources returns the resources to read in the instance's namespace.
func bundleResources() []schema.GroupVersionResource {
	var resources []schema.GroupVersionResource
	for _, group := range []struct {
		version schema.GroupVersion
		names   []string
	}{
		{corev1.SchemeGroupVersion, []string{"pods", "services", "endpoints", "persistentvolumeclaims", "configmaps", "secrets", "serviceaccounts", "resourcequotas", "events"}},
		{schema.GroupVersion{Group: "apps", Version: "v1"}, []string{"deployments", "replicasets", "statefulsets"}},
		{schema.GroupVersion{Group: "batch", Version: "v1"}, []string{"cronjobs", "jobs"}},
		{schema.GroupVersion{Group: "coordination.k8s.io", Version: "v1"}, []string{"leases"}},
		{schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"}, []string{"endpointslices"}},
		{schema.GroupVersion{Group: "networking.k8s.io", Version: "v1"}, []string{"networkpolicies"}},
		{schema.GroupVersion{Group: "policy", Version: "v1"}, []string{"poddisruptionbudgets"}},
		{schema.GroupVersion{Group: "rbac.authorization.k8s.io", Version: "v1"}, []string{"roles", "rolebindings"}},
	} {
		for _, name := range group.names {
			resources = append(resources, group.version.WithResource(name))
		}
	}
	return resources
}

// clusterResources returns the cluster-scoped resources that affect requests for the group.
func clusterResources() []schema.GroupVersionResource {
	admission := schema.GroupVersion{Group: "admissionregistration.k8s.io", Version: "v1"}
	return []schema.GroupVersionResource{
		{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"},
		admission.WithResource("mutatingwebhookconfigurations"),
		admission.WithResource("validatingwebhookconfigurations"),
	}
}

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
	for _, part := range []func(context.Context) error{b.learnSecrets, b.addVersions, b.addObjects, b.addLogs, b.addMetrics} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	results = slices.Clone(results)
	for i := range results { // Before they are wrapped.
		result := &results[i]
		result.Cause, result.Fix, result.Command = b.text(result.Cause), b.text(result.Fix), b.text(result.Command)
	}
	var findings bytes.Buffer
	if err := Print(&findings, results); err != nil {
		return err
	}
	if err := b.add("findings.txt", findings.Bytes()); err != nil {
		return err
	}
	if err := b.add("missing.txt", []byte(strings.Join(b.missing, "\n")+"\n")); err != nil {
		return err
	}
	if err := b.archive.Close(); err != nil {
		return err
	}
	return compressed.Close()
}

// add adds a file.
func (b *bundle) add(name string, content []byte) error {
	text := b.text(string(content))
	if err := b.archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), ModTime: b.now}); err != nil {
		return err
	}
	_, err := io.WriteString(b.archive, text)
	return err
}

// addOr adds a file, or notes the error if its content could not be read.
func (b *bundle) addOr(name string, content []byte, err error) error {
	if err != nil {
		b.missing = append(b.missing, fmt.Sprintf("%s: %v", name, err))
		return nil
	}
	return b.add(name, content)
}

// learnSecrets reads the values that must not be in the bundle, if this user may.
func (b *bundle) learnSecrets(ctx context.Context) error {
	list, err := b.kube.CoreV1().Secrets(b.namespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		b.missing = append(b.missing, fmt.Sprintf("the values of Secrets, which would be removed wherever they are: %v", err))
		return nil
	}
	for _, secret := range list.Items {
		b.learn(secret)
	}
	return nil
}

func (b *bundle) addVersions(ctx context.Context) error {
	doctor, err := json.MarshalIndent(version.Get(), "", "  ")
	if err != nil {
		return err
	}
	if err := b.add("versions/doctor.json", doctor); err != nil {
		return err
	}
	theirs, err := b.kube.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	return b.addOr("versions/kube-apiserver.json", theirs, err)
}

func (b *bundle) addObjects(ctx context.Context) error {
	client, err := dynamic.NewForConfig(b.Cluster)
	if err != nil {
		return err
	}
	list := func(name string, resource dynamic.ResourceInterface) error {
		objects, err := resource.List(ctx, metav1.ListOptions{})
		var content []byte
		if err == nil {
			for i := range objects.Items {
				b.object(objects.Items[i].Object)
			}
			content, err = yaml.Marshal(objects)
		}
		return b.addOr("objects/"+name+".yaml", content, err)
	}
	for _, resource := range bundleResources() {
		if err := list(resource.Resource, client.Resource(resource).Namespace(b.namespace())); err != nil {
			return err
		}
	}
	for _, resource := range clusterResources() {
		if err := list(resource.Resource, client.Resource(resource)); err != nil {
			return err
		}
	}
	return nil
}

// addLogs adds the logs of all containers of the namespace, and of their previous processes.
func (b *bundle) addLogs(ctx context.Context) error {
	pods, err := b.kube.CoreV1().Pods(b.namespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return b.addOr("logs", nil, err)
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
				if err := b.addOr(fmt.Sprintf("logs/%s/%s%s.log", pod.Name, status.Name, suffix), content, err); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// metricsAccount is the service account of the component doctor, which may read metrics.
const metricsAccount = "doctor"

// addMetrics adds the metrics of all servers and other pods. It asks servers with a token of the
// doctor's service account. It asks others through kube-apiserver, which passes no credentials on.
// This user's own credentials are for kube-apiserver only: a compromised server could use them to
// act as this user.
func (b *bundle) addMetrics(ctx context.Context) error {
	for _, backend := range b.backends() {
		token, err := b.metricsToken(ctx)
		if err != nil {
			b.missing = append(b.missing, fmt.Sprintf("the metrics of %s, which are read with a token of the service account %s of the component doctor, since this user's credentials are for kube-apiserver only: %v", backend, metricsAccount, err))
			continue
		}
		addresses := []string{b.Address}
		if b.Address == "" {
			if addresses, err = b.resolve(ctx, backend); err != nil {
				b.missing = append(b.missing, fmt.Sprintf("the metrics of %s: %v", backend, err))
			}
		}
		for _, address := range addresses {
			content, err := b.metrics(ctx, address, backend, token)
			if err := b.addOr("metrics/"+strings.NewReplacer(":", "-", "[", "", "]", "").Replace(address)+".txt", content, err); err != nil {
				return err
			}
		}
	}
	pods, err := b.kube.CoreV1().Pods(b.namespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return b.addOr("metrics of pods", nil, err)
	}
	for _, pod := range pods.Items {
		if !hasPort(pod, "metrics") {
			continue
		}
		content, err := b.kube.CoreV1().Pods(pod.Namespace).ProxyGet("http", pod.Name, "metrics", "metrics", nil).DoRaw(ctx)
		if err := b.addOr("metrics/"+pod.Name+".txt", content, err); err != nil {
			return err
		}
	}
	return nil
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
	client, err := rest.HTTPClientFor(&rest.Config{
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: []byte(trusts[i].bundle), ServerName: backend.host()},
		Timeout:         checkTimeout,
	})
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address+"/metrics", http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, metricsBytes))
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, content)
	}
	return content, err
}
