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

package certificates

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Keys in the Secret.
const (
	caCert       = "ca.crt"
	caKey        = "ca.key"
	nextCert     = "next-ca.crt"
	nextKey      = "next-ca.key"
	previousCert = "previous-ca.crt"
)

// ca is the content of the Secret.
type ca struct {
	// current issues certificates.
	current *keyPair
	// next will; it is nil most of the time.
	next *keyPair
	// previous did, and is trusted until it expires. It may be nil.
	previous *keyPair
}

// advance takes the step that is due, if any. A certificate authority that has expired can be
// replaced without steps: nobody trusts it any more.
func (a ca) advance(name string, now time.Time, validity time.Duration) (_ ca, changed bool, err error) {
	create := func() (*keyPair, error) {
		return issue(nil, subject{name: name + "@" + now.UTC().Format(time.RFC3339)}, now, validity)
	}
	switch {
	case a.current == nil || !now.Before(a.current.certificate.NotAfter) && a.next == nil:
		a = ca{}
		a.current, err = create()
	case a.previous != nil && !now.Before(a.previous.certificate.NotAfter):
		a.previous = nil
	case a.next == nil && !now.Before(a.current.part(2, 3)):
		a.next, err = create()
	case a.next != nil && !now.Before(a.next.part(1, 12)):
		a = ca{current: a.next, previous: a.current}
		a.previous.key = nil // It has issued its last certificate.
	default:
		return a, false, nil
	}
	return a, true, err
}

// bundle returns all certificates that are to be trusted.
func (a ca) bundle() []byte {
	var bundle []byte
	for _, pair := range []*keyPair{a.current, a.next, a.previous} {
		if pair != nil {
			bundle = append(bundle, pair.certPEM()...)
		}
	}
	return bundle
}

// decode reads the Secret. A Secret without a certificate authority is a valid one, so that an
// operator can create it empty.
func decode(secret *corev1.Secret) (ca, error) {
	var a ca
	for _, part := range []struct {
		pair      **keyPair
		cert, key string
	}{
		{&a.current, caCert, caKey},
		{&a.next, nextCert, nextKey},
		{&a.previous, previousCert, ""},
	} {
		if len(secret.Data[part.cert]) == 0 {
			continue
		}
		pair, err := parse(secret.Data[part.cert], secret.Data[part.key])
		if err != nil {
			return ca{}, fmt.Errorf("%s: %w", part.cert, err)
		}
		if part.key != "" && pair.key == nil {
			return ca{}, fmt.Errorf("%s is missing", part.key)
		}
		*part.pair = pair
	}
	return a, nil
}

// encode writes the Secret.
func (a ca) encode(secret *corev1.Secret) error {
	secret.Data = map[string][]byte{}
	for _, part := range []struct {
		pair      *keyPair
		cert, key string
	}{
		{a.current, caCert, caKey},
		{a.next, nextCert, nextKey},
		{a.previous, previousCert, ""},
	} {
		if part.pair == nil {
			continue
		}
		secret.Data[part.cert] = part.pair.certPEM()
		if part.key == "" {
			continue
		}
		key, err := part.pair.keyPEM()
		if err != nil {
			return err
		}
		secret.Data[part.key] = key
	}
	return nil
}
