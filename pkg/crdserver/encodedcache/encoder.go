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

package encodedcache

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// serializer is that of k8s.io/apiextensions-apiserver, but its encoders copy objects in JSON.
type serializer struct{ runtime.NegotiatedSerializer }

// EncoderForVersion returns an encoder.
func (s serializer) EncoderForVersion(delegate runtime.Encoder, version runtime.GroupVersioner) runtime.Encoder {
	return encoder{s.NegotiatedSerializer.EncoderForVersion(delegate, version)}
}

// encoder copies objects in JSON, lists of them, and events with them. Its delegate encodes a Status, and what is not
// plain JSON.
type encoder struct{ delegate runtime.Encoder }

// Identifier distinguishes what this encoder writes from what others have written of the same event.
func (e encoder) Identifier() runtime.Identifier { return "encodedcache" }

// Encode writes JSON.
func (e encoder) Encode(obj runtime.Object, w io.Writer) error {
	switch o := obj.(type) {
	case *indented:
		var text bytes.Buffer
		if err := write(&text, o.writeTo); err != nil {
			return err
		}
		return e.delegate.Encode(&runtime.Unknown{Raw: text.Bytes(), ContentType: runtime.ContentTypeJSON}, w)
	case *objects:
		return write(w, o.writeTo)
	case *table:
		return write(w, o.writeTo)
	case *object:
		text, err := o.text()
		if err == nil {
			_, err = io.WriteString(w, text)
		}
		return err
	case *metav1.WatchEvent:
		_, err := fmt.Fprintf(w, `{"type":%q,"object":%s}`+"\n", o.Type, o.Object.Raw)
		return err
	}
	return e.delegate.Encode(obj, w)
}

// indented is a list that the delegate makes indented JSON, or YAML.
type indented struct{ *objects }

// bufferSize is about what a connection writes at once, in bytes.
const bufferSize = 64 << 10

// buffer writes texts. Its Flush returns the first error.
type buffer struct{ *bufio.Writer }

func (b buffer) text(texts ...string) {
	for _, text := range texts {
		_, _ = b.WriteString(text)
	}
}

func (b buffer) json(value any) error {
	data, err := json.Marshal(value)
	_, _ = b.Write(data)
	return err
}

// write writes a JSON object with the members that a function writes. k8s.io/apiserver compresses what is long if the
// first write has a single byte.
func write(w io.Writer, members func(buffer) error) error {
	if _, err := io.WriteString(w, "{"); err != nil {
		return err
	}
	b := buffer{bufio.NewWriterSize(w, bufferSize)}
	if err := members(b); err != nil {
		return err
	}
	b.text("}\n")
	return b.Flush()
}

// text returns the object in JSON.
func (o *object) text() (string, error) {
	if o.Unstructured == nil {
		return o.json, nil
	}
	data, err := json.Marshal(o.Object)
	return string(data), err
}

func (l *objects) writeTo(b buffer) error {
	b.text(`"apiVersion":"`, l.APIVersion, `","items":[`)
	for i := range l.Items {
		if i > 0 {
			b.text(",")
		}
		text, err := l.Items[i].text()
		if err != nil {
			return err
		}
		b.text(text)
	}
	b.text(`],"kind":"`, l.Kind, `","metadata":`)
	return b.json(struct { // As an UnstructuredList has it, also if it is empty.
		Continue           string `json:"continue"`
		RemainingItemCount *int64 `json:"remainingItemCount,omitempty"`
		ResourceVersion    string `json:"resourceVersion"`
	}{l.Continue, l.RemainingItemCount, l.ResourceVersion})
}
