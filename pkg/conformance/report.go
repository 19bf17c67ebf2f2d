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

package conformance

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/version"
)

// Outcome is how a check has ended.
type Outcome string

const (
	// Passed means that the API behaves as Kubernetes does.
	Passed Outcome = "passed"
	// Failed means that it does not. The result has a Finding.
	Failed Outcome = "failed"
	// NotOffered means that the API does not offer what the check is about. The result has a reason.
	NotOffered Outcome = "not offered"
)

// Report is what a run has found out.
type Report struct {
	// Server is the version of kube-apiserver.
	Server  version.Info `json:"server"`
	Level   Level        `json:"level"`
	Seed    uint64       `json:"seed"`
	Results []Result     `json:"results"`
}

// Result is how a check has ended for a resource.
type Result struct {
	Check    string        `json:"check"`
	Rule     string        `json:"rule"`
	Source   string        `json:"source"`
	Resource string        `json:"resource"`
	Outcome  Outcome       `json:"outcome"`
	Reason   string        `json:"reason,omitempty"`
	Finding  *Finding      `json:"finding,omitempty"`
	Took     time.Duration `json:"took"`
}

// Finding is how the API differs from Kubernetes.
type Finding struct {
	// Sent and Came are the request and the answer.
	Sent string `json:"sent,omitempty"`
	Came string `json:"came,omitempty"`
	// Problem says what is expected instead.
	Problem string `json:"problem"`
	// Command sends the request again, while "kubectl proxy" runs.
	Command string `json:"command,omitempty"`
}

// String returns the finding as it is shown to people.
func (f *Finding) String() string {
	var text strings.Builder
	for _, part := range []struct{ title, text string }{{"problem", f.Problem}, {"sent", f.Sent}, {"came", f.Came}, {"again, while \"kubectl proxy\" runs", f.Command}} {
		if part.text != "" {
			fmt.Fprintf(&text, "%s:\n  %s\n", part.title, strings.ReplaceAll(part.text, "\n", "\n  "))
		}
	}
	return text.String()
}
