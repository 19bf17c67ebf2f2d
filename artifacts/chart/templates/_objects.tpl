# Copyright The Restaurant API Server Authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

{{- /* The objects of a file of manifests, as a JSON array, with what the values say. */}}
{{- define "objects" }}
{{- $root := .root }}
{{- $objects := list }}
{{- range $document := splitList "\n---\n" (.root.Files.Get (printf "manifests/%s.yaml" .file)) }}
{{- $object := fromYaml $document | toJson | replace "the-namespace" $root.Release.Namespace | replace "the-instance" $root.Values.name | fromJson }}
{{- include "change" (dict "root" $root "object" $object) }}
{{- $objects = append $objects $object }}
{{- end }}
{{- toJson $objects }}
{{- end }}

{{- /* The name of the server's Deployment, Service, container and image. */}}
{{- define "server" }}
{{- ternary "crd-apiserver" "apiserver" (eq .Chart.Name "crd-apiserver") }}
{{- end }}

{{- define "wanted" }}
{{- $kind := .object.kind }}
{{- $name := .object.metadata.name }}
{{- if eq $kind "Namespace" }}
{{- .root.Values.createNamespace }}
{{- else if or (eq $kind "APIService") (and (eq $kind "ClusterRole") (or (hasPrefix "restaurant:" $name) (hasPrefix "restaurant-apiserver:policy-parameters:" $name))) }}
{{- /* The roles of the group do not have the name of the instance. */}}
{{- .root.Values.registered }}
{{- else if and (eq $kind "PrometheusRule") (eq $name "apiservices") (hasKey .root.Values "registered") }}
{{- .root.Values.registered }}
{{- else if eq $kind "ResourceQuota" }}
{{- /* It is for the priority class. */}}
{{- ne .root.Values.priorityClassName "" }}
{{- else }}
{{- true }}
{{- end }}
{{- end }}

{{- define "change" }}
{{- $values := .root.Values }}
{{- $object := .object }}
{{- $kind := $object.kind }}
{{- $name := $object.metadata.name }}
{{- $server := include "server" .root }}
{{- if has $kind (list "Deployment" "StatefulSet" "Job") }}
{{- include "pod" (dict "root" .root "template" $object.spec.template) }}
{{- else if eq $kind "CronJob" }}
{{- $_ := set $object.spec "schedule" (index $values $name).schedule }}
{{- include "pod" (dict "root" .root "template" $object.spec.jobTemplate.spec.template) }}
{{- end }}
{{- if and (eq $kind "Deployment") (eq $name $server) }}
{{- include "replicas" (dict "root" .root "deployment" $object) }}
{{- else if and (eq $kind "Deployment") (eq $name "webhook") }}
{{- $_ := set (first $object.spec.template.spec.containers) "resources" $values.webhook.resources }}
{{- else if eq $kind "StatefulSet" }}
{{- $etcd := first $object.spec.template.spec.containers }}
{{- $_ := set $etcd "resources" $values.etcd.resources }}
{{- $_ := set $etcd "args" (toJson $etcd.args | replace "bytes=2147483648" (printf "bytes=%d" (int64 $values.etcd.quotaBytes)) | fromJsonArray) }}
{{- include "claim" (dict "spec" (first $object.spec.volumeClaimTemplates).spec "storage" $values.etcd.storage) }}
{{- else if and (eq $kind "CronJob") (eq $name "backup") }}
{{- $pod := $object.spec.jobTemplate.spec.template.spec }}
{{- range $container := concat $pod.containers $pod.initContainers }}
{{- if eq $container.name "verify" }}
{{- include "files" (dict "of" $values.backup "pod" $pod "container" $container) }}
{{- end }}
{{- end }}
{{- else if and (eq $kind "CronJob") (eq $name "doctor") }}
{{- include "variable" (dict "of" (first $object.spec.jobTemplate.spec.template.spec.containers) "name" "CRD_APISERVER_GROUPS" "values" $values.groups) }}
{{- else if eq $kind "PersistentVolumeClaim" }}
{{- $storage := ternary $values.backup.storage $values.storage (eq $name "backups") }}
{{- include "claim" (dict "spec" $object.spec "storage" $storage) }}
{{- if $storage.keep }}
{{- $_ := set $object.metadata "annotations" (dict "helm.sh/resource-policy" "keep") }}
{{- end }}
{{- else if and (eq $kind "Service") (eq $name $server) }}
{{- include "metadata" (dict "of" $object "annotations" $values.service.annotations "labels" $values.service.labels) }}
{{- else if and (eq $kind "PodDisruptionBudget") (eq $name $server) }}
{{- $_ := set $object.spec "maxUnavailable" $values.server.podDisruptionBudget.maxUnavailable }}
{{- else if eq $kind "ResourceQuota" }}
{{- $_ := set (first $object.spec.scopeSelector.matchExpressions) "values" (list $values.priorityClassName) }}
{{- else if has $kind (list "ServiceMonitor" "PrometheusRule") }}
{{- include "monitoring" (dict "values" $values.monitoring "groups" $values.groups "object" $object) }}
{{- else if and (has $kind (list "RoleBinding" "ClusterRoleBinding")) (eq (first $object.subjects).name "prometheus-k8s") }}
{{- $_ := set $object "subjects" (list (dict "kind" "ServiceAccount" "name" $values.monitoring.prometheus.serviceAccount "namespace" $values.monitoring.prometheus.namespace)) }}
{{- else if and (eq $kind "NetworkPolicy") (eq $name "prometheus") }}
{{- range $peer := (first $object.spec.ingress).from }}
{{- $_ := set $peer.namespaceSelector.matchLabels "kubernetes.io/metadata.name" $values.monitoring.prometheus.namespace }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The values of the server's Deployment. */}}
{{- define "replicas" }}
{{- $values := .root.Values }}
{{- $deployment := .deployment }}
{{- $pod := $deployment.spec.template.spec }}
{{- $container := first $pod.containers }}
{{- with $values.server.replicas }}
{{- $_ := set $deployment.spec "replicas" (int .) }}
{{- end }}
{{- $_ := set $container "resources" $values.server.resources }}
{{- include "files" (dict "of" $values.server "pod" $pod "container" $container) }}
{{- if eq $values.mode "external-etcd" }}
{{- include "variable" (dict "of" $container "name" "APISERVER_ETCD_SERVERS" "values" $values.etcd.servers) }}
{{- include "variable" (dict "of" $container "name" "CRD_APISERVER_ETCD_SERVERS" "values" $values.etcd.servers) }}
{{- end }}
{{- include "variable" (dict "of" $container "name" "CRD_APISERVER_GROUPS" "values" $values.groups) }}
{{- $_ := set $container "env" (concat $container.env $values.server.extraEnv) }}
{{- range $field := list "affinity" "topologySpreadConstraints" "dnsConfig" }}
{{- with index $values.server $field }}
{{- $_ := set $pod $field . }}
{{- end }}
{{- end }}
{{- range $constraint := $pod.topologySpreadConstraints }}
{{- if not $constraint.labelSelector }}
{{- $_ := set $constraint "labelSelector" $deployment.spec.selector }}
{{- end }}
{{- end }}
{{- if $values.server.hostNetwork }}
{{- $_ := set $pod "hostNetwork" true }}
{{- $_ := set $pod "dnsPolicy" "ClusterFirstWithHostNet" }}
{{- end }}
{{- end }}

{{- /* Flags of a container of a pod, and files that they name. */}}
{{- define "files" }}
{{- $container := .container }}
{{- with .of.extraArgs }}
{{- $_ := set $container "args" (concat $container.args .) }}
{{- end }}
{{- with .of.extraVolumeMounts }}
{{- $_ := set $container "volumeMounts" (concat ($container.volumeMounts | default list) .) }}
{{- end }}
{{- $pod := .pod }}
{{- with .of.extraVolumes }}
{{- $_ := set $pod "volumes" (concat ($pod.volumes | default list) .) }}
{{- end }}
{{- end }}

{{- define "variable" }}
{{- $name := .name }}
{{- $values := .values }}
{{- range $variable := .of.env }}
{{- if eq $variable.name $name }}
{{- $_ := set $variable "value" (join "," $values) }}
{{- end }}
{{- end }}
{{- end }}

{{- define "metadata" }}
{{- $of := .of }}
{{- with .annotations }}
{{- $_ := set $of.metadata "annotations" (merge (dict) . ($of.metadata.annotations | default dict)) }}
{{- end }}
{{- with .labels }}
{{- $_ := set $of.metadata "labels" (merge ($of.metadata.labels | default dict) .) }}
{{- end }}
{{- end }}

{{- /* Makes an object one that exists for a moment only. Helm 3.18 and later print the log of its pod. */}}
{{- define "hook" }}
{{- $policies := dict "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" "helm.sh/hook-output-log-policy" "hook-succeeded,hook-failed" }}
{{- include "metadata" (dict "of" .object "labels" dict "annotations" (merge (dict "helm.sh/hook" .hook "helm.sh/hook-weight" .weight) $policies)) }}
{{- end }}

{{- define "monitoring" }}
{{- include "metadata" (dict "of" .object "annotations" dict "labels" .values.labels) }}
{{- $values := .values }}
{{- $groups := .groups }}
{{- range $endpoint := .object.spec.endpoints }}
{{- with $values.interval }}
{{- $_ := set $endpoint "interval" . }}
{{- end }}
{{- end }}
{{- range $group := .object.spec.groups }}
{{- range $rule := $group.rules }}
{{- if and $groups (eq $rule.alert "APIServiceUnavailable") }}
{{- $_ := set $rule "expr" (replace "\".+\"" (printf "\"[^.]+[.](%s)\"" (join "|" $groups | replace "." "[.]")) $rule.expr) }}
{{- end }}
{{- with $values.runbooks }}
{{- $_ := set $rule.annotations "runbook_url" (printf "%s#%s" . (splitList "#" $rule.annotations.runbook_url | last)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "claim" }}
{{- $_ := set .spec.resources.requests "storage" .storage.size }}
{{- if .storage.storageClassName }}
{{- $_ := set .spec "storageClassName" .storage.storageClassName }}
{{- end }}
{{- end }}

{{- /* The values of any pod. */}}
{{- define "pod" }}
{{- $values := .root.Values }}
{{- $pod := .template.spec }}
{{- include "metadata" (dict "of" .template "annotations" $values.podAnnotations "labels" $values.podLabels) }}
{{- if hasKey $pod "priorityClassName" }}
{{- if $values.priorityClassName }}
{{- $_ := set $pod "priorityClassName" $values.priorityClassName }}
{{- else }}
{{- $_ := unset $pod "priorityClassName" }}
{{- end }}
{{- end }}
{{- range $field := list "runAsUser" "runAsGroup" "fsGroup" }}
{{- if not $values.runAsUser }}
{{- $_ := unset $pod.securityContext $field }}
{{- else if hasKey $pod.securityContext $field }}
{{- $_ := set $pod.securityContext $field $values.runAsUser }}
{{- end }}
{{- end }}
{{- range $field := list "imagePullSecrets" "nodeSelector" "tolerations" }}
{{- with index $values $field }}
{{- $_ := set $pod $field . }}
{{- end }}
{{- end }}
{{- $version := .root.Chart.AppVersion }}
{{- $images := dict (include "server" .root) $values.image "webhook" (dict) }}
{{- with $values.webhook }}{{ $_ := set $images "webhook" .image }}{{ end }}
{{- $others := dict "quay.io/coreos/etcd" $values.etcd.image "rclone/rclone" $values.rclone.image }}
{{- range $container := concat $pod.containers ($pod.initContainers | default list) }}
{{- /* Manifests of a release have the digest. */}}
{{- $parts := splitList "@" $container.image }}
{{- $digest := rest $parts | first }}
{{- $parts = splitList ":" (first $parts) }}
{{- if hasKey $images (first $parts) }}
{{- $_ := set $container "image" (include "image" (dict "image" (get $images (first $parts)) "tag" $version "digest" $digest)) }}
{{- if ne $values.image.pullPolicy "IfNotPresent" }}
{{- $_ := set $container "imagePullPolicy" $values.image.pullPolicy }}
{{- end }}
{{- else }}
{{- with get $others (first $parts) }}
{{- $_ := set $container "image" (include "image" (dict "image" . "tag" (last $parts) "digest" $digest)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "image" }}
{{- if and .image.digest .image.tag }}
{{- fail (printf "the tag %s of the image %s would be ignored, since it has a digest: set one of them" .image.tag .image.repository) }}
{{- else if .image.tag }}
{{- printf "%s:%s" .image.repository .image.tag }}
{{- else if or .image.digest .digest }}
{{- printf "%s@%s" .image.repository (.image.digest | default .digest) }}
{{- else }}
{{- printf "%s:%s" .image.repository .tag }}
{{- end }}
{{- end }}
