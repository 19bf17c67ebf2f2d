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

// Command image makes an image of layers, one for each architecture, without a base. It writes an OCI layout with an
// index of one image for each architecture, and prints the digest of that index. The same layers give the same layout.
//
//	image -out=DIR -name=NAME -entrypoint=PATH [-user=UID:GID] [-created=SECONDS] [-label=KEY=VALUE]... ARCH=LAYER...
//
// LAYER is a tar archive.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
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
	o := options{labels: map[string]string{}}
	flag.StringVar(&o.out, "out", "", "Directory to write.")
	flag.StringVar(&o.name, "name", "", "Name of the image, with registry and tag, for programs that load the archive.")
	flag.StringVar(&o.entrypoint, "entrypoint", "", "Path of the program in the image.")
	flag.StringVar(&o.user, "user", "65532:65532", "User and group of the process, as numbers, so that a cluster sees that it is not root.")
	created := flag.Int64("created", 0, "Time of the image, in seconds since 1970.")
	flag.Func("label", "Label as KEY=VALUE. Can be repeated.", func(label string) error {
		key, value, found := strings.Cut(label, "=")
		if !found {
			return errors.New("it must be KEY=VALUE")
		}
		o.labels[key] = value
		return nil
	})
	flag.Parse()
	o.created = v1.Time{Time: time.Unix(*created, 0).UTC()}
	hash, err := o.write(flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(hash)
}

type options struct {
	out, name, entrypoint, user string
	created                     v1.Time
	labels                      map[string]string
}

// write writes the layout and returns the digest of its index, which names the image in a registry.
func (o *options) write(layers []string) (v1.Hash, error) {
	files, err := layout.Write(o.out, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	// Registries show the annotations of the index.
	index := spec.Index{MediaType: spec.MediaTypeImageIndex, Annotations: o.labels}
	for _, layer := range layers {
		architecture, file, _ := strings.Cut(layer, "=")
		image, err := o.image(architecture, file)
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
		descriptor.Platform = &spec.Platform{OS: "linux", Architecture: architecture}
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
	return hash, cmp.Or(files.WriteBlob(hash, io.NopCloser(bytes.NewReader(content))), files.WriteFile("index.json", all, 0o600))
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
func (o *options) image(architecture, file string) (v1.Image, error) {
	layer, err := tarball.LayerFromFile(file, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	base, err = mutate.ConfigFile(base, &v1.ConfigFile{
		OS: "linux", Architecture: architecture, Created: o.created, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{User: o.user, Labels: o.labels, Entrypoint: []string{o.entrypoint}},
	})
	if err != nil {
		return nil, err
	}
	return mutate.Append(base, mutate.Addendum{Layer: layer, History: v1.History{Created: o.created, CreatedBy: "hack/tools/image"}})
}
