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

package registry

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// An Action that waited for others once outlived its request, and was executed after its
// client had gone.
func TestTurnThatDoesNotCome(t *testing.T) {
	t.Parallel()
	turns := newTurns()
	end, err := turns.take(t.Context(), "default/a")
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err = turns.take(ctx, "default/a")
	if ctx.Err() != nil {
		t.Error("there is no time left to answer")
	}
	const want = "Timeout: others have been using the object for too long"
	if seconds, again := apierrors.SuggestsClientDelay(err); !again || seconds != 1 || err.Error() != want {
		t.Errorf("got the error %v, to be repeated after %d seconds: %v; want %s after one", err, seconds, again, want)
	}

	end()
	end, err = turns.take(t.Context(), "default/a")
	if err != nil {
		t.Fatal(err)
	}
	end()
}
