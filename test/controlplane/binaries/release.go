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

package binaries

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// VersionVariable is the environment variable with the default of Options.Version.
const VersionVariable = "CONTROLPLANE_KUBERNETES_VERSION"

// minors are the latest releases of minor versions, besides the default one.
func minors() map[string]string {
	return map[string]string{"1.34": "v1.34.4", "1.35": "v1.35.4", "1.36": "v1.36.3"}
}

var releaseName = regexp.MustCompile(`^v1\.\d+\.\d+(-(alpha|beta|rc)\.\d+)?$`)

// Release returns the full version of Kubernetes to build, for instance "v1.34.4".
func (o Options) Release() (string, error) {
	asked := cmp.Or(o.Version, os.Getenv(VersionVariable), Version())
	version := "v" + strings.TrimPrefix(asked, "v")
	if latest, found := minors()[version[1:]]; found {
		return latest, nil
	}
	if strings.HasPrefix(Version(), version+".") {
		return Version(), nil
	}
	if !releaseName.MatchString(version) {
		return "", fmt.Errorf("%q is not a version of Kubernetes: name a release, such as %s, or one of the minor versions 1.34 to 1.37", asked, Version())
	}
	return version, nil
}

// release is a version of Kubernetes, with the module for building it.
type release struct{ version, goMod, goSum string }

// releaseOf returns a release. It has no module if that is derived from the release's own.
func releaseOf(version string) release {
	if version == Version() {
		return release{version, goMod, goSum}
	}
	return release{version: version}
}

func (r release) own() bool { return r.goMod != "" }

// mode tells the go command whether it may add to go.sum. A release's own go.sum has no checksums
// of the libraries in its repository. The checksum database has them.
func (r release) mode() string {
	if r.own() {
		return "readonly"
	}
	return "mod"
}

// write writes the module into a directory.
func (r release) write(ctx context.Context, dir string) error {
	if !r.own() {
		source, err := download(ctx, dir, r.version)
		if err != nil {
			return err
		}
		released, err := os.ReadFile(filepath.Join(source, "go.mod"))
		if err != nil {
			return err
		}
		sums, err := os.ReadFile(filepath.Join(source, "go.sum"))
		if err != nil {
			return err
		}
		r.goMod, r.goSum = derive(string(released), r.version), string(sums)
	}
	for file, content := range map[string]string{"go.mod": r.goMod, "go.sum": r.goSum} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// derive returns a go.mod that requires a release of Kubernetes, from the release's own go.mod.
// The latter replaces libraries by directories of the repository, which downloads of the module
// lack. The libraries are released as their own modules, v0.34.4 for v1.34.4.
func derive(released, version string) string {
	library := "v0" + strings.TrimPrefix(version, "v1")
	text := regexp.MustCompile(`(?m)^module k8s\.io/kubernetes$`).ReplaceAllString(released, "module kubernetes.build")
	text = regexp.MustCompile(`=> \./staging/src/(\S+)`).ReplaceAllString(text, "=> $1 "+library)
	return text + "\nrequire k8s.io/kubernetes " + version + "\n"
}

// download returns the directory of a release in the module cache.
func download(ctx context.Context, dir, version string) (string, error) {
	command := exec.CommandContext(ctx, "go", "mod", "download", "-json", "k8s.io/kubernetes@"+version)
	command.Dir, command.Env = dir, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	var complaint bytes.Buffer
	command.Stderr = &complaint
	output, err := command.Output()
	var module struct{ Dir, Error string }
	if jsonErr := json.Unmarshal(output, &module); jsonErr != nil || module.Dir == "" {
		return "", fmt.Errorf("the release %s of Kubernetes can't be downloaded: %w\n%s%s", version, cmp.Or(err, jsonErr), module.Error, &complaint)
	}
	return module.Dir, nil
}
