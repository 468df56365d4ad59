package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// manifests decodes every document of deploy/kubernetes strictly into the type that it says it is: a field that does not
// exist, or has a value of another kind, is an error.
func manifests(t *testing.T) map[string]any {
	t.Helper()
	var kustomization struct {
		Resources []string `json:"resources"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "deploy", "kubernetes", "kustomization.yaml")), &kustomization); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(checkout("deploy", "kubernetes", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, path := range paths {
		if filepath.Base(path) == "kustomization.yaml" {
			continue
		}
		if !slices.Contains(kustomization.Resources, filepath.Base(path)) {
			t.Errorf("%s is not in kustomization.yaml", path)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, document := range strings.Split(string(b), "\n---\n") {
			var kind struct {
				APIVersion string `json:"apiVersion"`
				Kind       string `json:"kind"`
				Metadata   struct {
					Name string `json:"name"`
				} `json:"metadata"`
			}
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			object := map[string]any{
				"v1 Namespace": &corev1.Namespace{}, "v1 ConfigMap": &corev1.ConfigMap{}, "v1 ServiceAccount": &corev1.ServiceAccount{},
				"v1 Service": &corev1.Service{}, "apps/v1 Deployment": &appsv1.Deployment{}, "apps/v1 StatefulSet": &appsv1.StatefulSet{},
				"policy/v1 PodDisruptionBudget":          &policyv1.PodDisruptionBudget{},
				"networking.k8s.io/v1 NetworkPolicy":     &networkingv1.NetworkPolicy{},
				"autoscaling/v2 HorizontalPodAutoscaler": &autoscalingv2.HorizontalPodAutoscaler{},
			}[kind.APIVersion+" "+kind.Kind]
			if object == nil {
				t.Fatalf("%s: %s %s is not among the kinds that are used here", path, kind.APIVersion, kind.Kind)
			}
			if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
				t.Errorf("%s: %s %s: %v", path, kind.Kind, kind.Metadata.Name, err)
			}
			all[kind.Kind+"/"+kind.Metadata.Name] = object
		}
	}
	return all
}

func get[T any](t *testing.T, all map[string]any, name string) *T {
	t.Helper()
	object, ok := all[name].(*T)
	if !ok {
		t.Fatalf("there is no %s", name)
	}
	return object
}

func TestManifestsOfKubernetesHangTogether(t *testing.T) {
	all := manifests(t)
	masters := get[appsv1.Deployment](t, all, "Deployment/tidemark-master")
	executors := get[appsv1.StatefulSet](t, all, "StatefulSet/tidemark-executor")
	for name, pod := range map[string]corev1.PodTemplateSpec{"master": masters.Spec.Template, "executor": executors.Spec.Template} {
		checkPod(t, name, pod)
		budget := get[policyv1.PodDisruptionBudget](t, all, "PodDisruptionBudget/tidemark-"+name)
		service := get[corev1.Service](t, all, "Service/tidemark-"+name)
		for label, value := range budget.Spec.Selector.MatchLabels {
			if pod.Labels[label] != value || service.Spec.Selector[label] != value {
				t.Errorf("%s: budget and service select %s=%s, the pods have %v", name, label, value, pod.Labels)
			}
		}
	}
	if executors.Spec.ServiceName != get[corev1.Service](t, all, "Service/tidemark-executor").Name {
		t.Error("the executors' service is another one")
	}
	scaler := get[autoscalingv2.HorizontalPodAutoscaler](t, all, "HorizontalPodAutoscaler/tidemark-executor")
	if to := scaler.Spec.ScaleTargetRef; to.Kind != "StatefulSet" || to.Name != executors.Name {
		t.Errorf("the autoscaler scales %+v", to)
	}
	adapter := get[corev1.ConfigMap](t, all, "ConfigMap/tidemark-adapter-rules").Data["config.yaml"]
	for _, m := range scaler.Spec.Metrics {
		if !strings.Contains(adapter, "{ as: "+m.External.Metric.Name+" }") {
			t.Errorf("the adapter does not serve %s", m.External.Metric.Name)
		}
	}
	if slices.Compare([]int32{*scaler.Spec.MinReplicas}, []int32{scaler.Spec.MaxReplicas}) >= 0 {
		t.Error("the autoscaler has nothing to choose from")
	}
}

// settings are the variables that the servers read, as their sources name them.
func settings(t *testing.T) map[string]bool {
	t.Helper()
	known := map[string]bool{}
	for _, dir := range []string{"internal/process", "cmd/master", "cmd/executor", "cmd/tidemark"} {
		paths, err := filepath.Glob(checkout(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range regexp.MustCompile(`env:"([A-Z0-9_,]+)"`).FindAllStringSubmatch(string(b), -1) {
				for _, name := range strings.Split(m[1], ",") {
					known[name] = true
				}
			}
		}
	}
	return known
}

func checkPod(t *testing.T, name string, pod corev1.PodTemplateSpec) {
	t.Helper()
	c := pod.Spec.Containers[0]
	if c.Command[0] != "/tidemark-"+name {
		t.Errorf("%s runs %v", name, c.Command)
	}
	if s := c.SecurityContext; s == nil || !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation || !*pod.Spec.SecurityContext.RunAsNonRoot {
		t.Errorf("%s has more rights than it needs", name)
	}
	if c.LivenessProbe.HTTPGet.Path != "/healthz" || c.ReadinessProbe.HTTPGet.Path != "/readyz" {
		t.Errorf("%s is probed at %s and %s", name, c.LivenessProbe.HTTPGet.Path, c.ReadinessProbe.HTTPGet.Path)
	}
	known := settings(t)
	for _, e := range c.Env {
		if strings.HasPrefix(e.Name, "TIDEMARK_") && !known[e.Name] {
			t.Errorf("%s: nothing reads %s", name, e.Name)
		}
	}
	if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; !ok || limit.IsZero() {
		t.Errorf("%s has no memory limit", name)
	}
}
