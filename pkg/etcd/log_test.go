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
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/stretchr/testify/assert"
	"go.uber.org/zap"
	"k8s.io/klog/v2/ktesting"
)

// Entries of etcd keep their level, name and fields.
func TestLog(t *testing.T) {
	to := ktesting.NewLogger(ktesting.NopTL{}, ktesting.NewConfig(ktesting.BufferLogs(true)))
	level := zap.NewAtomicLevelAt(zap.WarnLevel)
	etcd := newLogger(level, to).With(zap.String("member", "a"))
	etcd.Info("too little")
	etcd.Named("raft").Warn("a warning", zap.Int("term", 2))
	etcd.Error("a failure", zap.Error(errors.New("of a disk")))
	level.SetLevel(zap.DPanicLevel)
	etcd.Error("too late")

	want := ktesting.Log{
		{Type: ktesting.LogInfo, Prefix: "etcd/raft", Message: "a warning", ParameterKVList: []any{"member", "a", "term", int64(2)}},
		{Type: ktesting.LogError, Prefix: "etcd", Message: "a failure", ParameterKVList: []any{"error", "of a disk", "member", "a"}},
	}
	got := to.GetSink().(ktesting.Underlier).GetBuffer().Data()
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(ktesting.LogEntry{}, "Timestamp"), cmpopts.EquateEmpty()); diff != "" {
		assert.Failf(t, "unexpected", "unexpected log (-want +got):\n%s", diff)
	}
}
