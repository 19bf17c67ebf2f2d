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
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNews(t *testing.T) {
	known := map[string][]Result{}
	version := Result{"", "kube-apiserver", Finding{Status: OK, Cause: "v1.37.1"}}
	for _, step := range []struct {
		name    string
		results []Result
		want    []Result
	}{
		{"the first time", []Result{version, {"", "etcd", Finding{Status: OK, Cause: "answers in 1.2 ms"}}}, []Result{version, {"", "etcd", Finding{Status: OK, Cause: "answers in 1.2 ms"}}}},
		{"the same", []Result{version, {"", "etcd", Finding{Status: OK, Cause: "answers in 1.2 ms"}}}, nil},
		{"another number", []Result{version, {"", "etcd", Finding{Status: OK, Cause: "answers in 20 ms"}}}, nil},
		{"another status", []Result{version, {"", "etcd", Finding{Status: Warning, Cause: "takes 120 ms", Fix: "get another disk"}}}, []Result{{"", "etcd", Finding{Status: Warning, Cause: "takes 120 ms", Fix: "get another disk"}}}},
		{"another number in a warning", []Result{version, {"", "etcd", Finding{Status: Warning, Cause: "takes 99.5 ms", Fix: "get another disk"}}}, nil},
		{"another warning", []Result{version, {"", "etcd", Finding{Status: Warning, Cause: "has 90 MiB left", Fix: "get another disk"}}}, []Result{{"", "etcd", Finding{Status: Warning, Cause: "has 90 MiB left", Fix: "get another disk"}}}},
		{"one more", []Result{version, {"", "etcd", Finding{Status: OK, Cause: "first"}}, {"", "etcd", Finding{Status: OK, Cause: "second"}}}, []Result{{"", "etcd", Finding{Status: OK, Cause: "first"}}, {"", "etcd", Finding{Status: OK, Cause: "second"}}}},
	} {
		require.Equal(t, step.want, changes(known, step.results), step.name)
	}
}
