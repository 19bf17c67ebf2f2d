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
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/pkg/conformance"
)

func TestExitCode(t *testing.T) {
	result := func(outcome conformance.Outcome) conformance.Result {
		return conformance.Result{Outcome: outcome, Finding: &conformance.Finding{}}
	}
	for name, test := range map[string]struct {
		report conformance.Report
		want   int
	}{
		"passed":      {conformance.Report{Results: []conformance.Result{result(conformance.Passed), result(conformance.NotOffered)}}, 0},
		"failed":      {conformance.Report{Results: []conformance.Result{result(conformance.Passed), result(conformance.Failed)}}, 1},
		"incomplete":  {conformance.Report{Results: []conformance.Result{result(conformance.Passed), result(conformance.NotChecked)}}, 2},
		"both":        {conformance.Report{Results: []conformance.Result{result(conformance.Failed), result(conformance.NotChecked)}}, 2},
		"nothing":     {conformance.Report{Results: []conformance.Result{result(conformance.NotOffered)}}, 2},
		"left behind": {conformance.Report{Results: []conformance.Result{result(conformance.Passed)}, Left: []string{"/a is left"}}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, ExitCode(judge(&test.report)))
		})
	}
	require.Equal(t, 2, ExitCode(errors.New("no cluster is known")))
}
