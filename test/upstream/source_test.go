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
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// TestSources looks into the libraries' sources for faults whose effects need time, memory or much set-up. A text is
// what a repair would have to change. White space does not matter.
func TestSources(t *testing.T) {
	type place struct{ file, text string }
	places := map[int]place{
		2:  {"k8s.io/apimachinery/pkg/util/strategicpatch/patch.go", "if ok && valueToMatch == value {"},
		3:  {"sigs.k8s.io/structured-merge-diff/v6/fieldpath/element.go", "s.members = slices.Insert(s.members, loc, pe)"},
		9:  {"k8s.io/apiserver/pkg/endpoints/filters/request_deadline.go", "ctx, cancel := context.WithDeadline(ctx, started.Add(timeout)) defer cancel() req = req.WithContext(ctx)"},
		10: {"k8s.io/apiserver/pkg/server/secure_serving.go", "ReadHeaderTimeout: 32 * time.Second, // just shy of requestTimeoutUpperBound }"},
		14: {"k8s.io/apiserver/pkg/storage/cacher/cacher.go", "getRV, err := c.versioner.ParseResourceVersion(opts.ResourceVersion) if err != nil { return err }"},
		19: {"k8s.io/apiserver/pkg/server/filters/priority-and-fairness.go", `http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)`},
		20: {"k8s.io/apiserver/pkg/endpoints/filters/request_deadline.go", "if longRunning(req, requestInfo) { handler.ServeHTTP(w, req) return }"},
		22: {"k8s.io/apiserver/pkg/storage/errors/storage.go", `errors.NewServerTimeout(qualifiedResource, "create", 2) // TODO: make configurable or handled at a higher level
			case storage.IsInternalError(err): return errors.NewInternalError(err)
			case storage.IsCorruptObject(err): return errors.NewInternalError(err)
			default: return err }`},
		23: {"k8s.io/apiserver/pkg/storage/errors.go", `func IsUnreachable(err error) bool { return isErrCode(err, ErrCodeUnreachable) }`},
		24: {"k8s.io/apiserver/pkg/storage/etcd3/store.go", "txnResp, err := s.client.Kubernetes.OptimisticPut(ctx, preparedKey, newData, 0,"},
		25: {"k8s.io/apiserver/pkg/storage/etcd3/store.go", `span.AddEvent("TransformFromStorage failed", attribute.String("err", err.Error())) return storage.NewInternalError(err)`},
		26: {"k8s.io/apimachinery/pkg/api/validation/objectmeta.go", `field.Required(fldPath.Child("uid"), "must not be empty").MarkCoveredByDeclarative()`},
		// Nothing compares the two certificate authorities.
		29: {"k8s.io/apiserver/pkg/authentication/authenticatorfactory/delegating.go", `authenticators = append(authenticators, requestHeaderAuthenticator) }
			// x509 client cert auth
			if c.ClientCertificateCAContentProvider != nil {
				authenticators = append(authenticators, x509.NewDynamic(`},
		// It also reads the certificate authority of front proxies.
		30: {"k8s.io/apiserver/pkg/server/dynamiccertificates/configmap_cafile_content.go", "_ = c.loadCABundle() return nil"},
		31: {"k8s.io/apiserver/pkg/server/options/authentication.go", "cfg := authenticatorfactory.DelegatingAuthenticatorConfig{ Anonymous: &apiserver.AnonymousAuthConfig{Enabled: true},"},
		32: {"k8s.io/apiserver/pkg/server/dynamiccertificates/configmap_cafile_content.go", "_ = c.loadCABundle() return nil"},
		33: {"k8s.io/apiserver/pkg/storage/storagebackend/factory/etcd3.go", "dialTimeout = 20 * time.Second"},
		34: {"go.etcd.io/etcd/client/v3/client.go", "case codes.Canceled: if ctx.Err() != nil { err = ctx.Err() }"},
		35: {"k8s.io/apiserver/pkg/server/options/serving.go", "s.Listener, s.BindPort, err = CreateListener(s.BindNetwork, addr, c)"},
		37: {"k8s.io/apiserver/pkg/server/options/encryptionconfig/config.go", "if transformer := transformerOverrides[anyGroupAnyResource]; transformer != nil { return transformer } return identity.NewEncryptCheckTransformer()"},
		44: {"k8s.io/apiserver/pkg/admission/config.go", "for _, pluginCfg := range p.config.Plugins { if pluginName != pluginCfg.Name { continue }"},
		46: {"k8s.io/apiserver/pkg/server/egressselector/egress_selector.go", "func getTLSConfig(t *apiserver.TLSConfig) (*tls.Config, error) { clientCert := t.ClientCert"},
		47: {"k8s.io/apiserver/pkg/server/options/recommended.go", "if err := o.Etcd.ApplyTo(&config.Config); err != nil { return err } if err := o.EgressSelector.ApplyTo(&config.Config)"},
		48: {"k8s.io/apiserver/pkg/server/options/recommended.go", "if err := o.Etcd.ApplyTo(&config.Config); err != nil { return err } if err := o.EgressSelector.ApplyTo(&config.Config)"},
		49: {"k8s.io/apiserver/pkg/server/options/etcd.go", "return s.StorageConfig.ForResource(resource), nil"},
		// A gate that is passed in has no effect where the package's variable is asked.
		51: {"k8s.io/apiserver/pkg/registry/generic/registry/store.go", "utilfeature.DefaultFeatureGate.Enabled("},
		52: {"k8s.io/apiserver/pkg/server/config_selfclient.go", `Host: "https://" + net.JoinHostPort(host, port), TLSClientConfig: restclient.TLSClientConfig{ CAData: caCert, }, }, nil`},
		53: {"k8s.io/apiserver/pkg/server/config_selfclient.go", `Host: "https://" + net.JoinHostPort(host, port), TLSClientConfig: restclient.TLSClientConfig{ CAData: caCert, }, }, nil`},
		54: {"k8s.io/apiserver/pkg/server/options/etcd.go", `c.AddHealthChecks(healthz.NamedGroupedCheck("etcd",`},
		56: {"k8s.io/apiserver/pkg/server/filters/watch_termination.go", "if !watchVerbs.Has(requestInfo.Verb) { handler.ServeHTTP(w, req) return }"},
		57: {"k8s.io/apiserver/plugin/pkg/audit/buffered/buffered.go", "b.wg.Wait() b.delegateBackend.Shutdown()"},
		58: {"k8s.io/apiserver/pkg/server/config.go", "c.Config.TracerProvider.Shutdown(context.Background())"},
		59: {"k8s.io/apiserver/pkg/server/options/tracing.go", "semconv.ServiceNameKey.String(apiserverService),"},
		60: {"k8s.io/apiserver/pkg/util/webhook/client.go", "x509MissingSANCounter, x509InsecureSHA1Counter, )) return cfg, nil }"},
		62: {"k8s.io/client-go/informers/factory.go", "if !f.startedInformers[informerType] {"},
		63: {"k8s.io/apiserver/pkg/server/healthz/healthz.go", `if notStarted := informersByStarted[false]; len(notStarted) > 0 { return fmt.Errorf("%d informers not started yet: %v", len(notStarted), notStarted)`},
		64: {"k8s.io/apiserver/pkg/admission/configuration/validating_webhook_manager.go", "manager.hasSynced = handle.HasSynced"},
		65: {"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/dispatcher.go", "ConvertToVersion(newVersionedObject, versionedAttributes.GetKind().GroupVersion())"},
		66: {"k8s.io/apiserver/pkg/storage/cacher/cacher.go", "if object, err := newCachingObject(event.Object); err == nil { event.Object = object"},
		70: {"go.etcd.io/etcd/client/pkg/v3/transport/unix_listener.go", `l, err := net.Listen("unix", addr) if err != nil { return nil, err } return &unixListener{l}, nil`},
		71: {"go.etcd.io/etcd/server/v3/etcdserver/api/v3alarm/alarms.go", "for _, m := range ms { a.addToMap(m) }"},
		// A fault of memory is no panic that could be recovered from, unless the goroutine asks for that first.
		72: {"go.etcd.io/bbolt/tx_check.go", "ch <- panicked{r} } }() // Force loading free list if opened in ReadOnly mode. tx.db.loadFreelist()"},
		73: {"go.etcd.io/etcd/server/v3/etcdserver/bootstrap.go", "cl.SetID(meta.nodeID, meta.clusterID) return &bootstrappedCluster{ cl: cl, nodeID: meta.nodeID, }, nil"},
		74: {"go.etcd.io/etcd/server/v3/embed/serve.go", "case <-s.StoppingNotify(): return errors.New(\"server is stopping\") case <-s.ReadyNotify(): }"},
		76: {"k8s.io/apiserver/pkg/server/filters/timeout.go", "func (tw *baseTimeoutWriter) timeout(err *apierrors.StatusError) { tw.mu.Lock()"},
		80: {"k8s.io/apiserver/pkg/endpoints/handlers/watch.go", "select { case <-done: return case <-timeoutCh: return case event, ok := <-ch: if !ok { // End of results."},
		81: {"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go", `apierrors.NewInternalError(fmt.Errorf("error resolving resource")),
			Codecs, schema.GroupVersion{Group: requestInfo.APIGroup, Version: requestInfo.APIVersion}, w, req, ) return }
			// if the scope in the CRD and the scope in request differ`},
		// It lacks the StrictSerializer of the other encodings.
		83: {"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go", `MediaTypeSubType: "vnd.kubernetes.protobuf", Serializer: protobuf.NewSerializerWithOptions(creator, typer, protobuf.SerializerOptions{ StreamingCollectionsEncoding: true, }), StreamSerializer:`},
		86: {"k8s.io/apiserver/pkg/endpoints/handlers/patch.go", "jsonBytes, err := yaml.ToJSON(patchBytes)"},
		87: {"k8s.io/apimachinery/pkg/runtime/serializer/protobuf/protobuf.go", "return errNotMarshalable{reflect.TypeOf(obj)}"},
		88: {"k8s.io/kube-aggregator/pkg/apiserver/handler_discovery.go", "if apiService.Spec.Service == nil { return }"},
		// kube-apiserver does not wait until it knows the APIServices, as it does with paths that it does not have.
		89: {"k8s.io/apiextensions-apiserver/pkg/apiserver/customresource_handler.go", "if !apiextensionshelpers.HasServedCRDVersion(crd, requestInfo.APIVersion) { r.delegate.ServeHTTP(w, req) return }"},
	}
	arguments := []string{"list", "-f={{.ImportPath}} {{.Dir}}"}
	for _, p := range places {
		arguments = append(arguments, path.Dir(p.file))
	}
	output, err := exec.CommandContext(t.Context(), "go", arguments...).Output()
	if err != nil {
		t.Fatalf("the sources can't be found: %v", err)
	}
	directories := map[string]string{}
	for line := range strings.Lines(string(output)) {
		name, directory, _ := strings.Cut(strings.TrimSpace(line), " ")
		directories[name] = directory
	}
	each(t, places, func(t *testing.T, p place) {
		content, err := os.ReadFile(filepath.Join(directories[path.Dir(p.file)], path.Base(p.file)))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(oneLine(string(content)), oneLine(p.text)) {
			fixed(t, "%s does not have %q", p.file, p.text)
		}
	})
}

// oneLine returns a text with single spaces.
func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
