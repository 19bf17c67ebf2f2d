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

package framework

import (
	"flag"
	"fmt"
	"os"
	"testing"
)

// Long leaves a test out of "make test", which runs only short tests. The reason says what takes
// long, or names a shorter test of the capability.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("long: " + why)
	}
}

// LongPackage leaves all tests of a package out of "make test". Call it first in TestMain.
func LongPackage(why string) {
	flag.Parse()
	if testing.Short() {
		fmt.Println("Skipped: long: " + why)
		os.Exit(0)
	}
}
