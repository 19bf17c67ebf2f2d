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
	"context"
	"regexp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// Watch repeats an examination with pauses until the context ends or report returns an error. It
// reports all results first, and then only checks whose results have changed. Another status counts,
// and so does another cause of a warning or a failure. Other numbers in a cause do not count.
func Watch(ctx context.Context, examine func(context.Context) ([]Result, error), pause time.Duration, report func([]Result) error) error {
	known := map[string][]Result{}
	err := wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		results, err := examine(ctx)
		if err != nil {
			return false, err
		}
		if found := changes(known, results); len(found) > 0 {
			return false, report(found)
		}
		return false, nil
	})
	if ctx.Err() == nil {
		return err
	}
	return nil
}

// changes returns the results of checks whose results differ from the known ones, and updates
// these.
func changes(known map[string][]Result, results []Result) (found []Result) {
	for len(results) > 0 {
		first := results[0]
		end := slices.IndexFunc(results, func(result Result) bool { return result.Server != first.Server || result.Check != first.Check })
		if end < 0 {
			end = len(results)
		}
		key := first.Server + "/" + first.Check
		if !slices.EqualFunc(known[key], results[:end], alike) {
			found = append(found, results[:end]...)
		}
		known[key], results = results[:end], results[end:]
	}
	return found
}

var numbers = regexp.MustCompile(`[0-9.]+`)

// alike reports whether two results of a check are the same for a user of Watch.
func alike(a, b Result) bool {
	if a.Status != b.Status {
		return false
	}
	return a.Status == OK || a.Status == Skipped || numbers.ReplaceAllString(a.Cause+a.Fix, "") == numbers.ReplaceAllString(b.Cause+b.Fix, "")
}
