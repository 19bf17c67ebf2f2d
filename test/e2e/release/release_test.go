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
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
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

// clone returns a copy of the last commit of a repository: a release is made of nothing else.
func clone(t *testing.T, repository string) string {
	t.Helper()
	dir := t.TempDir()
	run(t, repository, nil, "git", "clone", "--quiet", "--no-local", ".", dir)
	return dir
}

// run runs a command in a directory and returns its standard output.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	stdout, _ := runBoth(t, dir, env, name, args...)
	return stdout
}

func runBoth(t *testing.T, dir string, env []string, name string, args ...string) (stdout, stderr string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	require.NoError(t, cmd.Run(), "%s%s", &out, &err)
	return out.String(), err.String()
}

// TestRelease makes one, and with RELEASE_TWICE another in another directory, which is the same.
func TestRelease(t *testing.T) {
	framework.Long(t, "a release is made")
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed; Debian has a package of that name")
	}
	kubectl, err := filepath.Abs(filepath.Join(root, "_output", "bin", "kubectl"))
	require.NoError(t, err)
	require.FileExists(t, kubectl)
	source := clone(t, root)
	platform := "linux-" + runtime.GOARCH
	keys := t.TempDir()
	key, public := filepath.Join(keys, "release.key"), filepath.Join(keys, "release.pub")
	run(t, source, nil, "openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
	run(t, source, nil, "openssl", "pkey", "-in", key, "-pubout", "-out", public)
	downloads := httptest.NewServer(http.FileServer(http.Dir(filepath.Join(source, "_output", "release"))))
	t.Cleanup(downloads.Close)
	etcd, rclone := "sha256:"+strings.Repeat("e", 64), "sha256:"+strings.Repeat("c", 64)
	pins := "quay.io/coreos/etcd=" + etcd + " rclone/rclone=" + rclone
	env := []string{"REGISTRY=registry.example.org/a", "DOWNLOADS=" + downloads.URL, "PLATFORMS=linux/" + runtime.GOARCH, "DIGESTS=" + pins}
	signed := "SIGNING_KEY=" + key
	release := func(source string, env ...string) map[string][]byte {
		t.Helper()
		require.NoError(t, os.MkdirAll(filepath.Join(source, "_output", "bin"), 0o700))
		require.NoError(t, os.Symlink(kubectl, filepath.Join(source, "_output", "bin", "kubectl")))
		_, warnings := runBoth(t, source, env, "hack/release.sh", version)
		require.Equal(t, !slices.Contains(env, signed), strings.Contains(warnings, "WARNING: NOT SIGNED."), warnings)
		require.NotContains(t, warnings, "NOT PINNED")
		files := map[string][]byte{}
		out := filepath.Join(source, "_output", "release")
		entries, err := os.ReadDir(out)
		require.NoError(t, err)
		for _, entry := range entries {
			files[entry.Name()], err = os.ReadFile(filepath.Join(out, entry.Name()))
			require.NoError(t, err)
		}
		return files
	}
	files := release(source, append(env, signed)...)
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	chartVersion := strings.TrimPrefix(version, "v")
	require.Equal(t, []string{
		"SHA256SUMS", "SHA256SUMS.sigstore.json",
		"apiserver-" + version + "-image.tar", "apiserver-" + version + "-" + platform + ".tar.gz", "apiserver-" + version + ".spdx.json",
		"conformance-" + version + "-" + platform + ".tar.gz",
		"crd-apiserver-" + chartVersion + ".tgz", "crd-apiserver-" + version + "-image.tar", "crd-apiserver-" + version + "-" + platform + ".tar.gz", "images.txt",
		"install-crd-apiserver-external-etcd.yaml", "install-crd-apiserver-ha.yaml", "install-crd-apiserver-standalone.yaml", "install-ha.yaml", "install-standalone.yaml",
		"krew-apiservices.yaml", "krew-conformance.yaml", "krew-crd-apiserver.yaml", "krew-restaurant-apiserver.yaml",
		"kubectl-apiservices-" + version + "-" + platform + ".tar.gz",
		"manifests-" + version + ".tar.gz", "notes.md", "provenance.intoto.json",
		"restaurant-apiserver-" + chartVersion + ".tgz", "webhook-" + version + "-image.tar", "webhook-" + version + "-" + platform + ".tar.gz",
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
		var bundle struct {
			MessageSignature struct{ Signature []byte }
		}
		require.NoError(t, json.Unmarshal(files["SHA256SUMS.sigstore.json"], &bundle))
		signature := filepath.Join(keys, "signature")
		require.NoError(t, os.WriteFile(signature, bundle.MessageSignature.Signature, 0o600))
		require.Equal(t, "Verified OK\n", run(t, source, nil, "openssl", "dgst", "-sha256", "-verify", public, "-signature", signature, path("SHA256SUMS")))
	})
	t.Run("bundle", func(t *testing.T) {
		cosign := framework.GoTool(t, root, "cosign", "cosign")
		verify := []string{"verify-blob", "--key", public, "--bundle", path("SHA256SUMS.sigstore.json"), "--insecure-ignore-tlog=true"}
		run(t, source, nil, cosign, append(verify, path("SHA256SUMS"))...)
		other := exec.CommandContext(t.Context(), cosign, append(verify, path("images.txt"))...)
		output, err := other.CombinedOutput()
		require.Error(t, err, string(output))
	})
	t.Run("binaries", func(t *testing.T) {
		for program, says := range map[string]string{
			"apiserver": "apiserver version " + version, "crd-apiserver": "crd-apiserver version " + version, "webhook": "webhook version " + version,
			"kubectl-apiservices": "kubectl apiservices version " + version, "conformance": "conformance version " + version,
		} {
			unpacked := t.TempDir()
			run(t, source, nil, "tar", "--extract", "--directory="+unpacked, "--file="+path(program+"-"+version+"-"+platform+".tar.gz"))
			stdout, stderr := runBoth(t, source, nil, filepath.Join(unpacked, program), "--version")
			require.Equal(t, says+"\n", stdout)
			require.Empty(t, stderr)
			require.FileExists(t, filepath.Join(unpacked, "LICENSE"))
			notices, err := os.ReadFile(filepath.Join(unpacked, "NOTICES"))
			require.NoError(t, err)
			require.Contains(t, string(notices), "\nk8s.io/client-go v0.", program)
		}
	})
	t.Run("manifests", func(t *testing.T) {
		packed := run(t, source, nil, "tar", "--list", "--file="+path("manifests-"+version+".tar.gz"))
		require.Contains(t, packed, "artifacts/deploy/components/etcd/etcd.yaml\n")
		require.NotContains(t, packed, ".go\n")
		require.NotContains(t, packed, "artifacts/chart")
		unpacked := run(t, source, nil, "tar", "--extract", "--to-stdout", "--file="+path("manifests-"+version+".tar.gz"))
		requireLinks(t, unpacked)
		require.Equal(t, 2, strings.Count(unpacked, "@"+rclone+"\n"))
		for file, test := range map[string]struct {
			deployments     int
			server, overlay string
		}{
			"standalone":                  {1, "apiserver", "deploy/overlays/standalone"},
			"ha":                          {2, "apiserver", "deploy/overlays/ha"},
			"crd-apiserver-standalone":    {2, "crd-apiserver", "crd-apiserver/overlays/standalone"},
			"crd-apiserver-ha":            {3, "crd-apiserver", "crd-apiserver/overlays/ha"},
			"crd-apiserver-external-etcd": {2, "crd-apiserver", "crd-apiserver/overlays/external-etcd"},
		} {
			manifest := string(files["install-"+file+".yaml"])
			image := "registry.example.org/a/" + test.server + ":" + version + "@" + digest(t, source, path(test.server+"-"+version+"-image.tar"))
			require.Equal(t, test.deployments, strings.Count(manifest, "image: "+image+"\n"), file)
			want := run(t, source, nil, "_output/bin/kubectl", "kustomize", "artifacts/"+test.overlay)
			require.Equal(t, want, strings.NewReplacer(image, test.server, "@"+etcd, "").Replace(manifest))
			require.NotRegexp(t, "image: [^@]*\n", manifest)
		}
		require.Regexp(t, `^quay\.io/coreos/etcd:v[0-9.]+\nrclone/rclone:[0-9.]+\nregistry\.example\.org/a/apiserver:`+version+`\nregistry\.example\.org/a/crd-apiserver:`+version+`\nregistry\.example\.org/a/webhook:`+version+`\n$`, string(files["images.txt"]))
	})
	t.Run("charts", func(t *testing.T) {
		helm := framework.GoTool(t, root, "helm", "helm")
		for install, test := range map[string]struct{ chart, namespace, set string }{
			"standalone":                  {"restaurant-apiserver", "restaurant-system", "mode=standalone,storage.keep=false"},
			"ha":                          {"restaurant-apiserver", "restaurant-system", "mode=ha"},
			"crd-apiserver-standalone":    {"crd-apiserver", "crd-apiserver", "mode=standalone,storage.keep=false,groups={example.com}"},
			"crd-apiserver-ha":            {"crd-apiserver", "crd-apiserver", "mode=ha,groups={example.com}"},
			"crd-apiserver-external-etcd": {"crd-apiserver", "crd-apiserver", "mode=external-etcd,groups={example.com},etcd.servers={https://etcd-0.example.com:2379,https://etcd-1.example.com:2379,https://etcd-2.example.com:2379}"},
		} {
			archive := path(test.chart + "-" + chartVersion + ".tgz")
			require.Contains(t, run(t, source, nil, helm, "show", "chart", archive), "appVersion: "+version+"\n")
			requireLinks(t, run(t, source, nil, helm, "show", "all", archive))
			objects := run(t, source, nil, helm, "template", "release", archive, "--namespace="+test.namespace, "--no-hooks", "--set=createNamespace=true,"+test.set)
			// A digest is all that a chart names an image by.
			want := regexp.MustCompile(":[^:@ ]+@sha256:").ReplaceAllString(string(files["install-"+install+".yaml"]), "@sha256:")
			require.Equal(t, decode(t, want), decode(t, objects))
		}
	})
	t.Run("plugins", func(t *testing.T) {
		programs, home := t.TempDir(), t.TempDir()
		require.NoError(t, os.Symlink(kubectl, filepath.Join(programs, "kubectl")))
		require.NoError(t, os.Symlink(framework.GoTool(t, root, "krew", "krew"), filepath.Join(programs, "kubectl-krew")))
		validate := framework.GoTool(t, root, "krew", "validate-krew-manifest")
		env := []string{"KREW_ROOT=" + home, "PATH=" + programs + ":" + filepath.Join(home, "bin") + ":" + os.Getenv("PATH")}
		for name, program := range map[string]string{"apiservices": "kubectl apiservices", "conformance": "conformance", "crd-apiserver": "crd-apiserver", "restaurant-apiserver": "apiserver"} {
			// The validator wants a file that is called as the plugin is. It downloads and installs what is for each platform.
			manifest := filepath.Join(t.TempDir(), name+".yaml")
			require.NoError(t, os.WriteFile(manifest, files["krew-"+name+".yaml"], 0o600))
			run(t, source, env, validate, "-manifest="+manifest)
			run(t, source, env, filepath.Join(programs, "kubectl"), "krew", "install", "--manifest="+manifest)
			require.Equal(t, program+" version "+version+"\n", run(t, source, env, filepath.Join(programs, "kubectl"), name, "--version"))
		}
	})
	t.Run("bill of materials", func(t *testing.T) {
		var document struct {
			SPDXVersion   string
			Packages      []struct{ SPDXID, Name, VersionInfo, LicenseDeclared string }
			Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
		}
		require.NoError(t, json.Unmarshal(files["apiserver-"+version+".spdx.json"], &document))
		require.Equal(t, "SPDX-2.3", document.SPDXVersion)
		described := map[string]string{"SPDXRef-DOCUMENT": "the document"}
		for _, part := range document.Packages {
			require.NotContains(t, described, part.SPDXID)
			require.NotEqual(t, "NOASSERTION", part.LicenseDeclared, part.Name)
			require.NotEmpty(t, part.LicenseDeclared, part.Name)
			described[part.SPDXID] = part.Name + " " + part.VersionInfo
		}
		for _, relationship := range document.Relationships {
			require.Contains(t, described, relationship.SPDXElementID)
			require.Contains(t, described, relationship.RelatedSPDXElement)
		}
		all := fmt.Sprint(described)
		for _, program := range []string{"apiserver", "crd-apiserver", "webhook", "kubectl-apiservices", "conformance"} {
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
					BuildType            string
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
		require.Equal(t, "https://restaurant.programming-kubernetes.info/apiserver/blob/"+version+"/docs/making-releases.md", definition.BuildType)
		require.Equal(t, map[string]string{
			"version": version, "registry": "registry.example.org/a", "downloads": downloads.URL, "platforms": "linux/" + runtime.GOARCH, "digests": pins,
		}, definition.ExternalParameters)
		require.Equal(t, strings.TrimSpace(run(t, source, nil, "git", "rev-parse", "HEAD")), definition.ResolvedDependencies[0].Digest["gitCommit"])
	})
	t.Run("images", func(t *testing.T) {
		for _, name := range []string{"apiserver", "crd-apiserver", "webhook"} {
			listed := run(t, source, nil, "tar", "--list", "--file="+path(name+"-"+version+"-image.tar"))
			require.Contains(t, listed, "oci-layout\n")
			require.Regexp(t, "^sha256:[0-9a-f]{64}$", digest(t, source, path(name+"-"+version+"-image.tar")))
		}
	})
	t.Run("notes", func(t *testing.T) {
		require.Contains(t, string(files["notes.md"]), "API servers")
		require.NotContains(t, string(files["notes.md"]), "## v")
	})
	// To link everything once more takes long: this is for "make nightly SUITE=release".
	if os.Getenv("RELEASE_TWICE") != "" {
		// Without a key, so without a signature.
		again := release(clone(t, source), env...)
		delete(files, "SHA256SUMS.sigstore.json")
		require.Len(t, again, len(files))
		for name, content := range files {
			require.True(t, bytes.Equal(content, again[name]), name)
		}
	}
}

// digest returns the digest of the image in an archive.
func digest(t *testing.T, source, archive string) string {
	t.Helper()
	var index struct{ Manifests []struct{ Digest string } }
	require.NoError(t, json.Unmarshal([]byte(run(t, source, nil, "tar", "--extract", "--to-stdout", "--file="+archive, "index.json")), &index))
	require.Len(t, index.Manifests, 1)
	return index.Manifests[0].Digest
}

// requireLinks finds links to the pages of the version, and to no others.
func requireLinks(t *testing.T, text string) {
	t.Helper()
	require.Contains(t, text, "https://restaurant.programming-kubernetes.info/apiserver/blob/"+version+"/docs/")
	require.NotContains(t, text, "https://restaurant.programming-kubernetes.info/apiserver/blob/main/")
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

// TestReleaseRefusals leaves no release without a version that is described, nor of anything but a
// commit. It leaves no signed one with images that are named by tag.
func TestReleaseRefusals(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed; Debian has a package of that name")
	}
	source := clone(t, root)
	key := filepath.Join(t.TempDir(), "release.key")
	run(t, source, nil, "openssl", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
	etcd := "quay.io/coreos/etcd=sha256:" + strings.Repeat("e", 64)
	for name, test := range map[string]struct{ version, file, key, digests, want string }{
		"no version":                {"latest", "", "", "", "The version must be like v0.37.0 or v0.37.0-rc.1, not latest.\n"},
		"nothing in the change log": {"v99.0.0", "", "", "", "CHANGELOG.md has no section \"## v99.0.0\": write what is new for those who upgrade.\n"},
		"a new file":                {version, "new", "", "", "?? new\nThese files differ from the last commit. Commit or remove them: a release is made of a commit.\n"},
		"a changed file":            {version, "LICENSE", "", "", " M LICENSE\nThese files differ from the last commit. Commit or remove them: a release is made of a commit.\n"},
		"a key that is none":        {version, "", "LICENSE", "", "openssl can't read SIGNING_KEY=LICENSE: name the file of a private key, or none.\n"},
		"a digest without a name":   {version, "", "", "sha256:0", "DIGESTS has sha256:0: name an image and the digest of its index, as in quay.io/coreos/etcd=sha256:<64 hexadecimal digits>.\n"},
		"signed without digests":    {version, "", key, "", "A signed release names all images by digest, and these have only tags: quay.io/coreos/etcd, rclone/rclone. Name their digests by DIGESTS, as docs/making-releases.md shows.\n"},
		"signed with one digest":    {version, "", key, etcd, "A signed release names all images by digest, and these have only tags: rclone/rclone. Name their digests by DIGESTS, as docs/making-releases.md shows.\n"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.file != "" {
				require.NoError(t, os.WriteFile(filepath.Join(source, test.file), nil, 0o600))
				defer run(t, source, nil, "git", "stash", "--quiet", "--include-untracked")
			}
			cmd := exec.CommandContext(t.Context(), "hack/release.sh", test.version)
			cmd.Dir = source
			// A release that is not refused ends at once.
			cmd.Env = append(os.Environ(), "PLATFORMS=none/none", "SIGNING_KEY="+test.key, "DIGESTS="+test.digests)
			output, err := cmd.CombinedOutput()
			require.Error(t, err)
			require.Equal(t, test.want, string(output))
		})
	}
}
