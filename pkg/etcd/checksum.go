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

package etcd

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"slices"
)

// valuePrefix begins a value with a checksum. No other value can begin with it: objects
// begin with "k8s\x00" or "{", and encrypted ones with "k8s:enc:".
const valuePrefix = "checksum:v1:"

// valueSumSize is how many bytes of the SHA-256 come after the prefix.
const valueSumSize = 16

// ErrDamagedValue is the error of OpenValue.
var ErrDamagedValue = errors.New("its value is not what was written")

// SealValue returns the value with a checksum of it and of its key. The checksum shows
// whether a disk has changed either, or returned the value of another key.
func SealValue(key string, value []byte) []byte {
	return slices.Concat([]byte(valuePrefix), valueSum(key, value), value)
}

// ValueIsSealed reports whether SealValue has made a value.
func ValueIsSealed(stored []byte) bool { return bytes.HasPrefix(stored, []byte(valuePrefix)) }

// OpenValue returns the value that SealValue was given; any other as it is.
func OpenValue(key string, stored []byte) ([]byte, error) {
	const headerSize = len(valuePrefix) + valueSumSize
	var value []byte
	matches := false
	if len(stored) >= headerSize {
		value = stored[headerSize:]
		matches = bytes.Equal(stored[len(valuePrefix):headerSize], valueSum(key, value))
	}
	switch sealed := ValueIsSealed(stored); {
	case sealed != matches: // The prefix itself may be damaged.
		return nil, ErrDamagedValue
	case sealed:
		return value, nil
	}
	return stored, nil
}

func valueSum(key string, value []byte) []byte {
	sum := sha256.New()
	sum.Write([]byte(key))
	sum.Write([]byte{0}) // In no key.
	sum.Write(value)
	return sum.Sum(nil)[:valueSumSize]
}
