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

package broken

import (
	"bytes"
	"io"
	"net/http"
	"strings"
)

// admits has a request admitted that was refused, if its user's name or path has the marker.
func admits(matches func(*http.Request) bool, marker string) Transport {
	return answers(matches, func(_ *http.Request, response *http.Response) {
		body, err := io.ReadAll(response.Body)
		if err == nil && (response.StatusCode == http.StatusForbidden || response.StatusCode == http.StatusUnauthorized) && bytes.Contains(body, []byte(marker)) {
			response.StatusCode, body = http.StatusOK, []byte("{}")
		}
		replace(response, body)
	})
}

// acts sends requests of an impersonated user, whose name ends in a suffix, as the run's own user.
func acts(suffix string, matches func(*http.Request) bool) Transport {
	return requests(both(matches, func(request *http.Request) bool {
		return strings.HasSuffix(request.Header.Get("Impersonate-User"), suffix)
	}), func(request *http.Request) {
		for name := range request.Header {
			if strings.HasPrefix(name, "Impersonate-") {
				request.Header.Del(name)
			}
		}
	})
}

// forges matches requests with the headers of a front proxy.
func forges(request *http.Request) bool { return request.Header.Get("X-Remote-User") != "" }

// has matches requests with a header.
func has(name string) func(*http.Request) bool {
	return func(request *http.Request) bool { return request.Header.Get(name) != "" }
}

// below matches paths with a part.
func below(part string) func(*http.Request) bool {
	return func(request *http.Request) bool { return strings.Contains(request.URL.Path, part) }
}

func security() map[string]Transport {
	token, impersonated := has("Authorization"), has("Impersonate-User")
	return map[string]Transport{
		"security/denied-anonymous": admits(both(method(http.MethodDelete), not(token), not(impersonated), not(forges)), ""),
		"security/denied-user":      acts("-nobody", method(http.MethodDelete)),
		"security/denied-account":   admits(method(http.MethodDelete), "-nobody-account"),
		"security/denied-first": answers(method(http.MethodPut), func(_ *http.Request, response *http.Response) {
			body, err := io.ReadAll(response.Body)
			if err == nil && bytes.Contains(body, []byte("-stranger")) {
				response.StatusCode, body = http.StatusNotFound, bytes.ReplaceAll(body, []byte("403"), []byte("404"))
			}
			replace(response, body)
		}),
		"security/one-verb":         admits(method(http.MethodPut), "-verb-"),
		"security/one-name":         admits(both(method(http.MethodGet), below("-b")), "-named"),
		"security/one-namespace":    admits(method(http.MethodPost), "-local"),
		"security/apply-creates":    admits(method(http.MethodPatch), "-patcher"),
		"security/impersonation":    admits(both(method(http.MethodDelete), token, impersonated), ""),
		"security/forged-headers":   acts("-forger", forges),
		"security/direct-anonymous": admits(both(forges, not(token), not(impersonated)), ""),
		"security/direct-forged":    admits(both(forges, token), ""),
		"security/direct-paths":     admits(both(path("/metrics"), not(token)), ""),
		"security/audit": answers(both(method(http.MethodPatch), impersonated), func(request *http.Request, response *http.Response) {
			if strings.HasSuffix(request.Header.Get("Impersonate-User"), "-audited") {
				response.Header.Del("Audit-Id")
			}
		}),
		"security/validating-policy":  acts("-validating-policy", method(http.MethodPatch)),
		"security/mutating-policy":    acts("-mutating-policy", method(http.MethodPut)),
		"security/validating-webhook": acts("-validating-webhook", method(http.MethodDelete)),
		"security/mutating-webhook":   acts("-mutating-webhook", method(http.MethodPatch)),
		"security/webhook-failure":    acts("-webhook-fail", method(http.MethodPost)),
		"security/identity": requests(func(request *http.Request) bool {
			return strings.HasSuffix(request.Header.Get("Impersonate-User"), "-identity")
		}, func(request *http.Request) { request.Header.Del("Impersonate-Uid") }),
	}
}
