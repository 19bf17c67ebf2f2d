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

// Command image packs programs into an image without a base, a shell, or other files than the named ones. It writes an
// OCI archive with an index of one image for each architecture. The same files give the same archive, on any machine
// and by any user.
//
//	image -out=FILE -name=NAME [-user=UID:GID] [-created=SECONDS] [-label=KEY=VALUE]... [-file=FILE]... [-binaries=ARCH=DIR]... PATH[=NAME]...
//
// PATH is the path of a program in the image, and NAME its name in each DIR. The default of NAME is the last part of
// PATH. The first program is the entry point.
package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	spec "github.com/opencontainers/image-spec/specs-go/v1"
)

func main() {
	var o options
	flag.StringVar(&o.out, "out", "", "Archive to write.")
	flag.StringVar(&o.name, "name", "", "Name of the image, with registry and tag, for programs that load the archive.")
	flag.StringVar(&o.user, "user", "65532:65532", "User and group of the process, as numbers, so that a cluster sees that it is not root.")
	created := flag.Int64("created", 0, "Time of the image and of its files, in seconds since 1970.")
	flag.Func("label", "Label as KEY=VALUE. Can be repeated.", o.labels.add)
	flag.Func("binaries", "Architecture and directory of its programs as ARCH=DIR. Can be repeated.", o.binaries.add)
	flag.Func("file", "Another file, which the image has in its root. Can be repeated.", func(file string) error {
		o.files = append(o.files, file)
		return nil
	})
	flag.Parse()
	o.created = time.Unix(*created, 0).UTC()
	o.programs = flag.Args()
	hash, err := o.write()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(hash)
}

// pairs are KEY=VALUE in the order of the command line.
type pairs [][2]string

func (p *pairs) add(text string) error {
	key, value, found := strings.Cut(text, "=")
	if !found {
		return errors.New("it must be KEY=VALUE")
	}
	*p = append(*p, [2]string{key, value})
	return nil
}

type options struct {
	out, name, user  string
	created          time.Time
	labels, binaries pairs
	files, programs  []string
}

// write writes the archive and returns the digest of its index, which names the image in a registry.
func (o *options) write() (v1.Hash, error) {
	if o.out == "" || o.name == "" || len(o.binaries) == 0 || len(o.programs) == 0 {
		return v1.Hash{}, errors.New("name an archive by -out, the image by -name, at least one -binaries, and at least one program")
	}
	dir, err := os.MkdirTemp("", "image-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer os.RemoveAll(dir)
	files, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	labels := map[string]string{}
	for _, label := range o.labels {
		labels[label[0]] = label[1]
	}
	// Registries show the annotations of the index.
	index := spec.Index{MediaType: spec.MediaTypeImageIndex, Annotations: labels}
	for _, binaries := range o.binaries {
		image, err := o.image(binaries[0], binaries[1], labels)
		if err != nil {
			return v1.Hash{}, err
		}
		if err := files.WriteImage(image); err != nil {
			return v1.Hash{}, err
		}
		manifest, err := image.RawManifest()
		if err != nil {
			return v1.Hash{}, err
		}
		descriptor := describe(spec.MediaTypeImageManifest, manifest)
		descriptor.Platform = &spec.Platform{OS: "linux", Architecture: binaries[0]}
		index.Manifests = append(index.Manifests, descriptor)
	}
	content, err := serialize(index)
	if err != nil {
		return v1.Hash{}, err
	}
	// Programs that copy an archive expect one entry in its outer index.
	outer := describe(spec.MediaTypeImageIndex, content)
	// containerd and tools based on it read the first annotation, podman the second.
	outer.Annotations = map[string]string{"io.containerd.image.name": o.name, spec.AnnotationRefName: o.name}
	all, err := serialize(spec.Index{MediaType: spec.MediaTypeImageIndex, Manifests: []spec.Descriptor{outer}})
	if err != nil {
		return v1.Hash{}, err
	}
	hash, err := v1.NewHash(outer.Digest.String())
	if err != nil {
		return v1.Hash{}, err
	}
	return hash, cmp.Or(files.WriteBlob(hash, io.NopCloser(bytes.NewReader(content))), files.WriteFile("index.json", all, 0o600), o.pack(dir))
}

// serialize encodes an index like skopeo, as a change of any byte would change the digest.
func serialize(index spec.Index) ([]byte, error) {
	index.SchemaVersion = 2
	return json.Marshal(index)
}

func describe(mediaType string, content []byte) spec.Descriptor {
	return spec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
}

// image makes the image of one architecture.
func (o *options) image(architecture, dir string, labels map[string]string) (v1.Image, error) {
	var content bytes.Buffer
	archive := newArchive(&content, o.created)
	config := v1.Config{User: o.user, Labels: labels}
	for _, program := range o.programs {
		inside, name, found := strings.Cut(program, "=")
		if !found {
			name = path.Base(inside)
		}
		if err := archive.add(inside, filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
		if config.Entrypoint == nil {
			config.Entrypoint = []string{inside}
		}
	}
	for _, file := range o.files {
		if err := archive.add("/"+filepath.Base(file), file, 0o644); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: o.created}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err = mutate.ConfigFile(base, &v1.ConfigFile{
		OS: "linux", Architecture: architecture, Created: created, Config: config, RootFS: v1.RootFS{Type: "layers"},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "hack/tools/image"}})
}

// pack writes the files of a directory into the archive.
func (o *options) pack(dir string) error {
	var files []string
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, file)
		}
		return err
	})
	if err != nil {
		return err
	}
	slices.Sort(files)
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil { //nolint:gosec // G301: others may read what is built.
		return err
	}
	out, err := os.Create(o.out)
	if err != nil {
		return err
	}
	defer out.Close()
	archive := newArchive(out, o.created)
	for _, file := range files {
		inside, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if err := archive.add(filepath.ToSlash(inside), file, 0o644); err != nil {
			return err
		}
	}
	return errors.Join(archive.Close(), out.Close())
}

// archive is a tar archive that is the same in each run.
type archive struct {
	*tar.Writer

	created     time.Time
	directories map[string]bool
}

func newArchive(out io.Writer, created time.Time) *archive {
	return &archive{tar.NewWriter(out), created, map[string]bool{".": true}}
}

// add adds a file and its directories.
func (a *archive) add(inside, file string, mode int64) error {
	inside = strings.TrimPrefix(inside, "/")
	if err := a.addDirectory(path.Dir(inside)); err != nil {
		return err
	}
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := a.WriteHeader(&tar.Header{Name: inside, Mode: mode, Size: int64(len(content)), ModTime: a.created, Format: tar.FormatPAX}); err != nil {
		return err
	}
	_, err = a.Write(content)
	return err
}

func (a *archive) addDirectory(dir string) error {
	if a.directories[dir] {
		return nil
	}
	a.directories[dir] = true
	if err := a.addDirectory(path.Dir(dir)); err != nil {
		return err
	}
	return a.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: a.created, Format: tar.FormatPAX})
}
