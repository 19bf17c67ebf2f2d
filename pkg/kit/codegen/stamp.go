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
	"crypto/sha256"
	"fmt"
	"os"
)

// stamp is the file with the fingerprint of the last run.
const stamp = work + "/stamp"

// fingerprint is a digest of everything that generated code depends on, and of that code:
// the generators, this program, the header and all files of the APIs.
func (g *generation) fingerprint(apis []API) (string, error) {
	digest := sha256.New()
	fmt.Fprintln(digest, g.name, g.goVersion, g.version, g.NoProtobuf, g.NoClients)
	program, err := os.Executable()
	if err != nil {
		return "", err
	}
	add := func(name, path string) error {
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(digest, "%s %x\n", name, sha256.Sum256(data))
		return err
	}
	if err := add("program", program); err != nil {
		return "", err
	}
	if g.Header != "" {
		if err := add("header", g.Header); err != nil {
			return "", err
		}
	}
	if err := g.eachFile(apis, func(path string, _ bool) error { return add(path, path) }); err != nil {
		return "", err
	}
	return fmt.Sprintf("%x\n", digest.Sum(nil)), nil
}

// remember keeps the fingerprint for the next run.
func (g *generation) remember(apis []API) error {
	fingerprint, err := g.fingerprint(apis)
	if err != nil {
		return err
	}
	return os.WriteFile(g.file(stamp), []byte(fingerprint), 0o600)
}
