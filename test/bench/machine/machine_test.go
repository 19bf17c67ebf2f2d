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

package machine

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStatusBytes(t *testing.T) {
	const status = "Name:\tapiserver\nVmHWM:\t  120 kB\nVmRSS:\t  100 kB\n"
	resident, err := statusBytes(status, "VmRSS")
	require.NoError(t, err)
	require.Equal(t, int64(102400), resident)

	_, err = statusBytes("Name:\tapiserver\nState:\tZ (zombie)\n", "VmRSS")
	require.ErrorContains(t, err, "VmRSS: is it still running?")
}

func TestStatCPU(t *testing.T) {
	used, err := statCPU("42 (kube) apiserver) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 9")
	require.NoError(t, err)
	require.Equal(t, 2*time.Second, used)

	_, err = statCPU("42 (kube-apiserver) S 1")
	require.ErrorContains(t, err, "is not the status of a process")
}
