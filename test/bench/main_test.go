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

package main

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

func TestSpread(t *testing.T) {
	require.Equal(t, "1.50 s (1.00 to 4.00, 3 runs)", spread([]time.Duration{4 * time.Second, time.Second, 1500 * time.Millisecond}))
}
