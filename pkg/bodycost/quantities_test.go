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

package bodycost

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestExpensiveNumbers(t *testing.T) {
	const tiny = "1e-999999999"
	long := strings.Repeat("1", maxNumberLength+1)
	protobuf := func(payload string) string {
		inner := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), payload)
		outer := protowire.AppendVarint(protowire.AppendTag(nil, 7, protowire.VarintType), 5)
		return "k8s\x00" + string(protowire.AppendBytes(protowire.AppendTag(outer, 2, protowire.BytesType), inner))
	}
	for name, test := range map[string]struct {
		mediaType, body, want string
	}{
		"a string in JSON":                {"application/json", `{"a":[{"b":"` + tiny + `"}]}`, tiny},
		"a number in JSON":                {"application/json", `{"a":` + tiny + `}`, tiny},
		"a key in JSON":                   {"application/json", `{"` + tiny + `":1}`, tiny},
		"escaped in JSON":                 {"application/json", `{"a":"1\u0065\u002d999999999"}`, tiny},
		"a patch":                         {"application/merge-patch+json", `{"a":"` + tiny + `"}`, tiny},
		"no content type":                 {"", `{"a":"` + tiny + `"}`, tiny},
		"signed, with a point":            {"application/json", `{"a":"-1.5E-01000"}`, "-1.5E-01000"},
		"overflowing":                     {"application/json", `{"a":"1e2147483648"}`, "1e2147483648"},
		"overflowing, with a sign":        {"application/json", `{"a":1E+2147483648}`, "1E+2147483648"},
		"between spaces":                  {"application/json", `{"a":"\u00a0 ` + tiny + ` "}`, tiny},
		"many digits, written out":        {"application/json", `{"a":"1000000000000000000e1000"}`, "1000000000000000000e1000"},
		"many digits, within an int64":    {"application/json", `{"a":"100000000000000000e999999999"}`, ""},
		"long":                            {"application/json", `{"a":"` + long + `"}`, long},
		"long, behind the point":          {"application/json", `{"a":"0.` + long + `"}`, "0." + long},
		"long, with a suffix":             {"application/json", `{"a":"` + long + `Ki"}`, long + "Ki"},
		"plain in YAML":                   {"application/yaml", "a: " + tiny + "x\nb: '" + tiny + "'", tiny},
		"escaped in YAML":                 {"application/apply-patch+yaml", `a: "1\x65-999999999"`, tiny},
		"over two lines in YAML":          {"application/apply-patch+yaml", "a: \"1e-9999\\\n  99999\"", tiny},
		"tagged as binary in YAML":        {"application/apply-patch+yaml", "a: !!binary MWUtOTk5OTk5OTk5", tiny},
		"protobuf":                        {"application/vnd.kubernetes.protobuf", protobuf(tiny), tiny},
		"many digits in protobuf":         {"application/vnd.kubernetes.protobuf", protobuf("1000000000000000000E+2000"), "1000000000000000000E+2000"},
		"protobuf, after a length digit":  {"application/vnd.kubernetes.protobuf", protobuf(strings.Repeat("0", 45) + tiny), strings.Repeat("0", 45) + tiny},
		"protobuf, after a length letter": {"application/vnd.kubernetes.protobuf", protobuf(strings.Repeat("0", 60) + tiny), strings.Repeat("0", 60) + tiny},
		"an ordinary exponent":            {"application/json", `{"a":"1e-999","b":"1E6","c":1e-3,"d":"1e999999999"}`, ""},
		"CBOR":                            {"application/cbor", "\xa1\x61a\x6c" + tiny, tiny},
		"a UUID":                          {"application/json", `{"a":"550e8400-e29b-41d4-a71e-446655440000"}`, ""},
		"a commit":                        {"application/json", `{"a":"1e1234567"}`, ""},
		"in other text":                   {"application/json", `{"a":"v` + tiny + `","b":"` + long + `."}`, long + "."},
		"a path":                          {"application/json", `{"a":"x/` + tiny + `"}`, ""},
		"broken JSON":                     {"application/json", `{"a":` + tiny[:6] + `,`, ""},
		"broken protobuf":                 {"application/vnd.kubernetes.protobuf", "k8s\x00\x0a\xff" + tiny, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := expensiveNumber(test.mediaType, []byte(test.body)); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
	requireError(t, CheckQuantities("application/json", []byte(`{"a":"`+tiny+`"}`)),
		"a number has more than 256 characters, or an exponent below -999 or of more than 9 digits, or of more than 3 after 18 digits: "+tiny)
}

// FuzzQuantity looks for text that is not found expensive, but that takes long to read.
func FuzzQuantity(f *testing.F) {
	for _, seed := range []string{"1", "-1.5Ki", "1e3", "1e-998", "1E+6", "1e999999999", "0.1m", " 1 ", "1e", "e5", "+.5e-3"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		body, err := json.Marshal(map[string]string{"a": text})
		if err != nil {
			t.Fatal(err)
		}
		if CheckQuantities("application/json", body) != nil {
			return
		}
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			return
		}
		// A number this long has been written out in full.
		if decimal := quantity.AsDec(); decimal.UnscaledBig().BitLen() > 1<<12 {
			t.Errorf("%q has %d bits", text, decimal.UnscaledBig().BitLen())
		}
	})
}
