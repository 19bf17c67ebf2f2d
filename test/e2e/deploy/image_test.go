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

package deploy

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestImage builds the image twice, which gives the same, for two architectures. "make nightly SUITE=nodes"
// runs it on nodes.
func TestImage(t *testing.T) {
	binary := framework.Program(t, cp, "apiserver")
	archive, digest := buildImage(t, binary)
	require.NoError(t, os.Chtimes(binary, time.Now(), time.Now()))
	_, again := buildImage(t, binary)
	require.Equal(t, digest, again)

	type descriptor struct {
		Digest      string
		Annotations map[string]string
		Platform    struct{ Architecture, OS string }
	}
	type index struct{ Manifests []descriptor }
	blobs := untar(t, archive)
	var outer, inner index
	decodeBlob(t, blobs["index.json"], &outer)
	require.Len(t, outer.Manifests, 1)
	require.Equal(t, digest, outer.Manifests[0].Digest)
	const name = "registry.example.com/restaurant/apiserver:v0.37.0"
	require.Equal(t, map[string]string{"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name}, outer.Manifests[0].Annotations)
	blob := func(digest string) []byte { return blobs["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")] }
	decodeBlob(t, blob(digest), &inner)
	require.Len(t, inner.Manifests, 2)
	commit := run(t, "git", "rev-parse", "HEAD")
	home := "https://" + run(t, "go", "list", "-m")
	user := imageUser(t)
	for i, architecture := range []string{"amd64", "arm64"} {
		require.Equal(t, architecture, inner.Manifests[i].Platform.Architecture)
		require.Equal(t, "linux", inner.Manifests[i].Platform.OS)
		var manifest struct {
			Config descriptor
			Layers []descriptor
		}
		decodeBlob(t, blob(inner.Manifests[i].Digest), &manifest)
		var config struct {
			Config struct {
				User       string
				Entrypoint []string
				Labels     map[string]string
			}
		}
		decodeBlob(t, blob(manifest.Config.Digest), &config)
		require.Equal(t, []string{"/apiserver"}, config.Config.Entrypoint)
		require.Equal(t, user, config.Config.User)
		require.Equal(t, map[string]string{
			"org.opencontainers.image.title":         "apiserver",
			"org.opencontainers.image.version":       "v0.37.0",
			"org.opencontainers.image.revision":      commit,
			"org.opencontainers.image.licenses":      "Apache-2.0",
			"org.opencontainers.image.url":           home,
			"org.opencontainers.image.source":        home,
			"org.opencontainers.image.documentation": home + "/blob/v0.37.0/docs/README.md",
		}, config.Config.Labels)
		require.Len(t, manifest.Layers, 1)
		layer, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0].Digest)))
		require.NoError(t, err)
		files := untar(t, layer)
		require.Len(t, files, 4)
		content, err := os.ReadFile(binary)
		require.NoError(t, err)
		require.True(t, bytes.Equal(content, files["apiserver"]))
		license, err := os.ReadFile(filepath.Join(root, "LICENSE"))
		require.NoError(t, err)
		require.Equal(t, string(license), string(files["LICENSE"]))
		for _, of := range []string{"\nk8s.io/apiserver v0.", "\ngo.etcd.io/etcd/server/v3 v3.", "\nstdlib " + strings.TrimPrefix(runtime.Version(), "go") + " (LICENSE)\n"} {
			require.Contains(t, string(files["NOTICES"]), of)
		}
		var materials struct{ SPDXVersion, Name string }
		decodeBlob(t, files["apiserver.spdx.json"], &materials)
		require.Equal(t, "SPDX-2.3 apiserver-v0.37.0", materials.SPDXVersion+" "+materials.Name)
		require.Contains(t, string(files["apiserver.spdx.json"]), `"go.etcd.io/etcd/server/v3"`)
	}
}

// buildImage runs the script that builds the image and returns the archive and its digest. Both
// architectures have the same program: the script makes no difference between them.
func buildImage(t *testing.T, binary string) (archive io.Reader, digest string) {
	t.Helper()
	dir, file := filepath.Dir(binary), filepath.Join(t.TempDir(), "apiserver.tar")
	t.Setenv("VERSION", "v0.37.0")
	t.Setenv("BINARIES", fmt.Sprintf("amd64=%s arm64=%s", dir, dir))
	output := run(t, "hack/build-image.sh", "apiserver", file)
	_, digest, found := strings.Cut(output, file+" ")
	require.True(t, found, output)
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	return bytes.NewReader(content), digest
}

// imageUser returns the user and group that the overlays give to the server.
func imageUser(t *testing.T) string {
	t.Helper()
	for _, workload := range workloads(t, render(t, overlayDirectory("standalone"))) {
		if security := workload.spec.SecurityContext; workload.name == "apiserver" {
			return fmt.Sprintf("%d:%d", *security.RunAsUser, *security.RunAsGroup)
		}
	}
	require.Fail(t, "the overlay has no server")
	return ""
}

// run runs a command in the repository and returns its standard output.
func run(t *testing.T, command string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, args...)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.Output()
	require.NoError(t, err, stderr.String())
	return strings.TrimSpace(string(stdout))
}

// untar returns the files of an archive by their names.
func untar(t *testing.T, archive io.Reader) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	reader := tar.NewReader(archive)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		require.NoError(t, err)
		if header.Typeflag == tar.TypeReg {
			files[header.Name], err = io.ReadAll(reader)
			require.NoError(t, err)
		}
	}
}

func decodeBlob(t *testing.T, blob []byte, into any) {
	t.Helper()
	require.NoError(t, json.Unmarshal(blob, into), "%s", blob)
}
