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

package codegen

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// CheckVendor returns an error if go commands read a directory vendor instead of go.mod.
//
// They then can't answer the kit's questions about modules, and refuse to build once go.mod has
// changed.
func CheckVendor(module string) error {
	if _, err := os.Stat(filepath.Join(module, "vendor", "modules.txt")); err != nil || strings.Contains(os.Getenv("GOFLAGS"), "-mod=mod") {
		return nil //nolint:nilerr // Without that file, Go ignores the directory.
	}
	return fmt.Errorf("%s has a directory vendor, which Go would read instead of go.mod: set GOFLAGS=-mod=mod for this command, and run \"go mod vendor\" afterwards", module)
}
