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

package apiserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/klog/v2"
	"sigs.k8s.io/yaml"
)

// auditFlushTimeout bounds how long a stopping server waits for the collector of its audit events.
const auditFlushTimeout = 5 * time.Second

// validateAudit returns the errors of the policy. k8s.io/apiserver reports them only after everything that the server
// waits for. Without a policy it records nothing, silently.
func (o CompletedOptions) validateAudit() error {
	// Upstream fault 39.
	if o.Audit.PolicyFile == "" {
		if o.Audit.LogOptions.Path != "" || o.Audit.WebhookOptions.ConfigFile != "" {
			return errors.New("--audit-log-path and --audit-webhook-config-file record nothing without --audit-policy-file: set that, too")
		}
		return nil
	}
	// Upstream fault 38.
	if _, err := policy.LoadPolicyFromFile(o.Audit.PolicyFile); err != nil {
		return fmt.Errorf("--audit-policy-file %s can't be used: it must hold a Policy of audit.k8s.io/v1: %w", o.Audit.PolicyFile, err)
	}
	return nil
}

// applyAudit configures auditing by the flags.
func (o CompletedOptions) applyAudit(config *genericapiserver.Config) error {
	if err := o.Audit.ApplyTo(config); err != nil {
		return fmt.Errorf("--audit-log-path, --audit-webhook-config-file, or another flag of auditing: %w", err)
	}
	if config.AuditBackend != nil {
		config.AuditBackend = auditBackend{config.AuditBackend}
	}
	return nil
}

// maxAuditURI is how much of the path and query an event has. Collectors get events late, and strangers may send 272 KiB
// with each of them.
const maxAuditURI = 4 << 10

// auditBackend corrects k8s.io/apiserver's events and bounds its shutdown.
type auditBackend struct {
	audit.Backend
}

// ProcessEvents corrects k8s.io/apiserver's events.
func (b auditBackend) ProcessEvents(events ...*auditinternal.Event) bool {
	for _, event := range events {
		// Kube-apiserver could not be asked about the request: retryable replaces the answer.
		// Upstream fault 18.
		status := event.ResponseStatus
		if status != nil && status.Code == http.StatusInternalServerError && event.Annotations["authorization.k8s.io/reason"] == "internal error" {
			status.Code = http.StatusServiceUnavailable
		}
		if len(event.RequestURI) > maxAuditURI {
			event.RequestURI = strings.Clone(event.RequestURI[:maxAuditURI]) // The rest is forgotten.
		}
		if event.Verb == "patch" && event.RequestObject != nil {
			event.RequestObject = validPatch(event.RequestObject)
		}
	}
	return b.Backend.ProcessEvents(events...)
}

// validPatch returns a patch as JSON. k8s.io/apiserver takes all YAML for JSON that begins with a brace. An event with
// such a patch can't be encoded, and is lost with all others of its batch.
// Upstream fault 86.
func validPatch(patch *runtime.Unknown) *runtime.Unknown {
	if json.Valid(patch.Raw) {
		return patch
	}
	raw, err := yaml.YAMLToJSON(patch.Raw)
	if err != nil {
		raw, _ = json.Marshal(string(patch.Raw)) // A text can always be encoded.
	}
	return &runtime.Unknown{Raw: raw, ContentType: runtime.ContentTypeJSON}
}

// Shutdown sends the remaining events, for at most auditFlushTimeout. k8s.io/apiserver would try for more than a minute,
// longer than a pod has to stop.
// Upstream fault 57.
func (b auditBackend) Shutdown() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Backend.Shutdown()
	}()
	select {
	case <-done:
	case <-time.After(auditFlushTimeout):
		klog.ErrorS(nil, "The last audit events are lost, since the webhook of --audit-webhook-config-file has not taken them", "waited", auditFlushTimeout)
	}
}
