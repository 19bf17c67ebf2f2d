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

package limits

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

const (
	// maxNumberLength is how many characters a number may have.
	maxNumberLength = 256
	// apimachinery keeps numbers of at most maxFastDigits digits in an int64, with any
	// exponent. It writes out the others.
	// Upstream fault 78.
	maxFastDigits = 18
)

// CheckQuantities returns an error if a number in a JSON text is too expensive to read as a resource.Quantity, whichever
// field it is in: fields are known only after decoding.
func CheckQuantities(text []byte) error {
	if !isSuspicious(text) && !bytes.ContainsRune(text, '\\') {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	for {
		token, err := decoder.Token()
		if err != nil {
			return nil //nolint:nilerr // The end, or the decoder says what is wrong.
		}
		var value string
		switch token := token.(type) {
		case string:
			value = token
		case json.Number:
			value = token.String()
		}
		if isExpensive(value) {
			return fmt.Errorf("a number has more than %d characters, or an exponent below -999 or of more than 9 digits, or of more than 3 after %d digits: %.32s", maxNumberLength, maxFastDigits, strings.TrimSpace(value))
		}
	}
}

const (
	digits = "0123456789."
	signs  = "+-"
	// suffixes has the characters of a quantity's suffix, unless that is an exponent.
	suffixes = "numkKMGTPEi"
)

// isExpensive reports whether a text is a quantity that costs resource.ParseQuantity minutes and gigabytes. That writes
// out 1e-999999999 before it rounds it (kubernetes/kubernetes#141306), and any number of many digits with a large
// exponent.
// Upstream fault 6.
func isExpensive(text string) bool {
	number := strings.TrimLeft(strings.TrimRight(strings.TrimSpace(text), suffixes), signs)
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	return strings.Trim(mantissa+strings.TrimLeft(exponent, signs), digits) == "" && isSuspicious([]byte(number))
}

// isExpensiveExponent reports whether the text after the "e" of a number of this length begins
// with an expensive exponent. That is a very small one, or a large one that would be written
// out. One of ten digits overflows: to apimachinery, 1e3000000000 is 1e-1294967296.
// Upstream fault 7.
func isExpensiveExponent(text []byte, length int) bool {
	digits := 10
	if length > maxFastDigits {
		digits = 4
	}
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		if text[0] == '-' {
			digits = 4
		}
		text = text[1:]
	}
	return len(text) >= digits && len(bytes.TrimLeft(text[:digits], "0123456789")) == 0
}

// isSuspicious reports whether an expensive number may be in a text. Other texts need not be
// parsed.
func isSuspicious(text []byte) bool {
	length := 0
	for i, c := range text {
		switch {
		case '0' <= c && c <= '9' || c == '.':
			if length++; length > maxNumberLength {
				return true
			}
		case length > 0 && (c == 'e' || c == 'E') && isExpensiveExponent(text[i+1:], length):
			return true
		default:
			length = 0
		}
	}
	return false
}

// mayBeExpensive reports whether a field of a protobuf message may be an expensive number. It does not follow the
// message, since decoders accept fields that others take for its end.
//
// The text of a field follows the last byte of its length. So a number after a printable character is a part of a longer
// text, such as a UID, unless that character is the length of the number.
func mayBeExpensive(message []byte) bool {
	isPart := func(c byte) bool { return strings.IndexByte(digits+signs+"eE", c) >= 0 }
	for begin := 0; begin < len(message); {
		if !isPart(message[begin]) {
			begin++
			continue
		}
		end := begin
		for end < len(message) && isPart(message[end]) {
			end++
		}
		if text := message[begin:end]; isSuspicious(text) {
			if begin == 0 || len(text) > maxNumberLength || message[begin-1] < ' ' || message[begin-1] > '~' {
				return true
			}
			for i, length := range message[begin-1 : end] {
				if field := message[begin+i:]; int(length) <= end-begin-i && isSuspicious(field[:length]) {
					return true
				}
			}
		}
		begin = end
	}
	return false
}
