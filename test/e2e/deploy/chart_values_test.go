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

package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"restaurant.programming-kubernetes.info/apiserver/test/e2e/framework"
)

// TestChartValues puts values where they belong.
func TestChartValues(t *testing.T) {
	framework.Long(t, "Helm is built")
	admitInto(t, "elsewhere")
	charts := map[string]*chart{restaurantChart: newChart(t, restaurantChart), crdChart: newChart(t, crdChart)}
	charts[restaurantChart].admit(t, "elsewhere", "--set=mode=none,webhook.enabled=true")
	digest := "sha256:" + strings.Repeat("5", 64)
	values := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(values, []byte(`
mode: ha
image: {digest: "`+digest+`", pullPolicy: Always}
imagePullSecrets: [{name: registry}]
priorityClassName: important
runAsUser: null
nodeSelector: {disk: fast}
tolerations: [{key: dedicated, operator: Exists}]
podAnnotations: {sidecar: "false"}
podLabels: {team: storage}
server:
  replicas: 5
  extraArgs: [--v=2]
  extraEnv: [{name: HTTPS_PROXY, value: "http://proxy:3128"}]
  extraVolumes: [{name: files, secret: {secretName: files}}]
  extraVolumeMounts: [{name: files, mountPath: /etc/files}]
  resources: {limits: {memory: 3Gi}}
  affinity: {nodeAffinity: {}}
  topologySpreadConstraints: [{topologyKey: rack, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway}]
  hostNetwork: true
  dnsConfig: {nameservers: [192.0.2.53]}
  podDisruptionBudget: {maxUnavailable: 40%}
service: {annotations: {mesh: "off"}, labels: {team: storage}}
etcd:
  image: {repository: registry.example.org/etcd}
  quotaBytes: 4294967296
  resources: {limits: {memory: 4Gi}}
  storage: {size: 16Gi, storageClassName: fast}
monitoring:
  enabled: true
  labels: {release: kube-prometheus-stack}
  interval: 1m
  prometheus: {namespace: observability, serviceAccount: prometheus}
  runbooks: https://wiki.example.com/runbooks
backup:
  enabled: true
  schedule: "@daily"
  extraArgs: [--encryption-provider-config=/etc/keys/encryption.yaml]
  extraVolumes: [{name: keys, secret: {secretName: keys}}]
  extraVolumeMounts: [{name: keys, mountPath: /etc/keys}]
  store: true
  storage: {size: 1.5Ti, storageClassName: slow}
restore: store
rclone: {image: {repository: registry.example.org/rclone, digest: "`+digest+`"}}
doctor: {enabled: true}
`), 0o600))
	for name, chart := range charts {
		t.Run(name, func(t *testing.T) {
			server := map[string]string{restaurantChart: "apiserver", crdChart: crdServer}[name]
			chart.admit(t, "elsewhere", "--values="+values)
			objects := chart.templateAll(t, "elsewhere", "--values="+values)
			templates := podTemplates(t, objects)
			for workload, template := range templates {
				require.Equal(t, []corev1.LocalObjectReference{{Name: "registry"}}, template.Spec.ImagePullSecrets, workload)
				require.Equal(t, map[string]string{"disk": "fast"}, template.Spec.NodeSelector, workload)
				require.Equal(t, []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}}, template.Spec.Tolerations, workload)
				require.Equal(t, "false", template.Annotations["sidecar"], workload)
				require.Equal(t, "storage", template.Labels["team"], workload)
				security := template.Spec.SecurityContext
				require.True(t, *security.RunAsNonRoot)
				require.Nil(t, security.RunAsUser, workload)
				require.Nil(t, security.RunAsGroup, workload)
				require.Nil(t, security.FSGroup, workload)
				image := template.Spec.Containers[0].Image
				switch workload {
				case "etcd":
					require.Equal(t, "registry.example.org/etcd:"+required(t, "go.mod", "go.etcd.io/etcd/server/v3"), image)
				case "backup":
					require.Equal(t, "registry.example.org/rclone@"+digest, image)
				default:
					require.Equal(t, "registry.example.org/a/"+server+"@"+digest, image, workload)
					require.Equal(t, corev1.PullAlways, template.Spec.Containers[0].ImagePullPolicy, workload)
				}
			}
			require.Equal(t, "important", templates["etcd"].Spec.PriorityClassName)
			require.Equal(t, "4Gi", templates["etcd"].Spec.Containers[0].Resources.Limits.Memory().String())
			require.Contains(t, templates["etcd"].Spec.Containers[0].Args, "--quota-backend-bytes=4294967296")

			pod := templates[server].Spec
			require.Equal(t, "important", pod.PriorityClassName)
			container := pod.Containers[0]
			require.Equal(t, []string{"--secure-port=8443", "--v=2"}, container.Args)
			require.Equal(t, corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy:3128"}, container.Env[len(container.Env)-1])
			require.Equal(t, corev1.VolumeMount{Name: "files", MountPath: "/etc/files"}, container.VolumeMounts[len(container.VolumeMounts)-1])
			require.Contains(t, pod.Volumes, corev1.Volume{Name: "files", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "files"}}})
			require.Equal(t, "3Gi", container.Resources.Limits.Memory().String())
			require.Equal(t, "192Mi", container.Resources.Requests.Memory().String())
			require.Equal(t, &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{}}, pod.Affinity)
			require.Equal(t, []corev1.TopologySpreadConstraint{{
				TopologyKey: "rack", MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway,
				LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app.kubernetes.io/name": name}},
			}}, pod.TopologySpreadConstraints)
			require.True(t, pod.HostNetwork)
			require.Equal(t, corev1.DNSClusterFirstWithHostNet, pod.DNSPolicy)
			require.Equal(t, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.53"}}, pod.DNSConfig)
			trial := templates["backup"].Spec.InitContainers[1]
			require.Equal(t, "verify", trial.Name)
			require.Equal(t, "--encryption-provider-config=/etc/keys/encryption.yaml", trial.Args[len(trial.Args)-1])
			require.Equal(t, "/etc/keys", trial.VolumeMounts[len(trial.VolumeMounts)-1].MountPath)

			got := byIdentity(t, objects)
			field := func(object string, path ...string) any {
				t.Helper()
				require.Contains(t, got, object)
				value, found, err := unstructured.NestedFieldNoCopy(got[object].(map[string]any), path...)
				require.NoError(t, err)
				require.True(t, found, "%s: %v", object, path)
				return value
			}
			require.EqualValues(t, 5, field("Deployment elsewhere "+server, "spec", "replicas"))
			require.Equal(t, "40%", field("PodDisruptionBudget elsewhere "+server, "spec", "maxUnavailable"))
			require.Equal(t, map[string]any{"mesh": "off"}, field("Service elsewhere "+server, "metadata", "annotations"))
			require.Equal(t, "storage", field("Service elsewhere "+server, "metadata", "labels", "team"))
			require.Equal(t, "@daily", field("CronJob elsewhere backup", "spec", "schedule"))
			require.Equal(t, "*/10 * * * *", field("CronJob elsewhere doctor", "spec", "schedule"))
			require.Equal(t, "map[accessModes:[ReadWriteOnce] resources:map[requests:map[storage:1.5Ti]] storageClassName:slow]", fmt.Sprint(field("PersistentVolumeClaim elsewhere backups", "spec")))
			require.Equal(t, map[string]any{"helm.sh/resource-policy": "keep"}, field("PersistentVolumeClaim elsewhere backups", "metadata", "annotations"))
			require.Equal(t, "map[accessModes:[ReadWriteOnce] resources:map[requests:map[storage:16Gi]] storageClassName:fast volumeMode:Filesystem]",
				fmt.Sprint(field("StatefulSet elsewhere etcd", "spec", "volumeClaimTemplates").([]any)[0].(map[string]any)["spec"]))
			require.Contains(t, fmt.Sprint(field("ResourceQuota elsewhere critical-pods", "spec")), "values:[important]")

			for _, object := range []string{"ServiceMonitor elsewhere apiserver", "ServiceMonitor elsewhere etcd", "PrometheusRule elsewhere apiserver"} {
				require.Equal(t, "kube-prometheus-stack", field(object, "metadata", "labels", "release"))
			}
			require.Equal(t, "1m", field("ServiceMonitor elsewhere apiserver", "spec", "endpoints").([]any)[0].(map[string]any)["interval"])
			require.Contains(t, fmt.Sprint(field("PrometheusRule elsewhere apiserver", "spec")), "runbook_url:https://wiki.example.com/runbooks#apiserverdown ")
			require.NotContains(t, fmt.Sprint(field("PrometheusRule elsewhere apiserver", "spec")), "programming-kubernetes.info/apiserver")
			subjects := []any{map[string]any{"kind": "ServiceAccount", "namespace": "observability", "name": "prometheus"}}
			require.Equal(t, subjects, field("RoleBinding elsewhere prometheus", "subjects"))
			require.Equal(t, subjects, field("ClusterRoleBinding  "+map[string]string{restaurantChart: "restaurant", crdChart: "crd"}[name]+"-apiserver:metrics", "subjects"))
			require.Contains(t, fmt.Sprint(field("NetworkPolicy elsewhere prometheus", "spec")), "kubernetes.io/metadata.name:observability")
		})
	}
}

// TestChartValuesOfStandalone puts those where they belong that TestChartValues does not have.
func TestChartValuesOfStandalone(t *testing.T) {
	framework.Long(t, "Helm is built")
	admitInto(t, "elsewhere")
	chart := newChart(t, restaurantChart)
	digest := "sha256:" + strings.Repeat("7", 64)
	set := "--set=priorityClassName=,runAsUser=1000,storage.size=1Gi,storage.storageClassName=fast,webhook.enabled=true," +
		"webhook.image.repository=registry.example.org/rules,webhook.image.digest=" + digest + ",webhook.resources.limits.memory=1Gi"
	chart.admit(t, "elsewhere", set)
	objects := chart.template(t, "elsewhere", set)
	templates := podTemplates(t, objects)
	for workload, template := range templates {
		require.Empty(t, template.Spec.PriorityClassName, workload)
		require.EqualValues(t, 1000, *template.Spec.SecurityContext.RunAsUser, workload)
		require.EqualValues(t, 1000, *template.Spec.SecurityContext.RunAsGroup, workload)
	}
	require.EqualValues(t, 1000, *templates["apiserver"].Spec.SecurityContext.FSGroup)
	webhook := templates["webhook"].Spec.Containers[0]
	require.Equal(t, "registry.example.org/rules@"+digest, webhook.Image)
	require.Equal(t, "1Gi", webhook.Resources.Limits.Memory().String())
	got := byIdentity(t, objects)
	require.NotContains(t, got, "ResourceQuota elsewhere critical-pods")
	claim := got["PersistentVolumeClaim elsewhere apiserver-data"].(map[string]any)
	require.Equal(t, map[string]any{
		"accessModes": []any{"ReadWriteOnce"}, "storageClassName": "fast",
		"resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}},
	}, claim["spec"])
}

// TestChartUnknownValues has values refused that nothing reads, wherever they are.
func TestChartUnknownValues(t *testing.T) {
	framework.Long(t, "Helm is built")
	for _, name := range []string{restaurantChart, crdChart} {
		t.Run(name, func(t *testing.T) {
			chart := newChart(t, name)
			var values map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(program(t, chart.env, chart.helm, "show", "values", chart.dir)), &values))
			closed := closeMaps(values, "")
			content, err := yaml.Marshal(values)
			require.NoError(t, err)
			_, stderr, err := tryProgram(t.Context(), chart.env, chart.helm, "template", "release", chart.dir, "--values="+framework.File(t, string(content)))
			require.Error(t, err)
			for _, path := range closed {
				require.Contains(t, stderr, "at '"+path+"': additional properties 'unknown' not allowed")
			}
		})
	}
}

// closeMaps puts an unknown value into each map of values, but for those that Kubernetes or users define, and returns
// their paths.
func closeMaps(values map[string]any, path string) (closed []string) {
	free := []string{"resources", "nodeSelector", "podAnnotations", "podLabels", "affinity", "dnsConfig", "annotations", "labels"}
	for key, value := range values {
		if below, isMap := value.(map[string]any); isMap && !slices.Contains(free, key) {
			closed = append(closed, closeMaps(below, path+"/"+key)...)
		}
	}
	values["unknown"] = true
	return append(closed, path)
}

// TestChartModes changes each value in each mode. The objects change, too, or the schema refuses the value.
func TestChartModes(t *testing.T) {
	framework.Long(t, "Helm is built, and runs hundreds of times")
	modes := map[string][]string{ // And the components that they have.
		"standalone":    {"webhook", "monitoring", "doctor", "backup"},
		"ha":            {"webhook", "monitoring", "doctor", "backup"},
		"external-etcd": {"webhook", "monitoring", "doctor"},
		"none":          {"webhook"},
	}
	for _, name := range []string{restaurantChart, crdChart} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chart := newChart(t, name)
			defaults := program(t, chart.env, chart.helm, "show", "values", chart.dir)
			values, used := map[string]bool{}, map[string]bool{}
			var ignored []string
			for mode, components := range modes {
				if name == crdChart && mode == "none" {
					continue
				}
				var standard map[string]any
				require.NoError(t, yaml.Unmarshal([]byte(defaults), &standard))
				for _, component := range components {
					if of, has := standard[component].(map[string]any); has {
						of["enabled"] = true
						if component == "backup" {
							standard["restore"] = "store" // By rclone.
						}
					}
				}
				if name == crdChart {
					standard["groups"] = []string{"a.example.com"}
				}
				if mode == "external-etcd" {
					standard["etcd"].(map[string]any)["servers"] = []string{"https://a:2379"}
				}
				delete(standard, "mode")
				content, err := yaml.Marshal(standard)
				require.NoError(t, err)
				file := framework.File(t, string(content))
				template := func(flags ...string) (stdout, stderr string, err error) {
					args := []string{"template", "release", chart.dir, "--values=" + file, "--set=mode=" + mode}
					return tryProgram(t.Context(), chart.env, chart.helm, append(args, flags...)...)
				}
				objects, stderr, err := template()
				require.NoError(t, err, stderr)
				for path, value := range changes(standard, "") {
					values[path] = true
					content, err := json.Marshal(value)
					require.NoError(t, err)
					changed, stderr, err := template("--set-json=" + strings.ReplaceAll(path[1:], "/", ".") + "=" + string(content))
					switch {
					case err != nil:
						require.Contains(t, stderr, "at '"+path+"': ", mode)
					case changed == objects:
						ignored = append(ignored, mode+" "+path)
					default:
						used[path] = true
					}
				}
			}
			require.Empty(t, ignored)
			require.Equal(t, values, used) // Each has a use in a mode.
		})
	}
}

// changes returns another value for each of values by its path. Maps that Kubernetes or users define are values.
func changes(values map[string]any, prefix string) map[string]any {
	another := map[string]any{
		"replicas": 5, "quotaBytes": 4294967296, "runAsUser": 1000, "size": "3Gi", "digest": "sha256:" + strings.Repeat("5", 64), "pullPolicy": "Always",
		"schedule": "@daily", "interval": "1m", "runbooks": "https://wiki.example.com", "maxUnavailable": 2,
		"restore":                   "stdin",
		"resources":                 map[string]any{"limits": map[string]any{"memory": "5Gi"}},
		"affinity":                  map[string]any{"nodeAffinity": map[string]any{}},
		"dnsConfig":                 map[string]any{"nameservers": []string{"192.0.2.53"}},
		"topologySpreadConstraints": []any{map[string]any{"topologyKey": "rack"}},
		"tolerations":               []any{map[string]any{"operator": "Exists"}},
		"extraArgs":                 []string{"--v=7"},
		"groups":                    []string{"another.example.com"},
		"servers":                   []string{"https://another:2379"},
	}
	changed := map[string]any{}
	for key, value := range values {
		path := prefix + "/" + key
		if replacement, found := another[key]; found {
			changed[path] = replacement
			continue
		}
		switch value := value.(type) {
		case bool:
			changed[path] = !value
		case []any:
			changed[path] = []any{map[string]any{"name": "another"}}
		case map[string]any:
			if len(value) == 0 {
				changed[path] = map[string]any{"another": "value"}
			}
			maps.Copy(changed, changes(value, path))
		default:
			changed[path] = "another"
		}
	}
	return changed
}

// podTemplates returns those of workloads, CronJobs, Jobs and tests by their names.
func podTemplates(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.PodTemplateSpec {
	t.Helper()
	found := map[string]corev1.PodTemplateSpec{}
	for _, object := range objects {
		path := map[string][]string{
			"Deployment": {"spec", "template"}, "StatefulSet": {"spec", "template"}, "Job": {"spec", "template"},
			"CronJob": {"spec", "jobTemplate", "spec", "template"}, "Pod": {},
		}[object.GetKind()]
		if path == nil {
			continue
		}
		content, _, err := unstructured.NestedMap(object.Object, path...)
		require.NoError(t, err)
		delete(content, "apiVersion")
		delete(content, "kind")
		template := corev1.PodTemplateSpec{}
		require.NoError(t, runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(content, &template, true), identity(object))
		found[object.GetName()] = template
	}
	return found
}

// TestChartRefusals has values refused that a mode has no use for, or that are none.
func TestChartRefusals(t *testing.T) {
	framework.Long(t, "Helm is built")
	const external = "mode=external-etcd,etcd.servers={https://a:2379},"
	for name, cases := range map[string]map[string]struct{ set, want string }{
		restaurantChart: {
			"an unknown mode":         {"mode=single", "value must be one of 'standalone', 'ha', 'external-etcd', 'none'"},
			"an unknown value":        {"server.flags={--v=2}", "additional properties 'flags' not allowed"},
			"another chart's value":   {"groups={a.example.com}", "additional properties 'groups' not allowed"},
			"no size":                 {"storage.size=large", "'large' does not match pattern"},
			"no schedule":             {"doctor.schedule=daily", "'daily' does not match pattern"},
			"no digest":               {"image.digest=v1", "'v1' does not match pattern"},
			"root":                    {"runAsUser=0", "minimum: got 0, want 1"},
			"no servers":              {"mode=external-etcd", "minItems: got 0, want 1"},
			"servers of another mode": {"mode=ha,etcd.servers={https://a:2379}", "maxItems: got 1, want 0"},
			"no backup of its etcd":   {external + "backup.enabled=true", "at '/backup/enabled': value must be false"},
			"a store without backup":  {"backup.store=true", "at '/backup/enabled': value must be true"},
			"no source of a restore":  {"restore=latest", "at '/restore': value must be one of 'none', 'stdin', 'store'"},
			"no restore of its etcd":  {external + "restore=stdin", "at '/restore': value must be 'none'"},
			"two of one":              {"server.replicas=2", "at '/server/replicas': value must be one of <nil>, 1"},
			"a budget for one":        {"server.podDisruptionBudget.maxUnavailable=2", "at '/server/podDisruptionBudget/maxUnavailable': value must be 1"},
			"another mode's volume":   {"mode=ha,storage.size=1Gi", "at '/storage/size': value must be '8Gi'"},
			"another mode's etcd":     {"etcd.resources.limits.memory=1Gi", "at '/etcd/resources': 'const' failed"},
			"another mode's quota":    {"etcd.quotaBytes=4294967296", "at '/etcd/quotaBytes': value must be 2147483648"},
			"nothing":                 {"mode=none", "at '/webhook/enabled': value must be true"},
			"backup without server":   {"mode=none,backup.enabled=true", "at '/backup/enabled': value must be false"},
			"no name":                 {"name=Trattoria", "'Trattoria' does not match pattern"},
			"no flag":                 {"server.extraArgs={v=2}", "'v=2' does not match pattern"},
			"a variable without name": {"server.extraEnv[0].value=a", "at '/server/extraEnv/0': missing property 'name'"},
			"no share":                {"mode=ha,server.podDisruptionBudget.maxUnavailable=half", "'half' does not match pattern"},
			"a tag and a digest":      {"image.tag=v0.37.1,image.digest=sha256:" + strings.Repeat("5", 64), `the tag v0.37.1 of the image registry.example.org/a/apiserver would be ignored, since it has a digest: set one of them`},
			"no digest of etcd":       {"mode=ha,etcd.image.digest=v1", "at '/etcd/image/digest': 'v1' does not match pattern"},
			"no digest of a webhook":  {"webhook.image.digest=v1", "at '/webhook/image/digest': 'v1' does not match pattern"},
			"no address of etcd":      {"mode=external-etcd,etcd.servers={a:2379}", "at '/etcd/servers/0': 'a:2379' does not match pattern"},
			"no interval":             {"monitoring.interval=often", "'often' does not match pattern"},
			"no page of runbooks":     {"monitoring.runbooks=runbooks.md", "'runbooks.md' does not match pattern"},
		},
		crdChart: {
			"no groups":             {"mode=ha", "minItems: got 0, want 1"},
			"a core group":          {"groups={apps}", "'apps' does not match pattern"},
			"no server":             {"groups={a.example.com},mode=none", "value must be one of 'standalone', 'ha', 'external-etcd'"},
			"another chart's value": {"groups={a.example.com},webhook.enabled=true", "additional properties 'webhook' not allowed"},
		},
	} {
		chart := newChart(t, name)
		for refused, test := range cases {
			t.Run(name+" "+refused, func(t *testing.T) {
				_, stderr, err := tryProgram(t.Context(), chart.env, chart.helm, "template", "release", chart.dir, "--set="+test.set)
				require.Error(t, err)
				require.Contains(t, stderr, test.want)
			})
		}
	}
}
