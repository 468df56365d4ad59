package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
)

// project is the Compose file, loaded as Compose does: checked against the specification's schema, merged, interpolated.
func project(t *testing.T, env ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{checkout("docker-compose.yml")}, cli.WithEnv(env), cli.WithProfiles([]string{"*"}))
	if err != nil {
		t.Fatal(err)
	}
	p, err := options.LoadProject(t.Context())
	if err != nil {
		t.Fatalf("docker-compose.yml: %v", err)
	}
	return p
}

func TestTheComposeFileIsValidAndComplete(t *testing.T) {
	p := project(t)
	count := map[string]int{}
	for name := range p.Services {
		count[strings.TrimRight(name, "-0123456789")]++
	}
	for kind, want := range map[string]int{"etcd": 3, "s": 1, "master": 2, "executor": 3, "prometheus": 1, "grafana": 1, "cli": 1} {
		if count[kind] != want {
			t.Errorf("%d services of kind %s, want %d", count[kind], kind, want)
		}
	}
	for name, s := range p.Services {
		for _, port := range s.Ports {
			if port.HostIP != "127.0.0.1" {
				t.Errorf("%s publishes port %d to %q, not to loopback alone", name, port.Target, port.HostIP)
			}
		}
		for _, v := range s.Volumes {
			if v.Type == types.VolumeTypeBind {
				if _, err := os.Stat(v.Source); err != nil || !v.ReadOnly {
					t.Errorf("%s mounts %s: read-only %v, %v", name, v.Source, v.ReadOnly, err)
				}
			}
		}
		// A short name of Docker Hub, or an image that is built here.
		if image, _, _ := strings.Cut(s.Image, ":"); strings.ContainsAny(strings.Split(image, "/")[0], ".") || strings.Count(image, "/") > 1 {
			t.Errorf("%s: image %s names a registry", name, s.Image)
		}
		if s.Build == nil && !strings.Contains(s.Image, ":") {
			t.Errorf("%s: image %s has no version", name, s.Image)
		}
	}
	if image := project(t, "ETCD_IMAGE=other/etcd:v3").Services["etcd-2"].Image; image != "other/etcd:v3" {
		t.Errorf("ETCD_IMAGE does not override the image: %s", image)
	}
}

func TestServersInComposeAreProbedReadOnlyAndConfiguredByNamesThatExist(t *testing.T) {
	known := settings(t)
	for name, s := range project(t).Services {
		if s.Image != "tidemark" {
			continue
		}
		if !s.ReadOnly {
			t.Errorf("%s may write to its image", name)
		}
		for variable := range s.Environment {
			if strings.HasPrefix(variable, "TIDEMARK_") && !known[variable] {
				t.Errorf("%s: nothing reads %s", name, variable)
			}
		}
		if !strings.HasPrefix(name, "master-") && !strings.HasPrefix(name, "executor-") {
			continue
		}
		if s.HealthCheck == nil || !slices.Equal(s.HealthCheck.Test[:3], []string{"CMD", "/tidemark", "probe"}) {
			t.Errorf("%s: health check %+v", name, s.HealthCheck)
		}
		if s.Hostname != name || *s.Environment["TIDEMARK_ID"] != name || !strings.HasPrefix(*s.Environment["TIDEMARK_LISTEN"], name+":") {
			t.Errorf("%s has another host name, id or address", name)
		}
	}
}

// The image holds what the services run, each stage is used, and nobody is root in it.
func TestTheDockerfileServesTheComposeFile(t *testing.T) {
	dockerfile := read(t, "Dockerfile")
	p := project(t)
	stages := map[string]string{}
	for _, text := range strings.Split(dockerfile, "\nFROM ")[1:] {
		name, ok := strings.CutPrefix(strings.SplitN(text, "\n", 2)[0], "scratch AS ")
		if !ok {
			t.Errorf("a stage begins with %q, not with nothing", name)
		}
		stages[name] = text
	}
	for name, s := range p.Services {
		if s.Build == nil {
			continue
		}
		stage, ok := stages[s.Build.Target]
		if !ok {
			t.Errorf("%s is built from stage %s, which there is not", name, s.Build.Target)
			continue
		}
		if !strings.Contains(stage, "USER 65532:65532") {
			t.Errorf("stage %s runs as root", s.Build.Target)
		}
		if program := filepath.Base(words(s)[0]); !strings.Contains(stage, "bin/"+program) {
			t.Errorf("%s runs %s, which stage %s does not hold", name, program, s.Build.Target)
		}
	}
	// The build's context is what .dockerignore lets in.
	ignore := strings.Split(read(t, ".dockerignore"), "\n")
	for _, m := range regexp.MustCompile(`(?m)^COPY (.*) \S+$`).FindAllStringSubmatch(dockerfile, -1) {
		for _, source := range strings.Fields(m[1]) {
			if !strings.HasPrefix(source, "--") && !slices.Contains(ignore, "!"+source) {
				t.Errorf(".dockerignore keeps %s out of the build", source)
			}
		}
	}
}
