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

// Package release makes a release, for one platform, and looks at each of its files.
package release

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

const (
	root = "../../.."
	// It has the notes of what is not released yet.
	version = "v0.37.0-rc.0"
)

// run runs a command in the repository and returns its standard output.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil && strings.Contains(stderr.String(), "operation not permitted") {
		t.Skipf("hardware: this kernel lets nobody build images: %s", strings.TrimSpace(stderr.String()))
	}
	require.NoError(t, err, "%s%s", stdout.String(), stderr.String())
	return stdout.String()
}

// TestRelease makes one, and with RELEASE_TWICE another, which is the same.
func TestRelease(t *testing.T) {
	framework.Long(t, "a release is made")
	for _, tool := range []string{"buildah", "openssl"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip(tool + " is not installed; Debian has a package of that name")
		}
	}
	// Under "make stress" there are several of these, which would write the same files.
	lock, err := os.Create(filepath.Join(root, "_output", "release.lock"))
	require.NoError(t, err)
	defer lock.Close()
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	platform := "linux-" + runtime.GOARCH
	keys := t.TempDir()
	key, public := filepath.Join(keys, "release.key"), filepath.Join(keys, "release.pub")
	run(t, nil, "openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
	run(t, nil, "openssl", "pkey", "-in", key, "-pubout", "-out", public)
	env := []string{"REGISTRY=registry.example.org/a", "SIGNING_KEY=" + key, "PLATFORMS=linux/" + runtime.GOARCH}
	release := func() map[string][]byte {
		t.Helper()
		run(t, env, "hack/release.sh", version)
		files := map[string][]byte{}
		entries, err := os.ReadDir(filepath.Join(root, "_output", "release"))
		require.NoError(t, err)
		for _, entry := range entries {
			files[entry.Name()], err = os.ReadFile(filepath.Join(root, "_output", "release", entry.Name()))
			require.NoError(t, err)
		}
		return files
	}
	files := release()
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	require.Equal(t, []string{
		"SHA256SUMS", "SHA256SUMS.sig",
		"apiserver-" + version + "-image.tar", "apiserver-" + version + "-" + platform + ".tar.gz", "apiserver-" + version + ".spdx.json",
		"crd-apiserver-" + version + "-image.tar", "images.txt", "install-crd-apiserver-external-etcd.yaml", "install-crd-apiserver-standalone.yaml", "install-ha.yaml", "install-standalone.yaml", "manifests-" + version + ".tar.gz", "notes.md", "provenance.intoto.json",
		"restaurant-apiserver-" + strings.TrimPrefix(version, "v") + ".tgz", "webhook-" + version + "-image.tar",
	}, names)
	dir := t.TempDir()
	for name, content := range files {
		require.NotEmpty(t, content, name)
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	path := func(name string) string { return filepath.Join(dir, name) }

	t.Run("checksums", func(t *testing.T) {
		var want strings.Builder
		for _, name := range names {
			if !strings.HasPrefix(name, "SHA256SUMS") {
				fmt.Fprintf(&want, "%x  %s\n", sha256.Sum256(files[name]), name)
			}
		}
		require.Equal(t, want.String(), string(files["SHA256SUMS"]))
	})
	t.Run("signature", func(t *testing.T) {
		script := `openssl dgst -sha256 -verify "$0" -signature <(base64 --decode "$1") "$2"`
		require.Equal(t, "Verified OK\n", run(t, nil, "bash", "-c", script, public, path("SHA256SUMS.sig"), path("SHA256SUMS")))
	})
	t.Run("binaries", func(t *testing.T) {
		archive := path("apiserver-" + version + "-" + platform + ".tar.gz")
		run(t, nil, "tar", "--extract", "--directory="+dir, "--file="+archive)
		for _, name := range []string{"apiserver", "crd-apiserver"} {
			require.Equal(t, name+" version "+version+"\n", run(t, nil, path(name), "--version"))
		}
		require.Contains(t, run(t, nil, path("webhook"), "--version"), version)
		require.FileExists(t, path("LICENSE"))
	})
	t.Run("manifests", func(t *testing.T) {
		require.Contains(t, run(t, nil, "tar", "--list", "--file="+path("manifests-"+version+".tar.gz")), "artifacts/deploy/overlays/ha/etcd.yaml\n")
		for file, test := range map[string]struct {
			deployments     int
			server, overlay string
		}{
			"standalone":                  {1, "apiserver", "deploy/overlays/standalone"},
			"ha":                          {2, "apiserver", "deploy/overlays/ha"},
			"crd-apiserver-standalone":    {2, "crd-apiserver", "crd-apiserver/overlays/standalone"},
			"crd-apiserver-external-etcd": {2, "crd-apiserver", "crd-apiserver/overlays/external-etcd"},
		} {
			manifest := string(files["install-"+file+".yaml"])
			image := "registry.example.org/a/" + test.server + ":" + version
			require.Equal(t, test.deployments, strings.Count(manifest, "image: "+image+"\n"), file)
			want := run(t, nil, "_output/bin/kubectl", "kustomize", "artifacts/"+test.overlay)
			require.Equal(t, want, strings.ReplaceAll(manifest, image, test.server))
		}
		require.Regexp(t, `^quay\.io/coreos/etcd:v[0-9.]+\nregistry\.example\.org/a/apiserver:`+version+`\nregistry\.example\.org/a/crd-apiserver:`+version+`\nregistry\.example\.org/a/webhook:`+version+`\nregistry\.k8s\.io/kube-scheduler:v[0-9.]+\n$`, string(files["images.txt"]))
	})
	t.Run("chart", func(t *testing.T) {
		helm, archive := framework.Helm(t, root), path("restaurant-apiserver-"+strings.TrimPrefix(version, "v")+".tgz")
		require.Contains(t, run(t, nil, helm, "show", "chart", archive), "appVersion: "+version+"\n")
		for _, mode := range []string{"standalone", "ha"} {
			objects := run(t, nil, helm, "template", "release", archive, "--namespace=restaurant-system", "--set=createNamespace=true,storage.keep=false,mode="+mode)
			require.Equal(t, decode(t, string(files["install-"+mode+".yaml"])), decode(t, objects))
		}
	})
	t.Run("bill of materials", func(t *testing.T) {
		var document struct {
			SPDXVersion   string
			Packages      []struct{ SPDXID, Name, VersionInfo string }
			Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
		}
		require.NoError(t, json.Unmarshal(files["apiserver-"+version+".spdx.json"], &document))
		require.Equal(t, "SPDX-2.3", document.SPDXVersion)
		described := map[string]string{"SPDXRef-DOCUMENT": "the document"}
		for _, part := range document.Packages {
			require.NotContains(t, described, part.SPDXID)
			described[part.SPDXID] = part.Name + " " + part.VersionInfo
		}
		for _, relationship := range document.Relationships {
			require.Contains(t, described, relationship.SPDXElementID)
			require.Contains(t, described, relationship.RelatedSPDXElement)
		}
		all := fmt.Sprint(described)
		for _, program := range []string{"apiserver", "crd-apiserver", "webhook"} {
			require.Contains(t, all, "restaurant.programming-kubernetes.info/apiserver/cmd/"+program+" "+version)
		}
		require.Contains(t, all, "stdlib "+strings.TrimPrefix(runtime.Version(), "go"))
		require.Contains(t, all, "go.etcd.io/etcd/server/v3 v3.")
	})
	t.Run("provenance", func(t *testing.T) {
		var statement struct {
			Type          string `json:"_type"`
			PredicateType string
			Subject       []struct {
				Name   string
				Digest map[string]string
			}
			Predicate struct {
				BuildDefinition struct {
					ExternalParameters   map[string]string
					ResolvedDependencies []struct{ Digest map[string]string }
				}
			}
		}
		require.NoError(t, json.Unmarshal(files["provenance.intoto.json"], &statement))
		require.Equal(t, "https://in-toto.io/Statement/v1", statement.Type)
		require.Equal(t, "https://slsa.dev/provenance/v1", statement.PredicateType)
		var described []string
		for _, subject := range statement.Subject {
			require.Equal(t, map[string]string{"sha256": fmt.Sprintf("%x", sha256.Sum256(files[subject.Name]))}, subject.Digest)
			described = append(described, subject.Name)
		}
		require.Equal(t, slices.DeleteFunc(slices.Clone(names), func(name string) bool {
			return strings.HasPrefix(name, "SHA256SUMS") || name == "provenance.intoto.json"
		}), described)
		definition := statement.Predicate.BuildDefinition
		require.Equal(t, map[string]string{"version": version, "registry": "registry.example.org/a", "platforms": "linux/" + runtime.GOARCH}, definition.ExternalParameters)
		require.Equal(t, strings.TrimSpace(run(t, nil, "git", "rev-parse", "HEAD")), definition.ResolvedDependencies[0].Digest["gitCommit"])
	})
	t.Run("images", func(t *testing.T) {
		for _, name := range []string{"apiserver", "crd-apiserver", "webhook"} {
			listed := run(t, nil, "tar", "--list", "--file="+path(name+"-"+version+"-image.tar"))
			require.Contains(t, listed, "oci-layout\n")
		}
	})
	t.Run("notes", func(t *testing.T) {
		require.Contains(t, string(files["notes.md"]), "`make release`.")
		require.NotContains(t, string(files["notes.md"]), "## v")
	})
	// To link everything once more takes long: this is for "make test-release".
	if os.Getenv("RELEASE_TWICE") != "" {
		again := release()
		for _, name := range names {
			if name != "SHA256SUMS.sig" { // ECDSA takes a random number.
				require.True(t, bytes.Equal(files[name], again[name]), name)
			}
		}
	}
}

// decode returns objects by what tells them apart.
func decode(t *testing.T, manifests string) map[string]any {
	t.Helper()
	objects := map[string]any{}
	for document := range strings.SplitSeq(manifests, "\n---\n") {
		var object struct {
			Kind     string
			Metadata struct{ Namespace, Name string }
		}
		var content any
		require.NoError(t, yaml.Unmarshal([]byte(document), &object))
		require.NoError(t, yaml.Unmarshal([]byte(document), &content))
		if content != nil {
			objects[fmt.Sprint(object)] = content
		}
	}
	return objects
}

// TestReleaseRefusals leaves no release without a version that is described.
func TestReleaseRefusals(t *testing.T) {
	for name, test := range map[string]struct{ version, want string }{
		"no version":                {"latest", "The version must be like v0.37.0 or v0.37.0-rc.1, not latest.\n"},
		"nothing in the change log": {"v99.0.0", "CHANGELOG.md has no section \"## v99.0.0\": write what is new for those who upgrade.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), "hack/release.sh", test.version)
			cmd.Dir = root
			output, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Equal(t, test.want, string(output))
		})
	}
}
