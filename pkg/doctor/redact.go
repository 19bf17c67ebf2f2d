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
	"encoding/base64"
	"fmt"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	redacted = "REDACTED"
	// shortestSecret is the length of a Secret's value below which it is not looked for: it
	// would be found everywhere.
	shortestSecret = 6
)

var (
	// confidentialName is the end of a name whose value is confidential.
	confidentialName = regexp.MustCompile(`(?i)(password|passwd|token|secret|credentials?|private.?key|api.?key)$`)

	pemKey = regexp.MustCompile(`()-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*(?:-----END [A-Z ]*PRIVATE KEY-----)?`)
	// The beginning of BEGIN PRIVATE, BEGIN EC PRIVATE or BEGIN RSA PRIVATE.
	base64Key = regexp.MustCompile(`()LS0tLS1CRUdJTi(?:BQUklW|BFQyBQ|BSU0EgUF)[A-Za-z0-9+/=]+`)
	// Tokens of service accounts and of OpenID Connect.
	jsonWebToken = regexp.MustCompile(`()\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+`)
	credentials  = regexp.MustCompile(`(?i)(\b(?:bearer|basic)[ \t]+)[A-Za-z0-9._~+/=-]{6,}`)
	userInfo     = regexp.MustCompile(`(://)[^/\s:@]*:[^/\s@]+@`)
	assignment   = regexp.MustCompile(`(?i)((?:password|passwd|token|secret|credentials?|private.?key|api.?key)["']?[ \t]*[=:][ \t]*["']?)[^\s"',;&}]+`)
)

// confidentialText is confidential but for its first group.
func confidentialText() []*regexp.Regexp {
	return []*regexp.Regexp{pemKey, base64Key, jsonWebToken, credentials, userInfo, assignment}
}

// redactor removes what is confidential.
type redactor struct {
	// values are those of Secrets, longest first.
	values []string
}

// learn has the values of a Secret removed, wherever they are. Certificates are public.
func (r *redactor) learn(secret corev1.Secret) {
	for _, value := range secret.Data {
		text := strings.TrimSpace(string(value))
		if len(text) < shortestSecret || strings.Contains(text, "BEGIN CERTIFICATE") && !strings.Contains(text, "PRIVATE KEY") {
			continue
		}
		r.values = append(r.values, text, base64.StdEncoding.EncodeToString(value))
	}
	slices.SortFunc(r.values, func(a, b string) int { return len(b) - len(a) })
}

func (r *redactor) text(text string) string {
	for _, value := range r.values {
		text = strings.ReplaceAll(text, value, redacted)
	}
	for _, pattern := range confidentialText() {
		text = pattern.ReplaceAllString(text, "${1}"+redacted)
	}
	return text
}

// object removes from an object what Secrets contain, and values of confidential names.
func (r *redactor) object(object map[string]any) {
	if metadata, found := object["metadata"].(map[string]any); found {
		delete(metadata, "managedFields")
		if annotations, found := metadata["annotations"].(map[string]any); found {
			delete(annotations, corev1.LastAppliedConfigAnnotation)
		}
	}
	if object["kind"] == "Secret" {
		for _, field := range []string{"data", "stringData"} {
			data, _ := object[field].(map[string]any)
			for key, value := range data {
				data[key] = fmt.Sprintf("%s (%d characters)", redacted, len(fmt.Sprint(value)))
			}
		}
	}
	r.fields(object)
}

func (r *redactor) fields(value any) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			r.fields(element)
		}
	case map[string]any:
		// An environment variable.
		if name, _ := value["name"].(string); confidentialName.MatchString(name) && value["value"] != nil {
			value["value"] = redacted
		}
		for key, field := range value {
			if text, isText := field.(string); isText && confidentialName.MatchString(key) {
				if !strings.HasPrefix(text, redacted) {
					value[key] = redacted
				}
				continue
			}
			r.fields(field)
		}
	}
}
