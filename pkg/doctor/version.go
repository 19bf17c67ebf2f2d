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

package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apimachinery/pkg/version"
	baseversion "k8s.io/component-base/version"
)

// kube-apiserver may be this many minor releases older or newer than the libraries of this server.
// The libraries emulate no release before the oldest (KEP-4330). A release after the newest may
// drop APIs that the newest deprecates.
const (
	olderReleases = 3
	newerReleases = 1
)

// checkVersion compares the versions of kube-apiserver and of this server's
// libraries.
func (e *examination) checkVersion(ctx context.Context) []Finding {
	content, err := e.kube.Discovery().RESTClient().Get().AbsPath("/version").DoRaw(ctx)
	if apierrors.IsUnauthorized(err) {
		return []Finding{failure(fmt.Sprintf("kube-apiserver at %s does not accept the credentials (%v)", e.Cluster.Host, err), "check the file of --kubeconfig, or the token of the service account")}
	}
	if err != nil {
		return []Finding{failure(fmt.Sprintf("kube-apiserver at %s can't be reached (%v)", e.Cluster.Host, err), "check that it runs, and the address in the file of --kubeconfig")}
	}
	var info version.Info
	if err := json.Unmarshal(content, &info); err != nil {
		return unread("the version of kube-apiserver", err)
	}
	theirs, err := effectiveVersion(info)
	if err != nil {
		return unread("the version of kube-apiserver", err)
	}
	if e.foreign {
		return []Finding{ok("kube-apiserver at %s is %s", e.Cluster.Host, info.GitVersion)}
	}
	ours := utilversion.MustParse(baseversion.DefaultKubeBinaryVersion)
	if err := skew(ours, theirs); err != nil {
		return []Finding{explain("the version of kube-apiserver", Warning, err)}
	}
	return []Finding{ok("kube-apiserver at %s is %s, this server is made for %s", e.Cluster.Host, info.GitVersion, ours)}
}

// effectiveVersion returns the version whose features kube-apiserver has.
func effectiveVersion(info version.Info) (*utilversion.Version, error) {
	if info.EmulationMajor != "" {
		return utilversion.ParseGeneric(info.EmulationMajor + "." + info.EmulationMinor)
	}
	return utilversion.ParseGeneric(info.GitVersion)
}

// skew returns a problem if two versions are too far apart.
func skew(ours, theirs *utilversion.Version) error {
	difference := int(theirs.Minor()) - int(ours.Minor())
	switch {
	case theirs.Major() != ours.Major() || difference > newerReleases:
		return &problem{fmt.Sprintf("kube-apiserver is %d.%d, and this server is made for %s, and at most %s newer", theirs.Major(), theirs.Minor(), ours, plural(newerReleases, "minor release")), "install a newer version of this server", ""}
	case difference < -olderReleases:
		return &problem{fmt.Sprintf("kube-apiserver is %d.%d, and this server is made for %s, and at most %s older", theirs.Major(), theirs.Minor(), ours, plural(olderReleases, "minor release")), "upgrade the cluster, or install an older version of this server", ""}
	}
	return nil
}

// authenticationConfig is the ConfigMap that tells servers how to recognize kube-apiserver's front
// proxy.
const authenticationConfig = "extension-apiserver-authentication"

// checkRequestHeaders checks that kube-apiserver can forward the identity of users, and no one else can.
func (e *examination) checkRequestHeaders(ctx context.Context) []Finding {
	const flags = "start kube-apiserver with --requestheader-client-ca-file, --requestheader-allowed-names and --proxy-client-cert-file"
	show := kubectl("get", "configmap", authenticationConfig, "--namespace=kube-system", "--output=yaml")
	config, err := e.kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfig, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return []Finding{failure("there is no ConfigMap "+authenticationConfig+", and servers know kube-apiserver by it", "see the log of kube-apiserver, which writes it").by(show)}
	}
	if err != nil {
		return unread("the request-header configuration", err)
	}
	authorities := parseCertificates([]byte(config.Data["requestheader-client-ca-file"]))
	if len(authorities) == 0 {
		return []Finding{failure("there is no request-header CA, so that servers do not know kube-apiserver's front proxy, and refuse what it forwards", flags).by(show)}
	}
	var results []Finding
	for _, authority := range authorities {
		if renewalDue(authority, time.Now()) {
			results = append(results, warning(fmt.Sprintf("the request-header CA %q %s", authority.Subject, expiring(authority.NotAfter)), "renew it, and give kube-apiserver the new one beside it").by(show))
		}
	}
	if names := config.Data["requestheader-allowed-names"]; names == "" || names == "[]" {
		for _, client := range parseCertificates([]byte(config.Data["client-ca-file"])) {
			if slices.ContainsFunc(authorities, client.Equal) {
				results = append(results, failure("the request-header CA is a client CA, too, and no names are required, so that every user with a certificate can be anybody to servers", flags).by(show))
			}
		}
	}
	return orOK(results, "servers can know kube-apiserver's front proxy")
}
