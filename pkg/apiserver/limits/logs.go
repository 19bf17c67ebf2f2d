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
	"k8s.io/client-go/util/flowcontrol"
)

// Clients may have logsPerSecond lines logged, and logBurst at once. A flood would displace all others from the log.
const logsPerSecond, logBurst = 10, 100

// NewLogPace returns a limiter of lines that any client can have logged.
func NewLogPace() flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(logsPerSecond, logBurst)
}
