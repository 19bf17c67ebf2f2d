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

package limits

import (
	"bytes"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A flood of lines displaces no others for long.
func TestPacedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written bytes.Buffer
		paced := PacedLog(log.New(&written, "", 0))
		for _, want := range []int{logBurst, logsPerSecond} {
			written.Reset()
			for range 10 * logBurst {
				paced.Print("a")
			}
			require.Equal(t, want, bytes.Count(written.Bytes(), []byte("a\n")))
			time.Sleep(time.Second)
		}
	})
}
