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

package migrate

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"restaurant.programming-kubernetes.info/apiserver/pkg/cluster"
	"restaurant.programming-kubernetes.info/apiserver/pkg/etcd/keys"
)

// rehearse returns the first refusal of a dry run of the migration's changes. It leaves out changes
// of objects. Without it, an update could be refused while writes wait.
func (m *Migration) rehearse(ctx context.Context, state State, back bool) error {
	tried := *m
	tried.dryRun, tried.config.Report = []string{metav1.DryRunAll}, func(Progress) {}
	s := &session{Migration: &tried, state: state}
	try := s.rehearseThere
	if back {
		try = s.rehearseBack
	}
	err := try(ctx)
	if err == nil {
		err = s.rehearseFreeze(ctx)
	}
	if err != nil {
		return &refusal{"an update that moving the objects takes is refused: " + err.Error(), "correct the definition, or change the policy or webhook that refuses it"}
	}
	return nil
}

func (s *session) rehearseThere(ctx context.Context) error {
	patch, client := cluster.LedTo(s.config.Service, s.config.CABundle), s.aggregator.ApiregistrationV1().APIServices()
	err := s.rehearseSwitch(ctx, "patching", func(name string) error {
		return errors.Join(s.patchAPIService(ctx, name, patch), cluster.GiveBack(ctx, client, name, s.dryRun...))
	})
	if err != nil {
		return err
	}
	if err := cluster.Apply(ctx, s.dynamic, s.dryRun, cluster.OwnPolicy(s.config.Group)...); err != nil {
		return err
	}
	if err := s.tryRefuseCopies(ctx); err != nil && !errors.Is(err, cluster.ErrNotKept) {
		return err
	}
	return s.hide(ctx, keys.CopyKept)
}

func (s *session) rehearseBack(ctx context.Context) error {
	client := s.aggregator.ApiregistrationV1().APIServices()
	if err := s.rehearseSwitch(ctx, "deleting", func(name string) error { return cluster.GiveBack(ctx, client, name, s.dryRun...) }); err != nil {
		return err
	}
	if s.config.KubeEtcd == nil {
		if err := s.addVersions(ctx); err != nil {
			return err
		}
	}
	if err := s.allowCopies(ctx); err != nil {
		return err
	}
	if err := s.serve(ctx, keys.CopyKept); err != nil {
		return err
	}
	return s.annotate(ctx, keys.CopyNone)
}

// rehearseFreeze tries to create and to delete the objects that freeze writes.
func (s *session) rehearseFreeze(ctx context.Context) error {
	versions, err := s.frozenVersions(ctx)
	if err != nil {
		return err
	}
	objects, err := s.holding(ctx, s.freezeName(), writes()...)
	if err != nil {
		return err
	}
	if err := cluster.Apply(ctx, s.dynamic, s.dryRun, append(objects, s.denying(s.freezeName(), versions, "false")...)...); err != nil {
		return err
	}
	// The objects do not exist, so that their deletion can only be forbidden.
	if err := s.allow(ctx, s.freezeName()); err != nil {
		return err
	}
	return s.either(s.remove(ctx, "flowschemas", s.freezeName()), s.remove(ctx, "prioritylevelconfigurations", s.freezeName()))
}

// rehearseSwitch tries a change of all APIServices.
func (s *session) rehearseSwitch(ctx context.Context, doing string, do func(name string) error) error {
	for _, name := range s.config.APIServices {
		apiService, err := s.apiService(ctx, name)
		if err == nil && apiService != nil {
			err = do(name)
		}
		if err != nil {
			return fmt.Errorf("%s the APIService %s: %w", doing, name, err)
		}
	}
	return nil
}
