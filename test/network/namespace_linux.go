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

package network

import (
	"os"

	"golang.org/x/sys/unix"
)

// unshare moves this thread into a network namespace of its own, and returns that.
func unshare() (*os.File, error) {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	return os.Open("/proc/thread-self/ns/net")
}

// enter moves this thread into a network namespace.
func enter(namespace *os.File) error { return unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET) }
