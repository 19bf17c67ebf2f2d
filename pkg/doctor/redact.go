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
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

const (
	redacted = "REDACTED"
	// shortestSecret and shortestLine are the least lengths of a Secret's value, and of one of its
	// lines, that are removed. Shorter ones would be found everywhere.
	shortestSecret = 6
	shortestLine   = 8
)

var (
	// pemKey matches private keys in PEM format, whatever is between their lines, or to the end if theirs is cut off, and
	// keyTail the text before an end whose beginning is cut off.
	pemKey  = regexp.MustCompile(`(?s)-{5}BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-{5}.*?(?:-{5}END [A-Z ]*PRIVATE KEY(?: BLOCK)?-{5}|$)`)
	keyTail = regexp.MustCompile(`(?s)^.*-{5}END [A-Z ]*PRIVATE KEY(?: BLOCK)?-{5}`)
	// jsonWebToken matches tokens of service accounts and of OpenID Connect.
	jsonWebToken = regexp.MustCompile(`()\bey[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+`)
	credentials  = regexp.MustCompile(`(?i)(\b(?:bearer|basic)[ \t]+)[A-Za-z0-9._~+/=-]{6,}`)
	// userInfo matches users and passwords in URLs. A password can have a slash.
	userInfo = regexp.MustCompile(`(://)(?:[^/\s@"']+|[^/\s@"':]+:[^\s"'<>]*)@`)
	// header matches a header whose whole value is confidential, in quotes or to the end of the line.
	header = regexp.MustCompile(`(?i)(?:"((?:proxy-)?authorization|(?:set-)?cookie)(:[ \t]*)[^"\n]+|'((?:proxy-)?authorization|(?:set-)?cookie)(:[ \t]*)[^'\n]+|\b((?:proxy-)?authorization|(?:set-)?cookie)([=:][ \t]*)[^\s|>"'][^\n]*)`)
	// base64PEM matches text in base64 that begins with "-----BEGIN ", and may have several lines.
	base64PEM = regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]+(?:\s+[A-Za-z0-9+/]{40,}=*)*(?:\s+[A-Za-z0-9+/]+={1,2})?`)
	// assignment matches a name and its value, which can be a block or a list of YAML, a list of
	// JSON, a string with escaped quotes, also one within a string, one that is cut off, or a word.
	assignment = regexp.MustCompile(`([A-Za-z_][\w.-]*)(\\?["']?[ \t]*[=:][ \t]*)(` + strings.Join([]string{
		`[|>][+-]?\n(?:[ \t]+[^\n]*\n?)+`, `\n(?:[ \t]*-[ \t]+(?:[^\n:]|:[^ \n])*(?:\n|$))+`, `\[[^\[\]{}]*\]`,
		`"(?:[^"\\\n]|\\.)*"`, `\\"(?:[^"\\\n]|\\\\(?:\\.)?)*\\"`, `'(?:[^'\n]|'')*'`, `\\?["'][^\n]*`,
		`(?i:(?:bearer|basic)[ \t]+)?[^\s"',;&}]+`,
	}, "|") + `)`)
	// flagValue matches a flag with its value as the next argument.
	flagValue = regexp.MustCompile(`(--?[A-Za-z][\w.-]*)([ \t]+|\\?["'],?[ \t]*\\?["'])("[^"\n]*"|'[^'\n]*'|[^\s"'-][^\s"'\\]*)`)

	// secretWord matches a part of names of confidential values, and shortWord a whole word of
	// them.
	secretWord = regexp.MustCompile(`(?i)passw(?:or)?d|passphrase|pwd|token|secret|credential|signature|authorization|cookie|(?:access|account|api|encryption|private|session|shared|signing|storage)[_.-]?key`)
	shortWord  = regexp.MustCompile(`(?i)(?:^|[^a-z])(?:pass|sig)(?:$|[^a-z])`)
	// harmless matches the end of names that tell where, how long or how many.
	harmless = regexp.MustCompile(`(?i)(?:file|path|dir|names?|ref|url|ttl|seconds|timeout|duration|count|total|bytes|size|type|policy|mode)$|Secrets?Name`)
	// plainVariable matches environment variables whose values help: of Go, proxies, the pod
	// and the server's own flags.
	plainVariable = regexp.MustCompile(`^(?:GOMEMLIMIT|GOMAXPROCS|GODEBUG|TZ|POD_[A-Z_]+|KUBERNETES_[A-Z_]+|(?:CRD_)?APISERVER_[A-Z_]+|(?i:https?|no)_(?i:proxy))$`)
)

// confidential reports whether the value of a name is confidential.
func confidential(name string) bool {
	return (secretWord.MatchString(name) || shortWord.MatchString(name)) && !harmless.MatchString(name)
}

// redactor removes confidential values.
type redactor struct {
	// values are the values of Secrets and their lines, longest first.
	values []string
}

// learn makes the redactor remove the values of a Secret everywhere, also single lines of them:
// each line of a log has a time. Certificates are public.
func (r *redactor) learn(secret corev1.Secret) {
	for _, value := range secret.Data {
		text := strings.TrimSpace(string(value))
		if len(text) < shortestSecret || text == secret.Namespace || strings.Contains(text, "BEGIN CERTIFICATE") && !strings.Contains(text, "PRIVATE KEY") {
			continue
		}
		encoded, _ := json.Marshal(text)
		r.values = append(r.values, text, base64.StdEncoding.EncodeToString(value), strings.Trim(string(encoded), `"`), url.QueryEscape(text))
		if !strings.Contains(text, "\n") || strings.Contains(text, "BEGIN CERTIFICATE") {
			continue
		}
		for line := range strings.Lines(text) {
			// Of an assignment, the name is harmless.
			if parts := assigned.FindStringSubmatch(line); parts != nil {
				line = parts[1]
			}
			if line = strings.Trim(line, " \t\r\n\"',"); len(line) >= shortestLine && line != secret.Namespace && !strings.HasPrefix(line, "-----") {
				r.values = append(r.values, line)
			}
		}
	}
	slices.SortFunc(r.values, func(a, b string) int { return len(b) - len(a) })
}

// assigned matches a line of a file with settings, for its value.
var assigned = regexp.MustCompile(`^\s*["']?[A-Za-z_][\w.-]*["']?[ \t]*[=:][ \t]*(.*)`)

func (r *redactor) text(text string) string {
	var pairs []string
	for _, value := range r.values {
		pairs = append(pairs, value, redacted)
	}
	text = pemKey.ReplaceAllString(strings.NewReplacer(pairs...).Replace(text), redacted)
	text = keyTail.ReplaceAllString(text, redacted)
	// The rest of the match after the first group is confidential.
	for _, pattern := range []*regexp.Regexp{jsonWebToken, credentials, userInfo} {
		text = pattern.ReplaceAllString(text, "${1}"+redacted)
	}
	text = header.ReplaceAllStringFunc(text, func(found string) string {
		return found[:strings.IndexAny(found, ":=")+1] + " " + redacted
	})
	text = base64PEM.ReplaceAllStringFunc(text, func(encoded string) string {
		decoded, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(encoded), ""))
		if err == nil && strings.Count(string(decoded), "-----BEGIN ") == strings.Count(string(decoded), "-----BEGIN CERTIFICATE-----") {
			return encoded
		}
		return redacted
	})
	for _, pattern := range []*regexp.Regexp{assignment, flagValue} {
		text = withoutValues(text, pattern)
	}
	return text
}

// withoutValues removes the values of confidential names, also within the values of other names.
func withoutValues(text string, pattern *regexp.Regexp) string {
	return pattern.ReplaceAllStringFunc(text, func(found string) string {
		parts := pattern.FindStringSubmatch(found)
		name, separator, value := parts[1], parts[2], parts[3]
		switch {
		case !confidential(name):
			return name + separator + withoutValues(value, pattern)
		case strings.Contains(value, redacted):
			return found
		}
		if strings.HasPrefix(value, "\n") {
			separator += " "
		}
		quote := value[:len(value)-len(strings.TrimLeft(value, `\"'`))]
		end := ""
		if strings.HasSuffix(value, "\n") {
			end = "\n"
		}
		return name + separator + quote + redacted + quote + end
	})
}

// object removes the data of Secrets and the values of confidential names from an object.
func (r *redactor) object(object map[string]any) {
	if metadata, found := object["metadata"].(map[string]any); found {
		delete(metadata, "managedFields")
		if annotations, found := metadata["annotations"].(map[string]any); found {
			delete(annotations, corev1.LastAppliedConfigAnnotation)
		}
	}
	for _, field := range []string{"data", "stringData", "binaryData"} {
		data, _ := object[field].(map[string]any)
		for key, value := range data {
			if object["kind"] == "Secret" || field == "binaryData" {
				data[key] = fmt.Sprintf("%s (%d characters)", redacted, len(fmt.Sprint(value)))
			}
		}
	}
	r.fields(object)
}

func (r *redactor) fields(value any) {
	switch value := value.(type) {
	case []any:
		for i, element := range value {
			// A flag, whose value is the next argument.
			if flag, _ := element.(string); strings.HasPrefix(flag, "-") && !strings.ContainsAny(flag, "= ") && confidential(flag) && i+1 < len(value) {
				if next, _ := value[i+1].(string); next != "" && !strings.HasPrefix(next, "-") {
					value[i+1] = redacted
				}
			}
			r.fields(element)
		}
	case map[string]any:
		// A header, or an environment variable.
		if name, _ := value["name"].(string); confidential(name) && value["value"] != nil {
			value["value"] = redacted
		}
		variables, _ := value["env"].([]any)
		for _, variable := range variables {
			if variable, _ := variable.(map[string]any); variable["value"] != nil && !plainVariable.MatchString(fmt.Sprint(variable["name"])) {
				variable["value"] = redacted
			}
		}
		for key, field := range value {
			if list, isList := field.([]any); isList && confidential(key) {
				for i, element := range list {
					if _, isText := element.(string); isText {
						list[i] = redacted
					}
				}
			}
			if text, isText := field.(string); isText && confidential(key) {
				if !strings.HasPrefix(text, redacted) {
					value[key] = redacted
				}
				continue
			}
			r.fields(field)
		}
	}
}
