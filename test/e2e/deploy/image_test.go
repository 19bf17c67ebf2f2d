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
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/generated/clientset/versioned"
	"restaurant.programming-kubernetes.info/apiserver/test/controlplane"
	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
	"restaurant.programming-kubernetes.info/apiserver/test/fixture"
)

// builder runs buildah with storage of its own.
type builder struct {
	path    string
	storage []string
}

func newBuilder(t *testing.T) *builder {
	t.Helper()
	path, err := exec.LookPath("buildah")
	if err != nil {
		t.Skip("buildah is not installed; Debian has a package of that name")
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may run the image as the user that it names")
	}
	dir := t.TempDir()
	return &builder{path, []string{"--root=" + filepath.Join(dir, "root"), "--runroot=" + filepath.Join(dir, "run"), "--storage-driver=vfs"}}
}

// do runs a command of buildah and returns its output.
func (b *builder) do(t *testing.T, args ...string) string {
	t.Helper()
	return run(t, b.path, append(b.storage, args...)...)
}

// run runs a command. What the kernel forbids, as it may inside of a container, is
// nobody's fault.
func run(t *testing.T, command string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if err != nil && strings.Contains(stderr.String(), "operation not permitted") {
		t.Skipf("hardware: this kernel lets nobody build or run images: %s", strings.TrimSpace(stderr.String()))
	}
	require.NoError(t, err, stderr.String())
	return strings.TrimSpace(stdout.String())
}

// build runs the script that builds the image and returns the archive and its digest.
func build(t *testing.T) (archive, digest string) {
	t.Helper()
	archive = filepath.Join(t.TempDir(), "apiserver.tar")
	_, digest, found := strings.Cut(run(t, filepath.Join(root, "hack", "build-image.sh"), "apiserver", archive), " sha256:")
	require.True(t, found)
	return archive, digest
}

// TestImage builds the image twice, which gives the same, and runs the pod of the overlay
// "standalone" in it.
func TestImage(t *testing.T) {
	framework.Long(t, "images are built")
	builder := newBuilder(t)
	archive, digest := build(t)
	binary := framework.Program(t, cp, "apiserver")
	require.NoError(t, os.Chtimes(binary, time.Now(), time.Now()))
	_, again := build(t)
	require.Equal(t, digest, again)

	image := builder.do(t, "pull", "--quiet", "oci-archive:"+archive)
	var inspected struct {
		OCIv1 struct {
			Config struct {
				User       string
				Entrypoint []string
			}
		}
	}
	require.NoError(t, json.Unmarshal([]byte(builder.do(t, "inspect", "--type=image", image)), &inspected))
	config := inspected.OCIv1.Config
	require.Equal(t, []string{"/apiserver"}, config.Entrypoint)
	container := builder.do(t, "from", "--pull-never", image)
	mounted := builder.do(t, "mount", container)
	require.Equal(t, []string{"apiserver"}, files(t, mounted))

	install(t, overlayDirectory("standalone"))
	pod := pods(t, systemNamespace, overlays()["standalone"])[serverName][0]
	require.Equal(t, fmt.Sprintf("%d:%d", *pod.Spec.SecurityContext.RunAsUser, *pod.Spec.SecurityContext.RunAsGroup), config.User)
	machine := newMachine("image-")
	port := machine.port(t, pod.Name, "8443")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	content, err := os.ReadFile(kubeconfigOf(t, pod))
	require.NoError(t, err)
	data := t.TempDir()
	uid, gid := int(*pod.Spec.SecurityContext.RunAsUser), int(*pod.Spec.SecurityContext.FSGroup)
	require.NoError(t, os.WriteFile(kubeconfig, content, 0o600))
	require.NoError(t, os.Chown(kubeconfig, uid, gid))
	// As kubelets do for the group of a volume.
	require.NoError(t, os.Chown(data, 0, gid))
	require.NoError(t, os.Chmod(data, 0o775|os.ModeSetgid))

	args := append(slices.Clone(builder.storage), "run", "--isolation=chroot", "--network=host", "--volume="+kubeconfig+":/kubeconfig:ro")
	for _, mount := range pod.Spec.Containers[0].VolumeMounts {
		if mount.Name == "data" {
			args = append(args, "--volume="+data+":"+mount.MountPath+":rw")
		}
	}
	for _, variable := range pod.Spec.Containers[0].Env {
		if variable.ValueFrom == nil {
			args = append(args, "--env="+variable.Name+"="+variable.Value)
		}
	}
	args = append(args, container, "--")
	args = append(args, config.Entrypoint...)
	for _, argument := range pod.Spec.Containers[0].Args {
		args = append(args, securePort.ReplaceAllString(argument, fmt.Sprintf("--secure-port=%d", port)))
	}
	server, err := cp.NewProgram("image", controlplane.Program{
		Binary: builder.path,
		Args:   append(args, "--bind-address=127.0.0.1", "--kubeconfig=/kubeconfig"),
		Port:   port,
		Check:  machine.probe(t, pod, pod.Spec.Containers[0]),
	})
	require.NoError(t, err)
	t.Cleanup(server.Kill)
	require.NoError(t, server.Start(t.Context()))
	restaurant := serve(t, server)
	require.NoError(t, fixture.CreateToppings(t.Context(), versioned.NewForConfigOrDie(cp.RESTConfig()), "tomato"))
	_, err = restaurant.Toppings().Get(t.Context(), "tomato", metav1.GetOptions{})
	require.NoError(t, err)

	// What the builder itself puts into every container, and where the kubeconfig is
	// mounted, is all that has been added.
	require.Subset(t, []string{"apiserver", "kubeconfig", "etc/hostname", "etc/hosts", "etc/resolv.conf", "run/.containerenv"}, files(t, mounted))
	info, err := os.Stat(filepath.Join(data, "apiserver"))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
}

// files returns the regular files below a directory.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			relative, _ := filepath.Rel(dir, path)
			found = append(found, relative)
		}
		return err
	}))
	return found
}
