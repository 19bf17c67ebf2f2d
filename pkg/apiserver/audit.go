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
	"errors"
	"fmt"

	"k8s.io/apiserver/pkg/audit/policy"
)

// validateAudit returns what is wrong with the policy. The library finds that out only
// after all that the server waits for, and without one records nothing, silently.
func (o CompletedOptions) validateAudit() error {
	if o.Audit.PolicyFile == "" {
		if o.Audit.LogOptions.Path != "" || o.Audit.WebhookOptions.ConfigFile != "" {
			return errors.New("--audit-log-path and --audit-webhook-config-file record nothing without --audit-policy-file: set that, too")
		}
		return nil
	}
	if _, err := policy.LoadPolicyFromFile(o.Audit.PolicyFile); err != nil {
		return fmt.Errorf("--audit-policy-file %s can't be used: it must hold a Policy of audit.k8s.io/v1: %w", o.Audit.PolicyFile, err)
	}
	return nil
}
